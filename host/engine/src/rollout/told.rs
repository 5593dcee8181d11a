//! How far a rollout is, in words and conditions.

use std::sync::Arc;
use std::time::Duration;

use host_core::divergence::PlanSummary;
use host_core::limits::{CONDITION_MESSAGE_BYTES_MAX, cut};
use host_core::plugin::{CandidateStatus, Stage};
use host_core::text;
use serde_json::{Value, json};

use super::load_error::LoadError;
use super::source::Source;
use crate::error::chain;
use crate::loaded_plugin::LoadedPlugin;

/// How far a rollout is, to be told. By default: the newest revision acts.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// The revision that does not act, or not everywhere. None: the newest one acts.
    pub(super) candidate: Option<CandidateStatus>,
    error: Option<Arc<LoadError>>,
    /// For people.
    pub(super) message: String,
    /// When to look again even if nothing changes.
    pub(super) again: Option<Duration>,
}

impl Told {
    /// There is no source any more.
    pub(super) fn gone(plugin: &str) -> Self {
        let message = format!(
            "there is no ConfigMap with the label {}={}; what was active keeps running",
            text::LABEL_PLUGIN,
            plugin
        );
        Self::bare(Stage::Refused, "SourceMissing", message)
    }

    /// Nothing has come from the registry yet.
    pub(super) fn pulling(error: &LoadError) -> Self {
        Self::bare(Stage::Loading, error.reason(), error.to_string())
    }

    /// Its `Plugin` was made and is not seen yet.
    pub(super) fn appearing() -> Self {
        Self::bare(Stage::Loading, "Loading", "its Plugin appears".to_owned())
    }

    fn bare(stage: Stage, reason: &str, message: String) -> Self {
        let candidate = CandidateStatus {
            revision: None,
            digest: String::new(),
            version: String::new(),
            stage,
            reason: reason.to_owned(),
            message: cut(&message, CONDITION_MESSAGE_BYTES_MAX),
        };
        Self { candidate: Some(candidate), message, ..Self::default() }
    }

    /// A candidate at some stage.
    pub(super) fn stage(
        source: &Source,
        version: &str,
        stage: Stage,
        reason: &str,
        message: &str,
    ) -> Self {
        let mut told = Self::bare(stage, reason, message.to_owned());
        if let Some(candidate) = &mut told.candidate {
            candidate.revision = Some(source.revision);
            candidate.digest = source.digest();
            version.clone_into(&mut candidate.version);
        }
        told
    }

    /// A candidate that cannot run.
    pub(super) fn refused(source: Option<&Arc<Source>>, error: &Arc<LoadError>) -> Self {
        let message = format!("{}; what was active keeps running", chain(&**error));
        let told = match source {
            Some(source) => Self::stage(source, "", Stage::Refused, error.reason(), &message),
            None => Self::bare(Stage::Refused, error.reason(), message),
        };
        Self { error: Some(Arc::clone(error)), ..told }
    }

    /// To be looked at again after a while.
    pub(super) fn again_after(self, delay: Option<Duration>) -> Self {
        Self { again: delay, ..self }
    }

    pub(super) fn is_at(&self, stage: Stage) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| candidate.stage == stage)
    }

    pub(super) fn conditions(
        &self,
        active: Option<&LoadedPlugin>,
        plan: Option<&PlanSummary>,
    ) -> Vec<Value> {
        let candidate = self.candidate.as_ref();
        let reason = candidate.map_or("Active", |candidate| &candidate.reason);
        let message = candidate.map_or("", |candidate| &candidate.message);
        let error = self.error.as_deref();
        let at = |stage| self.is_at(stage);
        let refused = at(Stage::Refused);
        let (loaded, compatible, authorized) = match error.map(LoadError::failed_at) {
            Some(load) => load,
            None if at(Stage::Loading) || refused => (None, None, None),
            None => (Some(true), Some(true), Some(true)),
        };
        let passed = |holds: Option<bool>, good: &'static str| match holds {
            Some(true) => (good, ""),
            Some(false) | None => (reason, message),
        };
        let mut conditions = Vec::new();
        for (kind, holds, good) in [
            ("Loaded", loaded, "Compiled"),
            ("Compatible", compatible, "ContractMatches"),
            ("Authorized", authorized, "Granted"),
        ] {
            let (reason, message) = passed(holds, good);
            conditions.push(condition(kind, holds, reason, message));
        }
        conditions.push(match plan {
            Some(plan) => {
                let fine = plan.failed == 0 && plan.unsound.is_none();
                condition("Shadowed", Some(fine), plan.verdict(), &plan.to_string())
            }
            None if candidate.is_none() => {
                condition("Shadowed", Some(true), "NothingToCompare", "")
            }
            None => condition("Shadowed", None, reason, message),
        });
        conditions.push(condition("Promoted", Some(candidate.is_none()), reason, message));
        let degraded = refused || at(Stage::RolledBack);
        let (why, text) = if degraded { (reason, message) } else { ("AsExpected", "") };
        conditions.push(condition("Degraded", Some(degraded), why, text));
        conditions.push(match active {
            Some(active) => {
                let message = format!("{} is active", active.label());
                condition("Ready", Some(true), "Active", &message)
            }
            None => condition("Ready", Some(false), reason, message),
        });
        conditions
    }
}

/// One condition: what it is called, whether it holds, and why.
fn condition(kind: &str, holds: Option<bool>, reason: &str, message: &str) -> Value {
    let status = match holds {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    json!({
        "type": kind, "status": status, "reason": reason,
        "message": cut(message, CONDITION_MESSAGE_BYTES_MAX),
    })
}
