//! Which revision acts: the one place where that changes.
//!
//! **Invariant:** queue and cache outlive every revision, so no event is lost when one takes over.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::load_error::LoadError;
use crate::dispatch::Dispatch;
use crate::loaded_plugin::LoadedPlugin;
use crate::logic::Logic;
use crate::plugins::Plugins;

/// How often a sweep that waits looks whether its version is still the active one.
const SYNC_LOOK: Duration = Duration::from_secs(5);

/// Parents of one plugin that run at once, unless its settings say otherwise.
const CONCURRENCY_DEFAULT: u16 = 4;

/// The revisions that act, and the queue of their parents. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cutover {
    pub(crate) plugins: Arc<Plugins>,
    pub(crate) dispatch: Arc<Dispatch>,
}

impl Cutover {
    /// Makes a revision the active one; `before` is what its fault would lead back to, if nothing acts now.
    pub(super) fn promote(
        &self,
        plugin: &Arc<LoadedPlugin>,
        probation: Duration,
        before: Option<Arc<LoadedPlugin>>,
    ) -> Result<(), LoadError> {
        // In this order: whatever changes from here on is seen by the new revision, and the sweep covers the rest.
        self.plugins.promote(plugin, probation, before).map_err(|other| LoadError::KindTaken {
            plugin: plugin.plugin.id().clone(),
            kind: plugin.plugin.descriptor().parent.clone(),
            other: other.label(),
        })?;
        self.open_lane(plugin);
        self.rerun(plugin);
        Ok(())
    }

    /// A revision was taken back: its substitute runs every parent again.
    pub(super) fn take_over(&self, substitute: &LoadedPlugin) {
        self.open_lane(substitute);
        self.dispatch.sweep(substitute.lane, substitute.parents());
    }

    /// Gives a revision its share of the queue.
    fn open_lane(&self, plugin: &Logic) {
        let concurrency = plugin.settings.concurrency.unwrap_or(CONCURRENCY_DEFAULT);
        let parent = &plugin.plugin.descriptor().parent;
        self.dispatch.open_lane(plugin.lane, parent, concurrency.into());
    }

    /// Runs every parent once, behind everything else.
    pub(super) fn rerun(&self, plugin: &LoadedPlugin) {
        tokio::spawn(sweep(Arc::clone(&self.dispatch), Arc::downgrade(&plugin.logic)));
    }
}

/// Runs every parent once, as soon as everything the plugin needs can be observed.
async fn sweep(dispatch: Arc<Dispatch>, plugin: Weak<Logic>) {
    let stores: Vec<_> = match plugin.upgrade() {
        Some(plugin) => {
            plugin.subscriptions.iter().map(|(_, one)| Arc::clone(one.store())).collect()
        }
        None => return,
    };
    for store in stores {
        // As long as it takes, or until another version has taken over.
        while store.wait_synced(Instant::now() + SYNC_LOOK).await.is_err() {
            if plugin.strong_count() == 0 {
                return;
            }
        }
    }
    if let Some(plugin) = plugin.upgrade() {
        dispatch.sweep(plugin.lane, plugin.parents());
    }
}
