//! What would change if another version of a plugin acted? Two versions propose, for the same parent and the same
//! moment; this compares what they would do.
//!
//! **Invariant:** what both would do alike is no difference, whatever it is: a shadow run in the middle of a
//! creation sees the same creation twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::diff;
use crate::guard::GuardedPlan;
use crate::ident::{ObjectId, ObjectKey};
use crate::limits;
use crate::object::StoredObject;
use crate::plan::{Apply, Step};
use crate::raw_decision::OnImmutable;
use crate::snapshot::{Action, Problem};
use crate::text;

/// What one version would do for one parent.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What it would write.
    pub plan: GuardedPlan,
    /// What it would tell.
    pub status: Option<Map<String, Value>>,
    /// What it would do besides.
    pub actions: Vec<Action>,
}

/// What would be done to an object.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Deleted.
    Delete,
    /// Deleted and created again, since a field cannot be changed.
    Recreate,
    /// Created.
    Create,
    /// Changed.
    Patch,
    /// An action through a provider.
    Act,
    /// The status alone.
    Status,
}

impl Verb {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Recreate => "recreate",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Act => "act",
            Self::Status => "status",
        }
    }
}

/// One thing that would be done otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What.
    pub verb: Verb,
    /// To which object: `StatefulSet n/a`. A provider's name for an action.
    pub object: String,
    /// Which fields, the first few: `.spec.replicas`. Never their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.verb == Verb::Status {
            return f.write_str("status");
        }
        write!(f, "{} {}", self.verb.as_str(), self.object)?;
        if !self.fields.is_empty() {
            write!(f, " ({})", self.fields.join(", "))?;
        }
        Ok(())
    }
}

/// What another version means for one parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Same,
    /// This; never empty.
    Changes(Vec<Change>),
    /// It cannot be reconciled any more.
    Fails(Problem),
}

/// Compares two versions' proposals. A version that cannot propose anything is an error with its reason.
/// `live` looks an object up in the cache; `recreated` are objects that an apply cannot change.
pub fn compare(
    active: &Result<Proposal, Problem>,
    candidate: &Result<Proposal, Problem>,
    live: impl Fn(&ObjectId) -> Option<std::sync::Arc<StoredObject>>,
    recreated: &BTreeSet<ObjectId>,
) -> Effect {
    let candidate = match candidate {
        Ok(candidate) => candidate,
        // The candidate is not to blame for what the active version cannot do either.
        Err(_) if active.is_err() => return Effect::Same,
        Err(problem) => return Effect::Fails(problem.clone()),
    };
    let active = active.as_ref().ok();
    let before: BTreeMap<&ObjectId, &Step> = active
        .into_iter()
        .flat_map(|active| active.plan.steps())
        .map(|step| (step.id(), step))
        .collect();
    let mut changes = Vec::new();
    for step in candidate.plan.steps() {
        let other = before.get(step.id()).copied();
        match step {
            Step::Apply(apply) if !is_same_apply(other, apply) => {
                changes.push(applied(apply, &live, recreated));
            }
            Step::Prune { id, .. } if !matches!(other, Some(Step::Prune { .. })) => {
                changes.push(change(Verb::Delete, id));
            }
            Step::Release { id, .. } if !matches!(other, Some(Step::Release { .. })) => {
                changes.push(change(Verb::Patch, id));
            }
            Step::Refuse { problem, .. } if !matches!(other, Some(Step::Refuse { .. })) => {
                return Effect::Fails(problem.clone());
            }
            Step::Keep(_)
            | Step::Apply(_)
            | Step::Prune { .. }
            | Step::Release { .. }
            | Step::Refuse { .. } => {}
        }
    }
    // A deletion that the guard would hold is one that the version wants.
    let held = active.map(|active| active.plan.held()).unwrap_or_default();
    let new = candidate.plan.held().iter().filter(|id| !held.contains(id));
    changes.extend(new.map(|id| change(Verb::Delete, id)));
    let acted = active.map(|active| active.actions.as_slice()).unwrap_or_default();
    for action in candidate.actions.iter().filter(|action| !acted.contains(action)) {
        // What provider `kubernetes` does is delete.
        let verb = if action.provider == "kubernetes" { Verb::Delete } else { Verb::Act };
        changes.push(Change { verb, object: action.provider.clone(), fields: Vec::new() });
    }
    if active.is_some_and(|active| active.status != candidate.status) {
        changes.push(Change { verb: Verb::Status, object: "status".to_owned(), fields: vec![] });
    }
    if changes.is_empty() { Effect::Same } else { Effect::Changes(changes) }
}

fn is_same_apply(other: Option<&Step>, apply: &Apply) -> bool {
    matches!(other, Some(Step::Apply(other)) if other.hash == apply.hash)
}

fn change(verb: Verb, id: &ObjectId) -> Change {
    Change { verb, object: id.to_string(), fields: Vec::new() }
}

