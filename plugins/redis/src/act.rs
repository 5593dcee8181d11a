//! From a plan to the contract's words: stage *act*.
//!
//! **Invariant:** labels that take somebody out of service are applied before anything else and labels that put
//! somebody into service after them (corpus B43); commands come after all objects.

use operator_host_sdk::{Action, Decision, Desired, Outcome, Stop};
use serde_json::{Value, json};

use crate::api::Spec;
use crate::current::{Life, PodView};
use crate::names::LABEL_ROLE;
use crate::plan::{Command, Input, Plan, Word};
use crate::provider::{PROVIDER, request};
use crate::role::Role;

/// Commands were sent: look at once whether they worked.
const ACTING_MS: u32 = 200;
/// Something is on its way: replicas catch up, a pod has just started, doubt is being resolved.
const WAITING_MS: u32 = 1_000;
/// Pods are being created.
const CREATING_MS: u32 = 5_000;
/// A repair failed, or something needs a person.
const FAILED_MS: u32 = 30_000;
/// Nothing to do.
const STEADY_MS: u32 = 60_000;
/// A container that started this many seconds ago may still be about to listen.
const STARTING_SECS_MAX: i64 = 60;

/// Objects and actions of a decision.
pub fn carry_over(
    input: &Input<'_>,
    plan: &Plan,
    spec: &Spec,
    objects: Vec<Value>,
) -> Result<Decision, Stop> {
    let mut decision = Decision::new();
    let mut labels: Vec<(&PodView, Role)> =
        input.pods.iter().filter_map(|pod| Some((pod, *plan.roles.get(&pod.name)?))).collect();
    // Joining, then replicas, then masters.
    labels.sort_unstable_by_key(|(pod, role)| (*role, pod.ordinal));
    for (pod, role) in labels {
        decision = decision.object(Desired::partial(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.name, "labels": {LABEL_ROLE: role.as_str()}},
        }))?);
    }
    for object in objects {
        decision = decision.object(Desired::owned(&object)?);
    }
    for command in &plan.commands {
        if let Some(pod) = input.pod(&command.pod) {
            decision = decision
                .action(Action::new(PROVIDER, &request(pod, spec, &json!([words(command)])))?);
        }
    }
    if let Some(pod) = plan.delete.as_deref().and_then(|name| input.pod(name)) {
        let delete = json!({"delete": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}});
        decision = decision.action(Action::new("kubernetes", &delete)?);
    }
    Ok(decision)
}

fn words(command: &Command) -> Vec<Value> {
    command
        .words
        .iter()
        .map(|word| match word {
            Word::Text(text) => json!(text),
            Word::IpOf(pod) => json!({"podIp": pod}),
        })
        .collect()
}

/// When to look again, if nothing wakes us earlier.
pub fn requeue_after_ms(
    input: &Input<'_>,
    plan: &Plan,
    decision: &Decision,
    previous: Option<&Outcome>,
) -> u32 {
    if !decision.actions.is_empty() {
        return after_actions(plan, decision, previous);
    }
    let starting = |pod: &PodView| {
        pod.started_at.is_some_and(|started| input.now.secs_since(started) < STARTING_SECS_MAX)
    };
    let catching_up = input.pods.iter().any(|pod| {
        let behind = pod.redis().is_some() && !plan.in_sync.contains(&pod.name);
        pod.loading()
            || behind
            || (pod.life == Life::Running && pod.redis().is_none() && starting(pod))
    });
    let missing = input.live_replicas != Some(plan.replicas)
        || input.expected().any(|(_, pod)| pod.is_none_or(|pod| pod.redis().is_none()));
    // A handover under way is nothing that a pod's change would tell about.
    if plan.suspect.is_some() || plan.operation.is_some() {
        WAITING_MS
    } else if plan
        .problems
        .iter()
        .any(|problem| problem.reason == "EmptyMaster" || problem.reason == "ForeignNode")
    {
        FAILED_MS
    } else if catching_up {
        WAITING_MS
    } else if missing {
        CREATING_MS
    } else {
        STEADY_MS
    }
}

fn after_actions(plan: &Plan, decision: &Decision, previous: Option<&Outcome>) -> u32 {
    let before = previous.map(|outcome| outcome.actions.as_slice()).unwrap_or_default();
    let failed = before.iter().any(|outcome| outcome.result.is_err());
    let repeated = before.first().map(|outcome| &outcome.action) == decision.actions.first();
    let without_master = plan.problems.iter().any(|problem| problem.reason == "NoMaster");
    match (failed && repeated, repeated) {
        (true, _) if without_master => CREATING_MS,
        (true, _) => FAILED_MS,
        (false, true) => WAITING_MS,
        (false, false) => ACTING_MS,
    }
}
