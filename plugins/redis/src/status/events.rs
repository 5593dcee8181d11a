//! Events: what happened since the previous status. Nothing is told twice, and nothing while it merely lasts.

use operator_host_sdk::Event;

use super::conditions::{became, find};
use super::report::Report;
use crate::api::{OperationKind, Status};
use crate::role::Role;

/// Names in one note; the rest is a number. 20 names of at most 63 bytes stay below the 1,024 of a note.
const NAMES_MAX: usize = 15;

/// What there is to tell.
pub(super) fn all(report: &Report<'_>, status: &Status) -> Vec<Event> {
    let mut events = Vec::new();
    events.extend(master(report, status));
    events.extend(operation(report, status));
    events.extend(attached(report, status));
    if became(report, status, "ClusterFormed", true) {
        events.push(Event::normal("ClusterFormed", "FormCluster", "all 16384 slots have an owner"));
    }
    if became(report, status, "Degraded", true)
        && let Some(problem) = report.plan.problems.first()
    {
        events.push(Event::warning(problem.reason, "Observe", cut(&problem.message)));
    }
    let was_degraded = find(report.previous, "Degraded").is_some();
    if was_degraded && became(report, status, "Degraded", false) {
        events.push(Event::normal("Recovered", "Observe", "nothing is missing any more"));
    }
    if let Some(refusal) = report.refusal {
        let told =
            find(report.previous, "SpecAccepted").is_some_and(|old| old.reason == refusal.reason);
        if !told {
            events.push(Event::warning(refusal.reason, "AcceptSpec", cut(&refusal.message)));
        }
    }
    events
}

/// A master was elected, or another one took over: told when it was observed.
fn master(report: &Report<'_>, status: &Status) -> Option<Event> {
    let master = status.master.as_ref()?;
    if report.plan.roles.get(master) != Some(&Role::Master) {
        return None;
    }
    match &report.previous.master {
        None => Some(Event::normal("MasterElected", "Elect", format!("{master} is the master"))),
        Some(old) if old != master => Some(Event::normal(
            "FailoverCompleted",
            "FailOver",
            format!("{master} took over from {old}"),
        )),
        Some(_) => None,
    }
}

fn operation(report: &Report<'_>, status: &Status) -> Option<Event> {
    let operation = status.operation.as_ref()?;
    if report.previous.operation.as_ref() == Some(operation) {
        return None;
    }
    let target = &operation.target;
    match operation.kind {
        // The first election of all is no failover.
        OperationKind::Election => report.previous.master.as_ref().map(|old| {
            Event::warning(
                "FailoverStarted",
                "FailOver",
                format!("{old} is no master any more; {target} becomes it"),
            )
        }),
        OperationKind::Handover => Some(Event::normal(
            "HandoverStarted",
            "HandOver",
            format!("{target} takes over as the master"),
        )),
        OperationKind::Takeover => Some(Event::warning(
            "TakeoverStarted",
            "TakeOver",
            format!("{target} takes over the slots of a lost master"),
        )),
        OperationKind::Restart => {
            Some(Event::normal("PodRestarted", "Restart", format!("{target} is restarted")))
        }
    }
}

fn attached(report: &Report<'_>, status: &Status) -> Option<Event> {
    let was_in_sync =
        |pod: &str| report.previous.nodes.iter().any(|node| node.pod == pod && node.in_sync);
    let new: Vec<&str> = status
        .nodes
        .iter()
        .filter(|node| {
            node.in_sync && node.role == Role::Replica.as_str() && !was_in_sync(&node.pod)
        })
        .map(|node| node.pod.as_str())
        .collect();
    let names = new.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = new.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!new.is_empty())
        .then(|| Event::normal("ReplicaAttached", "Attach", format!("in sync: {names}{more}")))
}

/// At most 1,000 bytes, at a character boundary.
fn cut(text: &str) -> String {
    let mut end = text.len().min(1_000);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
