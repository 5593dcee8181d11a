//! Conditions in a status, in the form of `metav1.Condition`.

use serde::{Deserialize, Serialize};

use crate::Time;

/// One condition of a status. The host fills in `lastTransitionTime` and `observedGeneration`:
/// leave them absent when you return one; they are present when you read your parent's status back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct Condition {
    /// `CamelCase`, unique in the list: `Ready`.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 316)))]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// `CamelCase`, for programs: why it has this status.
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 1024)))]
    pub reason: String,
    /// For people.
    #[serde(default)]
    #[cfg_attr(feature = "crd", schemars(length(max = 32768)))]
    pub message: String,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The generation of the object this was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// It cannot be told.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Condition {
    /// A condition as a plugin returns it. `status` is a [`ConditionStatus`] or a `bool`.
    pub fn new(
        type_: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            last_transition_time: None,
            observed_generation: None,
        }
    }
}
