//! Conditions. The host adds times and generations, and its own `Reconciled`.

use operator_host_sdk::{Condition, ConditionStatus};

use super::report::Report;
use crate::api::{Phase, Status};
use crate::nodes::SLOTS;

/// Masters a Redis Cluster needs to elect a replacement for one of them (facts 0.1).
const VOTERS_MIN: u32 = 3;

/// All conditions, in a fixed order.
pub(super) fn all(report: &Report<'_>, status: &Status, phase: Phase) -> Vec<Condition> {
    let mut conditions =
        vec![ready(report, status), progressing(report, phase), degraded(report, phase)];
    conditions.push(match report.refusal {
        Some(refusal) => {
            Condition::new("SpecAccepted", false, refusal.reason, refusal.message.clone())
        }
        None if report.paused => {
            Condition::new("SpecAccepted", true, "Paused", "changes wait while spec.paused is set")
        }
        None => Condition::new("SpecAccepted", true, "Accepted", "the spec is carried out"),
    });
    if report.spec.cluster_mode {
        conditions.extend(cluster(report, status));
    }
    conditions
}

fn ready(report: &Report<'_>, status: &Status) -> Condition {
    let total = report.spec.replicas;
    let serving = format!("{} of {total} pods serve", status.ready_replicas);
    match report.plan.problems.first() {
        None if status.ready_replicas == total => {
            Condition::new("Ready", true, "AllPodsServe", serving)
        }
        None => Condition::new("Ready", false, "PodsJoining", serving),
        Some(problem) => Condition::new("Ready", false, problem.reason, serving),
    }
}

fn progressing(report: &Report<'_>, phase: Phase) -> Condition {
    let (progressing, reason) = match phase {
        Phase::Creating => (true, "Creating"),
        Phase::Scaling => (true, "Scaling"),
        Phase::Updating => (true, "Updating"),
        Phase::Degraded => (!report.plan.commands.is_empty(), "Repairing"),
        Phase::Ready => (false, "Settled"),
        Phase::Paused => (false, "Paused"),
        Phase::Failed => (false, "Failed"),
    };
    let message = match &report.plan.operation {
        Some((kind, target)) => format!("{kind:?} of {target}"),
        None => String::new(),
    };
    Condition::new("Progressing", progressing, reason, message)
}

fn degraded(report: &Report<'_>, phase: Phase) -> Condition {
    let problems = &report.plan.problems;
    let message: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    // 20 problems of at most a few hundred bytes: what a person reads, far below the 32 KiB of the API.
    let message = message.into_iter().take(20).collect::<Vec<_>>().join("; ");
    match problems.first() {
        // What never worked is not degraded, it is being created.
        Some(problem) if phase != Phase::Creating => {
            Condition::new("Degraded", true, problem.reason, message)
        }
        _ => Condition::new("Degraded", false, "NothingMissing", message),
    }
}

fn cluster(report: &Report<'_>, status: &Status) -> Vec<Condition> {
    let assigned = status.slots_assigned.unwrap_or(0);
    let complete = assigned == u32::from(SLOTS);
    let formed = complete || is_true(report.previous, "ClusterFormed");
    let formed_reason = if formed { "Formed" } else { "Forming" };
    let mut conditions = vec![
        Condition::new(
            "ClusterFormed",
            formed,
            formed_reason,
            "whether all slots were given out once",
        ),
        Condition::new(
            "SlotsAssigned",
            complete,
            if complete { "AllAssigned" } else { "SlotsMissing" },
            format!("{assigned} of {SLOTS} slots have an owner"),
        ),
    ];
    if report.spec.shards() < VOTERS_MIN {
        conditions.push(Condition::new(
            "LimitedFailover",
            true,
            "TooFewMasters",
            "with fewer than 3 masters Redis cannot elect a replacement; the operator takes over when one is lost",
        ));
    }
    conditions
}

/// Whether a condition has become true or false with this status.
pub(super) fn became(report: &Report<'_>, status: &Status, condition: &str, holds: bool) -> bool {
    let after = find(status, condition).is_some() && is_true(status, condition) == holds;
    let before = find(report.previous, condition).map(|_| is_true(report.previous, condition));
    after && before != Some(holds)
}

/// Whether a status has a condition that is true.
pub(super) fn is_true(status: &Status, condition: &str) -> bool {
    find(status, condition).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// A condition of a status.
pub(super) fn find<'a>(status: &'a Status, condition: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|other| other.type_ == condition)
}
