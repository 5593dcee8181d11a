//! May a new revision act? And may one that acts go on? Pure: the host brings the facts and carries out the answer.
//!
//! **Invariant:** a revision that was taken back does not act again before somebody approves it by name.
//! **Invariant:** a revision that wants more power than the one that acts needs consent, under every policy but
//! [`Policy::Always`].

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::divergence::PlanSummary;
use crate::ident::{Digest, ObjectKey};
use crate::limits;

/// When a new revision acts by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Policy {
    /// As soon as it is loaded.
    Always,
    /// When running it beside the active one has shown no failure, nothing deleted, and not too many changes.
    #[default]
    Safe,
    /// When somebody has approved it.
    Manual,
}

/// How a new revision comes to act.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutSpec {
    /// When it acts by itself. Default Safe.
    pub policy: Policy,
    /// Under Safe: the share of parents, in percent and rounded up, for which it may act otherwise than the active
    /// revision, in more than their status. Default 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub max_changed_percent: Option<u8>,
    /// Some parents first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanarySpec>,
    /// For how long a fault takes a revision back, in seconds from when it began to act. Default 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400))]
    pub probation_seconds: Option<u32>,
}

/// Which parents get a new revision first, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.percent) != has(self.selector)",
    "message": "a canary needs either percent or selector",
}]))]
pub struct CanarySpec {
    /// A share of all parents, chosen by a hash of namespace and name: always the same ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub percent: Option<u8>,
    /// Parents with these labels, as kubectl takes a selector: `tier=test`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub selector: Option<String>,
    /// How long it acts for them alone, in seconds. Default 300.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400))]
    pub bake_seconds: Option<u32>,
}

impl RolloutSpec {
    /// For how long a fault takes a revision back.
    pub fn probation(&self) -> Duration {
        Duration::from_secs(self.probation_seconds.unwrap_or(600).into())
    }

    fn changes_allowed(&self, parents: u32) -> u32 {
        let percent = u64::from(self.max_changed_percent.unwrap_or(50).min(100));
        let allowed = (u64::from(parents) * percent).div_ceil(100);
        u32::try_from(allowed).unwrap_or(u32::MAX)
    }
}

impl CanarySpec {
    /// How long it bakes.
    pub fn bake(&self) -> Duration {
        Duration::from_secs(self.bake_seconds.unwrap_or(300).into())
    }
}

/// Whether a parent is among the first `percent` of all.
pub fn is_in_share(parent: &ObjectKey, percent: u8) -> bool {
    let [high, low, ..] = Digest::of(parent.to_string().as_bytes()).head();
    u32::from(u16::from_be_bytes([high, low])) * 100 < u32::from(percent) * 0x1_0000
}

/// How far a canary has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// It has not begun.
    NotYet,
    /// It acts for its parents, and has to go on for so long.
    Baking(Duration),
    /// It has acted for them long enough.
    Baked,
}

/// What is known about a candidate that is loaded.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// What the user wants.
    pub spec: &'a RolloutSpec,
    /// Whether there is an active revision.
    pub replaces: bool,
    /// Somebody has approved this revision, or asked for it by name.
    pub approved: bool,
    /// Nothing new is to act.
    pub paused: bool,
    /// Why it was taken back once, if it was.
    pub quarantined: Option<&'a str>,
    /// Powers that it has and the active revision has not.
    pub added_powers: &'a [String],
    /// What it would do; None without an active revision to compare it with.
    pub plan: Option<&'a PlanSummary>,
    /// How far its canary has come.
    pub canary: Canary,
}

/// What happens to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It acts for every parent.
    Promote,
    /// It acts for some parents.
    Canary,
    /// It goes on acting for some parents for so long.
    Bake(Duration),
    /// It waits for somebody.
    Hold {
        /// `CamelCase`.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

/// Decides about a loaded candidate.
pub fn judge(facts: &Facts<'_>) -> Next {
    if let Some((reason, message)) = objection(facts) {
        return Next::Hold { reason, message };
    }
    match (&facts.spec.canary, facts.canary) {
        // Nobody could act in place of a first revision.
        (Some(_), Canary::NotYet) if facts.replaces => Next::Canary,
        (Some(_), Canary::Baking(rest)) => Next::Bake(rest),
        (Some(_) | None, Canary::NotYet | Canary::Baking(_) | Canary::Baked) => Next::Promote,
    }
}

/// Why a revision that was taken back is held.
pub const QUARANTINED: &str = "Quarantined";

fn objection(facts: &Facts<'_>) -> Option<(&'static str, String)> {
    if facts.paused {
        return Some(("Paused", "the Plugin is paused: resume it to go on".to_owned()));
    }
    if facts.approved {
        return None;
    }
    if let Some(why) = facts.quarantined {
        return Some((QUARANTINED, format!("it was taken back before: {why}")));
    }
    match facts.spec.policy {
        Policy::Always => None,
        Policy::Manual => {
            let plan = facts.plan.map(ToString::to_string);
            let plan = plan.unwrap_or_else(|| "nothing to compare it with".to_owned());
            Some(("ApprovalNeeded", format!("the policy is Manual; {plan}")))
        }
        Policy::Safe => unsafe_because(facts),
    }
}

fn unsafe_because(facts: &Facts<'_>) -> Option<(&'static str, String)> {
    if facts.replaces && !facts.added_powers.is_empty() {
        let message = format!("it may do more: {}", facts.added_powers.join(", "));
        return Some(("MorePowers", message));
    }
    let plan = facts.plan?;
    if plan.unsound.is_some() {
        return Some(("Unsound", plan.to_string()));
    }
    if plan.failed > 0 {
        return Some(("ParentsFail", plan.to_string()));
    }
    if plan.is_destructive() {
        return Some(("Deletes", plan.to_string()));
    }
    let changed = plan.changed - plan.status_only;
    let allowed = facts.spec.changes_allowed(plan.parents);
    if changed > allowed {
        let message = format!("{changed} parents would change, {allowed} may; {plan}");
        return Some(("TooManyChanges", message));
    }
    None
}

/// How the runs of a revision have gone, apart from faults that are its own for sure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// All of them.
    pub total: u64,
    /// Those that did not go through.
    pub failed: u64,
}

impl Runs {
    /// Counts one.
    pub fn count(&mut self, failed: bool) {
        self.total = self.total.saturating_add(1);
        self.failed = self.failed.saturating_add(failed.into());
    }

    fn percent(&self) -> u64 {
        (self.failed.saturating_mul(100)).checked_div(self.total).unwrap_or(0)
    }

    /// Whether these go clearly worse than those of the revision before. Few runs prove nothing, on either side: after
    /// a restart nothing is known of the revision before.
    pub fn is_worse_than(&self, before: &Self) -> bool {
        self.total.min(before.total) >= limits::PROBATION_RUNS_MIN
            && self.percent() > before.percent() + limits::PROBATION_PERCENT
    }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
