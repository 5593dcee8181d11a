//! What a candidate would do, for `operator-host plugin plan`.

use std::time::Duration;

use host_core::divergence::PlanSummary;
use serde::{Deserialize, Serialize};

use crate::loaded_plugin::LoadedPlugin;

/// A candidate's plan beside what acts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// The plugin's name.
    pub plugin: String,
    /// Revision and bytes that act.
    pub active: String,
    /// Revision and bytes that would.
    pub candidate: String,
    /// How long the plan took, in milliseconds.
    pub took_ms: u64,
    /// Every difference.
    pub plan: PlanSummary,
}

impl PlanReport {
    pub(crate) fn new(
        plugin: &str,
        active: &LoadedPlugin,
        candidate: &LoadedPlugin,
        took: Duration,
        plan: PlanSummary,
    ) -> Self {
        let named = |one: &LoadedPlugin| format!("{} {}", one.revision, one.label());
        Self {
            plugin: plugin.to_owned(),
            active: named(active),
            candidate: named(candidate),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            plan,
        }
    }
}
