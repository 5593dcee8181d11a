//! A decision as it came out of a plugin: words, not yet deeds.
//!
//! **Invariant:** data only. Nothing of it is checked, objects, status and requests are still text; nothing acts on
//! it before it is validated.

use serde::{Deserialize, Serialize};

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ownership {
    /// The parent's.
    Owned,
    /// Somebody else's; only some fields are set.
    Partial,
}

/// What to do when a field turns out to be immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnImmutable {
    /// Leave it and say so.
    Report,
    /// Delete with dependents, create again.
    Recreate,
    /// Delete without dependents, create again.
    RecreateOrphan,
}

/// A desired object as it came out of the plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawObject {
    /// Whose it is.
    pub ownership: Ownership,
    /// What to do on an immutable field.
    pub on_immutable: OnImmutable,
    /// The apply configuration, JSON.
    pub body: String,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// Something went as it should.
    Normal,
    /// Somebody should look.
    Warning,
}

impl EventKind {
    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event about the parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Severity.
    pub kind: EventKind,
    /// `CamelCase`.
    pub reason: String,
    /// `CamelCase`.
    pub action: String,
    /// For people.
    pub note: String,
}

/// Something to do that is not an apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// `kubernetes` or a provider.
    pub provider: String,
    /// Its request, JSON.
    pub request: String,
}

/// A decision as it came out of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawDecision {
    /// The complete list, in apply order.
    pub objects: Vec<RawObject>,
    /// The status, JSON.
    pub status: Option<String>,
    /// What happened.
    pub events: Vec<Event>,
    /// What to do after the objects.
    pub actions: Vec<Action>,
    /// When to call again.
    pub requeue_after_ms: Option<u32>,
    /// Deletion is done.
    pub finished: bool,
}
