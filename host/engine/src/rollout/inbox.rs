//! From a change in the host's own namespace to the rollouts it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use host_core::plugin;
use host_core::text;
use host_kube::Change;
use tokio::sync::Notify;

use crate::kinds::config_map;
use crate::lock::lock;

/// Which plugins something has changed for. Bounded by the number of plugins.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The host's own.
    namespace: String,
    known: Mutex<Known>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// Rollouts by plugin.
    rollouts: BTreeMap<String, Arc<Notify>>,
    /// Plugins by the ConfigMap their spec names.
    followers: BTreeMap<String, String>,
    /// Plugins that nobody pursues yet.
    new: BTreeSet<String>,
}

impl Inbox {
    pub(crate) fn new(namespace: String) -> Self {
        Self { namespace, known: Mutex::default(), wake: Notify::new() }
    }

    /// Whether no plugin is known at all.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.known).rollouts.is_empty()
    }

    /// Waits for a plugin that nobody pursues yet.
    pub(super) async fn new_ones(&self) {
        self.wake.notified().await;
    }

    /// Wakes the rollout of a plugin, or has one started.
    pub(super) fn note(&self, plugin: &str) {
        let mut known = lock(&self.known);
        if let Some(rollout) = known.rollouts.get(plugin) {
            rollout.notify_one();
        } else {
            known.new.insert(plugin.to_owned());
            self.wake.notify_one();
        }
    }

    /// A plugin takes its bytes from a ConfigMap that does not carry its name.
    pub(super) fn follow(&self, config_map: &str, plugin: &str) {
        lock(&self.known).followers.insert(config_map.to_owned(), plugin.to_owned());
    }

    /// Notes a change if it is one of a plugin.
    pub(crate) fn changed(&self, change: &Change) {
        if *change.key.namespace != *self.namespace {
            return;
        }
        if *change.kind == plugin::kind() {
            return self.note(&change.key.name);
        }
        if *change.kind != config_map() {
            return;
        }
        let sides = change.old.iter().chain(&change.new);
        for name in sides.filter_map(|object| object.labels.get(text::LABEL_PLUGIN)) {
            self.note(name);
        }
        let follower = lock(&self.known).followers.get(&*change.key.name).cloned();
        if let Some(follower) = follower {
            self.note(&follower);
        }
    }

    pub(super) fn wake_all(&self) {
        for rollout in lock(&self.known).rollouts.values() {
            rollout.notify_one();
        }
    }

    /// The next plugin that nobody pursues yet.
    pub(super) fn take_new(&self) -> Option<(String, Arc<Notify>)> {
        let mut known = lock(&self.known);
        let name = known.new.pop_first()?;
        let wake = Arc::new(Notify::new());
        known.rollouts.insert(name.clone(), Arc::clone(&wake));
        Some((name, wake))
    }
}
