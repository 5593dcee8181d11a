//! Shards that elect for themselves: stage *diff* in cluster mode. Create, join, heal; scaling is not here.
//!
//! Redis elects as long as a majority of the masters lives. The operator only does what Redis cannot: bring nodes
//! together, give out slots once, repair addresses, place replicas, and take over when no election is possible.
//!
//! **Invariant:** `MEET` goes to a fresh node or to one whose id the cluster knows, and to no other: a wrong one merges
//! two clusters and destroys data. **Invariant:** slots are given out once, never to replace lost ones.
//! **Invariant:** nothing is flushed, reset, or taken away from a node.

mod heal;
mod join;
mod rescue;
mod view;

use crate::current::PodView;
use crate::nodes::SLOTS;
use crate::plan::{Input, Plan};
use crate::role::Role;
use view::View;

/// What is to be done.
pub fn plan(input: &Input<'_>) -> Plan {
    let mut plan = Plan::idle(input);
    plan.replicas = input.live_replicas.unwrap_or(input.desired);
    let view = View::of(input);
    report(input, &view, &mut plan);
    // Each stage ends the plan: what it does changes what the next would see.
    let stages: [fn(&Input<'_>, &View<'_>, &mut Plan); 5] =
        [rescue::plan, heal::addresses, heal::links, join::plan, heal::forget];
    for stage in stages {
        stage(input, &view, &mut plan);
        if !plan.commands.is_empty() {
            break;
        }
    }
    if plan.commands.is_empty() {
        plan.replace_unstartable(input);
    }
    plan
}

/// What is seen, in words.
fn report(input: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    plan.shards = Some((view.owners(), view.assigned.len()));
    plan.in_sync.clear();
    for (name, _) in input.expected().filter(|(_, pod)| pod.is_none_or(|pod| pod.redis().is_none()))
    {
        plan.problem("PodDown", format!("{name} does not serve"));
    }
    for pod in input.pods.iter().filter(|pod| pod.redis().is_some()) {
        member(input, view, pod, plan);
    }
    if view.assigned.len() < u32::from(SLOTS) && input.memory.formed {
        let lost = u32::from(SLOTS) - view.assigned.len();
        plan.problem("SlotsLost", format!("{lost} slots have no owner any more; their keys are lost or on a node that is missing"));
    }
}

fn member(input: &Input<'_>, view: &View<'_>, pod: &PodView, plan: &mut Plan) {
    let Some(id) = View::id(pod) else {
        plan.roles.insert(pod.name.clone(), Role::Joining);
        plan.problem("NotInClusterMode", format!("{} does not answer CLUSTER NODES", pod.name));
        return;
    };
    plan.node_ids.insert(pod.name.clone(), id.to_owned());
    let Some(own) = view.member(pod) else {
        plan.roles.insert(pod.name.clone(), Role::Joining);
        let state = view.outsider_state(pod);
        plan.states.insert(pod.name.clone(), state);
        if state == "Foreign" {
            plan.problem(
                "ForeignNode",
                format!(
                    "{} is a node that this cluster does not know and that is not fresh: it is left alone; \
                     delete the pod (and its claim) if its data is not needed",
                    pod.name
                ),
            );
        }
        return;
    };
    let known_good = pod.linked() || input.memory.in_sync.contains(&pod.name);
    let role = if view.owns_slots(id) {
        Role::Master
    } else if !own.master && known_good {
        Role::Replica
    } else {
        Role::Joining
    };
    if role == Role::Master || (role == Role::Replica && pod.linked()) {
        plan.in_sync.insert(pod.name.clone());
    }
    plan.roles.insert(pod.name.clone(), role);
    if pod.redis().is_some_and(|redis| !redis.cluster_ok) {
        // Also for two seconds after the last slot was given out, and after a partition.
        plan.in_sync.remove(&pod.name);
        plan.problem(
            "ClusterDown",
            format!("{} does not serve yet: its cluster_state is fail", pod.name),
        );
    }
    if view.is_isolated(id) {
        plan.states.insert(pod.name.clone(), "Isolated");
        plan.in_sync.remove(&pod.name);
        plan.problem("NodeIsolated", format!("most of the others cannot reach {}", pod.name));
    }
}
