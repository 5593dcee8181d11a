//! What users see: stage *status*. A function of what was observed and planned; no clock of its own.
//!
//! **Invariant:** nothing in a status changes while nothing happens: no offsets, no counters, no times of last contact.
//! **Invariant:** it is computed in full from observation; the previous one only keeps times and tells what is new.

mod conditions;
mod events;
mod report;

pub use report::Report;

use operator_host_sdk::{Condition, Event, Time};

use crate::admit::Refusal;
use crate::api::{NodeStatus, Operation, Phase, Status, Suspect};
use crate::names;
use crate::ordered;
use crate::plan::{Input, Memory, Plan};
use crate::role::Role;
use conditions::is_true;

/// What a status says, in the terms in which a plan remembers.
pub fn memory(status: &Status) -> Memory {
    let nodes = || status.nodes.iter();
    Memory {
        master: status.master.clone(),
        in_sync: ordered::set(nodes().filter(|node| node.in_sync).map(|node| node.pod.clone())),
        formed: is_true(status, "ClusterFormed"),
        node_ids: ordered::map(
            nodes().filter_map(|node| Some((node.pod.clone(), node.node_id.clone()?))),
        ),
        operation: status.operation.clone(),
        suspect: status.suspect.clone(),
    }
}

/// The status, and what there is to tell.
pub fn status(report: &Report<'_>) -> (Status, Vec<Event>) {
    let Report { input, plan, spec, previous, .. } = *report;
    let nodes = nodes(report);
    let ready = count(nodes.iter().filter(|node| is_serving(input, plan, &node.pod)).count());
    let mut status = Status {
        observed_generation: None,
        phase: None,
        replicas: count(input.pods.len()),
        ready_replicas: ready,
        total_replicas: spec.replicas,
        selector: names::selector_text(input.cluster),
        master: if spec.cluster_mode { None } else { plan.master.clone() },
        shards: plan.shards.map(|(shards, _)| shards),
        slots_assigned: plan.shards.map(|(_, slots)| slots),
        version: lowest_version(input).or_else(|| previous.version.clone()),
        nodes,
        operation: plan.operation.as_ref().map(|(kind, target)| {
            let same = previous
                .operation
                .as_ref()
                .filter(|old| old.kind == *kind && old.target == *target);
            let started_at = same.map_or(input.now, |old| old.started_at);
            Operation { kind: *kind, target: target.clone(), started_at }
        }),
        suspect: plan.suspect.as_ref().map(|subject| Suspect {
            subject: subject.clone(),
            since: since(previous, subject).unwrap_or(input.now),
        }),
        conditions: Vec::new(),
    };
    let phase = phase(report, &status);
    status.phase = Some(phase);
    status.conditions = conditions::all(report, &status, phase);
    let events = events::all(report, &status);
    (status, events)
}

/// The status of a RedisCluster of which nothing exists, because its spec was never accepted.
pub fn unaccepted(refusal: Option<&Refusal>, total: u32) -> Status {
    let (phase, reason, message) = match refusal {
        Some(refusal) => (Phase::Failed, refusal.reason, refusal.message.clone()),
        None => {
            (Phase::Paused, "Paused", "spec.paused was set before anything was created".to_owned())
        }
    };
    Status {
        phase: Some(phase),
        total_replicas: total,
        conditions: vec![
            Condition::new("Ready", false, reason, message.clone()),
            Condition::new("SpecAccepted", refusal.is_none(), reason, message),
        ],
        ..Status::default()
    }
}

fn since(previous: &Status, subject: &str) -> Option<Time> {
    previous.suspect.as_ref().filter(|old| old.subject == subject).map(|old| old.since)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Whether a pod answered in this run and has everything it should have.
fn is_serving(input: &Input<'_>, plan: &Plan, pod: &str) -> bool {
    plan.in_sync.contains(pod)
        && plan.roles.get(pod).is_some_and(|role| *role != Role::Joining)
        && input.pod(pod).is_some_and(|pod| pod.redis().is_some())
}

/// Every pod that exists or should: what is remembered of one that is away must not be forgotten.
fn nodes(report: &Report<'_>) -> Vec<NodeStatus> {
    let Report { input, plan, .. } = *report;
    let absent = input.expected().filter(|(_, pod)| pod.is_none()).map(|(name, _)| name);
    let mut names: Vec<String> =
        input.pods.iter().map(|pod| pod.name.clone()).chain(absent).collect();
    names.sort_unstable_by_key(|name| names::ordinal(input.cluster, name));
    names
        .into_iter()
        .map(|name| NodeStatus {
            role: plan.roles.get(&name).unwrap_or(&Role::Joining).as_str().to_owned(),
            state: plan.states.get(&name).copied().unwrap_or("Absent").to_owned(),
            ip: input.pod(&name).map(|pod| pod.ip.clone()).filter(|ip| !ip.is_empty()),
            node_id: plan.node_ids.get(&name).cloned(),
            in_sync: plan.in_sync.contains(&name),
            pod: name,
        })
        .collect()
}

fn lowest_version(input: &Input<'_>) -> Option<String> {
    let parts = |version: &str| -> Vec<u32> {
        version.split('.').map_while(|part| part.parse().ok()).collect()
    };
    let versions = input.pods.iter().filter_map(|pod| pod.info()).map(|info| info.version.clone());
    versions.filter(|version| !version.is_empty()).min_by_key(|version| parts(version))
}

fn phase(report: &Report<'_>, status: &Status) -> Phase {
    let Report { input, plan, spec, previous, .. } = *report;
    let complete = status.ready_replicas == spec.replicas && plan.problems.is_empty();
    let starting = matches!(previous.phase, None | Some(Phase::Creating | Phase::Failed));
    if report.paused {
        Phase::Paused
    } else if complete && input.live_replicas == Some(spec.replicas) && !is_outdated(input) {
        Phase::Ready
    } else if starting {
        Phase::Creating
    } else if plan.replicas != spec.replicas
        || input.live_replicas.is_some_and(|live| live != spec.replicas)
        || is_still(report, Phase::Scaling)
    {
        Phase::Scaling
    } else if is_outdated(input) || is_still(report, Phase::Updating) {
        Phase::Updating
    } else {
        Phase::Degraded
    }
}

/// The last pods of a change are still on their way.
fn is_still(report: &Report<'_>, phase: Phase) -> bool {
    report.previous.phase == Some(phase) && report.plan.master.is_some()
}

fn is_outdated(input: &Input<'_>) -> bool {
    input.update_revision.is_some_and(|wanted| {
        input
            .pods
            .iter()
            .any(|pod| pod.revision.as_deref().is_some_and(|revision| revision != wanted))
    })
}
