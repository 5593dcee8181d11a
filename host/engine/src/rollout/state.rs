//! How far a rollout is: what it remembers between two steps.

use std::sync::Arc;

use host_core::divergence::PlanSummary;
use host_core::limits;
use host_core::plugin::{HistoryEntry, PluginStatus, Quarantined, Revision};
use tokio::time::Instant;

use super::load_error::LoadError;
use crate::clock::Clock;
use crate::loaded_plugin::LoadedPlugin;
use crate::logic::Logic;
use crate::signature::Signature;

/// How far a rollout is.
#[derive(Default)]
pub(super) struct State {
    pub(super) candidate: Option<Candidate>,
    /// With the signature it came with: another one may be better.
    pub(super) refused: Option<(Revision, Option<Signature>, Arc<LoadError>)>,
    /// What acts since the last promotion.
    pub(super) promoted: Option<Arc<LoadedPlugin>>,
    pub(super) history: Vec<HistoryEntry>,
    pub(super) quarantined: Vec<Quarantined>,
    pub(super) leading: bool,
}

/// A revision that is loaded and does not act, or not everywhere.
pub(super) struct Candidate {
    pub(super) plugin: Arc<LoadedPlugin>,
    pub(super) plan: Option<PlanSummary>,
    pub(super) canary_since: Option<Instant>,
}

impl State {
    /// Goes on where the host before has stopped.
    pub(super) fn remember(&mut self, told: &PluginStatus) {
        self.history.clone_from(&told.history);
        self.quarantined.clone_from(&told.quarantined);
    }

    /// Notes that a revision acts from now on.
    pub(super) fn began(&mut self, clock: &Clock, plugin: &Logic) {
        for entry in self.history.iter_mut().filter(|one| one.ended.is_empty()) {
            "Replaced".clone_into(&mut entry.ended);
        }
        let entry = HistoryEntry {
            revision: plugin.revision,
            digest: plugin.plugin.id().digest.to_string(),
            version: plugin.plugin.descriptor().version.clone(),
            promoted: clock.now(),
            ended: String::new(),
        };
        self.history.insert(0, entry);
        self.history.truncate(limits::HISTORY_MAX);
    }

    /// The plan of the candidate.
    pub(super) fn plan(&self) -> Option<&PlanSummary> {
        self.candidate.as_ref()?.plan.as_ref()
    }
}