fn applied(
    apply: &Apply,
    live: impl Fn(&ObjectId) -> Option<std::sync::Arc<StoredObject>>,
    recreated: &BTreeSet<ObjectId>,
) -> Change {
    if apply.live.is_none() {
        return change(Verb::Create, &apply.id);
    }
    let recreate = apply.on_immutable != OnImmutable::Report && recreated.contains(&apply.id);
    let verb = if recreate { Verb::Recreate } else { Verb::Patch };
    let live = live(&apply.id).and_then(|live| serde_json::from_str(&live.json).ok());
    let differences = live.map(|live| diff::differences(&apply.body, &live)).unwrap_or_default();
    let paths = differences.into_iter().map(|difference| difference.path);
    // The mark differs because something else does.
    let mut fields: Vec<_> =
        paths.filter(|path| !path.contains(text::ANNOTATION_APPLIED)).collect();
    fields.truncate(limits::PLAN_FIELDS);
    // Fields that are no longer set show in no comparison with what is live.
    if fields.is_empty() {
        fields.push("fields no longer set".to_owned());
    }
    Change { verb, object: apply.id.to_string(), fields }
}

/// What a candidate would do to one parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentDifference {
    /// Which parent: `namespace/name`.
    pub parent: String,
    /// What would be done otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Why it could not be reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// What a candidate would do to the whole fleet, in figures and with the first differences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanSummary {
    /// Parents it was run for.
    pub parents: u32,
    /// Nothing would change.
    pub same: u32,
    /// Something would change.
    pub changed: u32,
    /// They could not be reconciled.
    pub failed: u32,
    /// Objects created.
    pub creates: u32,
    /// Objects changed.
    pub patches: u32,
    /// Objects deleted.
    pub deletes: u32,
    /// Objects deleted and created again.
    pub recreates: u32,
    /// Actions through providers.
    pub actions: u32,
    /// Parents of which the status alone would change.
    pub status_only: u32,
    /// What is wrong with the version itself: it is not deterministic, or never content with what it wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsound: Option<String>,
    /// The first differences, failures and deletions before the rest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<ParentDifference>,
}

/// What a candidate would do to the whole fleet.
#[derive(Clone, Debug, Default)]
pub struct FleetPlan {
    effects: Vec<(ObjectKey, Effect)>,
    unsound: Option<String>,
}

impl FleetPlan {
    /// From what it means for each parent. `unsound`: what is wrong with the version itself.
    pub fn new(mut effects: Vec<(ObjectKey, Effect)>, unsound: Option<String>) -> Self {
        let rank = |effect: &Effect| match effect {
            Effect::Fails(_) => 0,
            Effect::Changes(changes) if changes.iter().any(is_destructive) => 1,
            Effect::Changes(_) => 2,
            Effect::Same => 3,
        };
        effects.sort_by(|(one, a), (other, b)| (rank(a), one).cmp(&(rank(b), other)));
        Self { effects, unsound }
    }

    /// In figures, with at most so many differences.
    pub fn summary(&self, differences: usize) -> PlanSummary {
        let mut summary = PlanSummary { unsound: self.unsound.clone(), ..PlanSummary::default() };
        for (_, effect) in &self.effects {
            count(&mut summary, effect);
        }
        let different = self.effects.iter().filter(|(_, effect)| *effect != Effect::Same);
        summary.differences = different
            .take(differences)
            .map(|(parent, effect)| {
                let (changes, failure) = match effect {
                    Effect::Same => (Vec::new(), None),
                    Effect::Changes(changes) => (changes.clone(), None),
                    Effect::Fails(problem) => {
                        (Vec::new(), Some(format!("{}: {}", problem.reason, problem.message)))
                    }
                };
                ParentDifference { parent: parent.to_string(), changes, failure }
            })
            .collect();
        summary
    }
}

fn is_destructive(change: &Change) -> bool {
    matches!(change.verb, Verb::Delete | Verb::Recreate)
}

fn count(summary: &mut PlanSummary, effect: &Effect) {
    let add = |figure: &mut u32| *figure = figure.saturating_add(1);
    add(&mut summary.parents);
    match effect {
        Effect::Same => add(&mut summary.same),
        Effect::Fails(_) => add(&mut summary.failed),
        Effect::Changes(changes) => {
            add(&mut summary.changed);
            if changes.iter().all(|change| change.verb == Verb::Status) {
                add(&mut summary.status_only);
            }
            for change in changes {
                match change.verb {
                    Verb::Create => add(&mut summary.creates),
                    Verb::Patch => add(&mut summary.patches),
                    Verb::Delete => add(&mut summary.deletes),
                    Verb::Recreate => add(&mut summary.recreates),
                    Verb::Act => add(&mut summary.actions),
                    Verb::Status => {}
                }
            }
        }
    }
}

impl PlanSummary {
    /// Whether something would be deleted, for good or for a moment.
    pub fn is_destructive(&self) -> bool {
        self.deletes + self.recreates > 0
    }

    /// In one word, for a column: the worst of what it says.
    pub fn verdict(&self) -> &'static str {
        if self.unsound.is_some() {
            "Unsound"
        } else if self.failed > 0 {
            "Fails"
        } else if self.is_destructive() {
            "Deletes"
        } else if self.changed > 0 {
            "Changes"
        } else {
            "Same"
        }
    }
}

impl fmt::Display for PlanSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} parents: {} same, {} changed", self.parents, self.same, self.changed)?;
        if self.status_only > 0 {
            write!(f, " ({} in their status alone)", self.status_only)?;
        }
        write!(f, ", {} failing", self.failed)?;
        let parts = [
            (self.creates, "creates"),
            (self.patches, "patches"),
            (self.deletes, "deletes"),
            (self.recreates, "recreates"),
            (self.actions, "actions"),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !parts.is_empty() {
            write!(f, "; {}", parts.join(", "))?;
        }
        if let Some(unsound) = &self.unsound {
            write!(f, "; {unsound}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "divergence_tests.rs"]
mod tests;
