//! What the rollout of one plugin has to hand.

use std::sync::Arc;

use host_core::decision::EventKind;
use host_core::queue::Lane;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::board::Board;
use super::cutover::Cutover;
use super::eye::Eye;
use super::load::{self, Loader};
use super::load_error::LoadError;
use super::subject::Subject;
use super::wanted::{Wanted, Wish};
use crate::loaded_plugin::LoadedPlugin;
use crate::outlook::Outlook;

/// The status that was written last, and whose turn it is to write. A write that has begun is brought to its end,
/// whatever becomes of the work that wanted it: otherwise an older one could arrive after a newer one.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWritten(pub(super) Arc<Mutex<Option<Map<String, Value>>>>);

/// One plugin's rollout: where it looks, what it loads with, what runs without acting, and what acts.
pub(super) struct Pursuit {
    pub(super) eye: Eye,
    pub(super) loader: Arc<Loader>,
    pub(super) outlook: Outlook,
    pub(super) cutover: Cutover,
    pub(super) board: Arc<Board>,
    pub(super) written: LastWritten,
}

impl Pursuit {
    /// The plugin it is about.
    pub(super) fn subject(&self) -> &Subject {
        &self.eye.subject
    }

    /// The plugin's name.
    pub(super) fn name(&self) -> &str {
        &self.subject().name
    }

    /// Counts a load that has ended.
    pub(super) fn loaded(&self, result: &'static str) {
        self.subject().voice.meter.loaded(self.name(), result);
    }

    /// The plugin's share of the queue.
    pub(super) fn lane(&self) -> Lane {
        self.cutover.plugins.lane(self.name())
    }

    /// The revision that acts.
    pub(super) fn active(&self) -> Option<Arc<LoadedPlugin>> {
        self.cutover.plugins.active(self.lane())
    }

    /// How often a revision was taken back.
    pub(super) fn setbacks(&self) -> u64 {
        self.cutover.plugins.setbacks(self.lane())
    }

    /// Loads what is wanted, if there is something to load.
    pub(super) async fn load(&self, wish: Wish) -> Result<Arc<LoadedPlugin>, Arc<LoadError>> {
        load::load(&self.loader, &wish?).await.map_err(Arc::new)
    }

    /// An event about the plugin.
    pub(super) fn tell(&self, wanted: &Wanted, kind: EventKind, reason: &str, note: &str) {
        self.subject().event(
            wanted.object.as_ref(),
            wanted.config_maps.first(),
            kind,
            reason,
            note,
        );
    }
}
