//! What a plugin gets to see (stage *observe*), and what it may answer (stage *decide*).
//!
//! A plugin is a pure function that may ask before it answers (ADR 0001).
//! These are the host's own types for the contract; `wit/v1/plugin.wit` documents each field,
//! and `host-wasm` converts between the two.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ident::{Kind, ObjectId};
use crate::object::{MalformedObject, StoredObject};
use crate::raw_decision::RawDecision;

pub use crate::raw_decision::Action;

/// What a plugin says about itself, as it came out of the plugin: not yet checked, not yet granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Stable identity.
    pub name: String,
    /// For people.
    pub version: String,
    /// The kind that is reconciled.
    pub parent: Kind,
    /// Kinds returned as owned objects.
    pub owns: Vec<Kind>,
    /// Kinds that may be queried.
    pub reads: Vec<Kind>,
    /// Kinds on which some fields are set.
    pub patches: Vec<Kind>,
    /// Providers probed or acted through.
    pub providers: Vec<String>,
    /// Whether parents get a finalizer and deletion is a reconcile.
    pub finalizer: bool,
    /// Free-form.
    pub hints: Vec<(String, String)>,
}

/// One observed object: shared with the cache, never copied. Recorded, it is its kind and its text, byte for byte.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "RecordedObject", into = "RecordedObject")]
pub struct Observed {
    /// Its kind.
    pub kind: Arc<Kind>,
    /// Key, metadata and JSON.
    pub object: Arc<StoredObject>,
}

/// How an [`Observed`] is recorded.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RecordedObject {
    kind: Kind,
    /// The whole object.
    json: String,
}

impl From<Observed> for RecordedObject {
    fn from(observed: Observed) -> Self {
        Self { kind: Kind::clone(&observed.kind), json: observed.object.json.to_string() }
    }
}

impl TryFrom<RecordedObject> for Observed {
    type Error = MalformedObject;

    fn try_from(recorded: RecordedObject) -> Result<Self, Self::Error> {
        let object = Arc::new(StoredObject::parse(&recorded.kind, &recorded.json)?);
        Ok(Self { kind: Arc::new(recorded.kind), object })
    }
}

/// Asks for objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectQuery {
    /// Of which kind.
    pub kind: Kind,
    /// None: the parent's namespace.
    pub namespace: Option<String>,
    /// None: any.
    pub name: Option<String>,
    /// Kubernetes label-selector syntax. None: any.
    pub label_selector: Option<String>,
}

/// Asks a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeQuery {
    /// Which provider.
    pub provider: String,
    /// Its request, JSON.
    pub request: String,
}

/// One question of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Query {
    /// About Kubernetes objects.
    Objects(ObjectQuery),
    /// About the world outside.
    Probe(ProbeQuery),
}

/// The answer to one question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// In canonical order.
    Objects(Vec<Observed>),
    /// The provider's reply, JSON.
    Probe(String),
}

/// A question with its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What was asked.
    pub query: Query,
    /// What was found.
    pub reply: Reply,
}

/// Why something was not done. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `CamelCase`, for programs.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What became of one desired object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ObjectResult {
    /// Nothing was sent.
    Unchanged,
    /// Created or changed.
    Applied,
    /// Deleted.
    Deleted,
    /// Not written.
    Failed(Problem),
}

/// One object with what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectOutcome {
    /// Which object.
    pub id: ObjectId,
    /// What became of it.
    pub result: ObjectResult,
}

/// One action with what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionOutcome {
    /// What was asked for.
    pub action: Action,
    /// The provider's reply, JSON, or why there is none.
    pub result: Result<String, Problem>,
}

/// What became of one decision: the last hand-over, and part of the next snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// In the order of the plan.
    pub objects: Vec<ObjectOutcome>,
    /// In the order of the decision, up to the first failure.
    pub actions: Vec<ActionOutcome>,
}

impl Outcome {
    /// The first thing that failed, if any.
    pub fn first_problem(&self) -> Option<(String, &Problem)> {
        let object = self.objects.iter().find_map(|outcome| match &outcome.result {
            ObjectResult::Failed(problem) => Some((outcome.id.to_string(), problem)),
            ObjectResult::Unchanged | ObjectResult::Applied | ObjectResult::Deleted => None,
        });
        object.or_else(|| {
            self.actions.iter().find_map(|outcome| match &outcome.result {
                Err(problem) => Some((format!("{} action", outcome.action.provider), problem)),
                Ok(_) => None,
            })
        })
    }
}

/// Everything a decision may depend on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// RFC 3339, UTC, whole seconds.
    pub now: String,
    /// The parent.
    pub parent: Observed,
    /// Owned objects in canonical order: api-version, kind, namespace, name.
    pub children: Vec<Observed>,
    /// Answers so far, in the order asked.
    pub answers: Vec<Answer>,
    /// What became of the last decision.
    pub previous: Option<Arc<Outcome>>,
    /// The plugin's configuration, sorted.
    pub config: Vec<(String, String)>,
}

/// How a plugin's call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It needs to know more.
    Ask(Vec<Query>),
    /// It has decided; still to be validated.
    Decide(RawDecision),
}

/// Whether another try can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Yes.
    Transient,
    /// Not before something changes.
    Terminal,
}

/// No decision was possible, says the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether to retry soon.
    pub kind: FailureKind,
    /// `CamelCase`.
    pub reason: String,
    /// For people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_recorded_byte_for_byte() {
        let kind = Kind::new("v1", "Pod");
        let raw = r#"{"metadata":{"name":"a","uid":"u"},"spec":{"z":1.0,"a":"\u00e4"}}"#;
        let object = Arc::new(StoredObject::parse(&kind, raw).unwrap());
        let observed = Observed { kind: Arc::new(kind), object };
        let text = serde_json::to_string(&observed).unwrap();
        let back: Observed = serde_json::from_str(&text).unwrap();
        assert_eq!(back.object, observed.object);
        assert_eq!(back.object.json, observed.object.json);
    }
}
