//! Everybody follows the master.
//!
//! **Invariant:** a Redis is never attached to an empty one of another history (corpus B23).

use crate::current::PodView;
use crate::plan::{Command, Input, Plan};
use crate::role::Role;

/// Everybody follows `master`.
pub(super) fn follow(input: &Input<'_>, master: &PodView, plan: &mut Plan) {
    plan.master = Some(master.name.clone());
    plan.in_sync = [master.name.clone()].into();
    plan.fence(Some(&master.name));
    plan.roles.insert(master.name.clone(), Role::Master);
    let Some(leading) = master.info() else { return };
    for pod in input.pods.iter().filter(|pod| pod.name != master.name) {
        let Some(info) = pod.info() else {
            continue;
        };
        let role = if pod.follows(master) && pod.linked() {
            plan.in_sync.insert(pod.name.clone());
            Role::Replica
        } else if pod.follows(master) && input.memory.in_sync.contains(&pod.name) {
            // It lost the link but not its data: still good enough to read from.
            Role::Replica
        } else {
            Role::Joining
        };
        plan.roles.insert(pod.name.clone(), role);
        if pod.follows(master) || leading.failing_over || info.failing_over {
            continue;
        }
        attach(pod, master, plan);
    }
    for (name, _) in input.expected().filter(|(_, pod)| pod.is_none_or(|pod| pod.redis().is_none()))
    {
        plan.problem("PodDown", format!("{name} does not serve"));
    }
}

/// `pod` follows `master` too, unless it would lose data by that.
pub(super) fn attach(pod: &PodView, master: &PodView, plan: &mut Plan) {
    let (Some(info), Some(leading)) = (pod.info(), master.info()) else {
        return;
    };
    if leading.would_wipe(info) {
        plan.problem(
            "EmptyMaster",
            format!(
                "{} has {} keys of another history than {}, which is empty: it is not attached, so that they are not lost; \
                 delete the pod (and its claim) if they are not needed",
                pod.name, info.keys, master.name
            ),
        );
        return;
    }
    plan.commands.push(Command::attach(pod, master));
}
