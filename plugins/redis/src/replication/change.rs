//! Fewer pods, and newer pods, without losing the master.
//!
//! **Invariant:** one pod is restarted at a time, and only while all others have everything and are ready.
//! **Invariant:** a master with a replica in sync is never restarted or scaled away before it has handed over.

use std::cmp::Reverse;

use crate::api::OperationKind;
use crate::current::{Life, PodView};
use crate::info::InfoRole;
use crate::plan::{Command, Input, Plan};
use crate::role::Role;

/// A handover that did not happen in this time is tried with another replica: twice the 5 s after which Redis gives up.
const HANDOVER_SECS_MAX: i64 = 10;

/// Plans the next step of a change, if there is one to make.
pub(super) fn plan(input: &Input<'_>, master: &PodView, plan: &mut Plan) {
    if master.info().is_some_and(|info| info.failing_over) {
        // Under way: nothing until it ends or times out (corpus B59).
        if let Some((target, _)) = input.operating_for(OperationKind::Handover)
            && let Some(target) = input.pod(target)
        {
            hand_over(master, target, plan);
        }
        return;
    }
    let live = input.live_replicas.unwrap_or(input.desired);
    if live > input.desired {
        shrink(input, master, plan);
    } else {
        plan.replicas = input.desired;
        if live == input.desired {
            restart(input, master, plan);
        }
    }
}

/// A StatefulSet removes its highest ordinals, whoever they are.
fn shrink(input: &Input<'_>, master: &PodView, plan: &mut Plan) {
    let stays = |pod: &&PodView| pod.ordinal < input.desired && !pod.terminating;
    if master.ordinal >= input.desired {
        match successor(input, plan, stays) {
            Some(target) => hand_over(master, target, plan),
            None => plan.problem(
                "ScaleDownWaits",
                format!("{} is the master, and no pod that stays is in sync with it", master.name),
            ),
        }
        return;
    }
    if input.desired > 1 && successor(input, plan, stays).is_none() {
        plan.problem(
            "ScaleDownWaits",
            "none of the replicas that stay is in sync; the others are kept until one is",
        );
        return;
    }
    plan.replicas = input.desired;
}

/// The replica to hand over to: in sync, furthest along; another one if the last try with it has failed.
fn successor<'a>(
    input: &Input<'a>,
    plan: &Plan,
    eligible: impl Fn(&&PodView) -> bool,
) -> Option<&'a PodView> {
    let failed = input
        .operating_for(OperationKind::Handover)
        .filter(|(_, seconds)| *seconds >= HANDOVER_SECS_MAX)
        .map(|(target, _)| target);
    let under_way = input
        .operating_for(OperationKind::Handover)
        .filter(|(_, seconds)| *seconds < HANDOVER_SECS_MAX)
        .map(|(target, _)| target);
    input
        .pods
        .iter()
        .filter(|pod| pod.linked() && plan.in_sync.contains(&pod.name))
        .filter(eligible)
        .max_by_key(|pod| {
            let name = pod.name.as_str();
            let offset = pod.info().map(|info| info.offset);
            (under_way == Some(name), failed != Some(name), pod.ready, offset, Reverse(pod.ordinal))
        })
}

/// Replicas first, then the master hands over, then it is one of them.
fn restart(input: &Input<'_>, master: &PodView, plan: &mut Plan) {
    let Some(revision) = input.update_revision else {
        return;
    };
    let outdated = |pod: &&PodView| {
        !pod.terminating && pod.revision.as_deref().is_some_and(|current| current != revision)
    };
    let replicas =
        || input.pods.iter().rev().filter(|pod| pod.name != master.name).filter(outdated);
    // A pod of an old revision that does not run serves nobody: without this a bad image could not be taken back.
    if let Some(broken) = replicas().find(|pod| pod.life != Life::Running) {
        return delete(broken, plan);
    }
    // Ready too: Services must have somebody to send clients to while the next one restarts.
    let calm = input.expected().all(|(name, pod)| {
        plan.in_sync.contains(&name) && pod.is_some_and(|pod| pod.ready && !pod.terminating)
    });
    if !calm || !plan.commands.is_empty() {
        return;
    }
    if let Some(replica) = replicas().next() {
        return delete(replica, plan);
    }
    if !outdated(&master) {
        return;
    }
    if let Some(target) = successor(input, plan, |pod| !outdated(pod)) {
        hand_over(master, target, plan);
    } else if input.persistent || input.allow_data_loss {
        delete(master, plan);
    } else {
        plan.problem(
            "RestartWouldLoseData",
            format!(
                "{} is the only copy and has no volume: restarting it for the new spec would lose its data; \
                 to allow it, set the annotation {} to the object's generation",
                master.name,
                crate::names::ANNOTATION_ALLOW_DATA_LOSS
            ),
        );
    }
}

fn delete(pod: &PodView, plan: &mut Plan) {
    plan.operation = Some((OperationKind::Restart, pod.name.clone()));
    plan.delete = Some(pod.name.clone());
}

/// Takes the master out of service and lets `target` take over with everything the master has.
fn hand_over(master: &PodView, target: &PodView, plan: &mut Plan) {
    plan.operation = Some((OperationKind::Handover, target.name.clone()));
    plan.roles.insert(master.name.clone(), Role::Joining);
    if master.info().is_some_and(|info| info.role == InfoRole::Master && !info.failing_over) {
        // FAILOVER pauses writes until the replica has everything, or gives up after the timeout (redis.io/commands/failover).
        plan.commands.push(Command::addressed(
            master,
            &["FAILOVER", "TO"],
            target,
            &["TIMEOUT", "5000"],
        ));
    }
}
