//! The plugins that are running, one active version each.
//!
//! **Invariant:** a run holds one `Arc<ActivePlugin>` from beginning to end, and a lane runs a key once at a time,
//! so no parent is ever run by two versions at once.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use host_core::expectations::Seen;
use host_core::grants::{Grants, PluginSettings};
use host_core::ident::{Kind, ObjectId};
use host_core::object::StoredObject;
use host_core::queue::Lane;
use host_core::text;
use host_kube::{Scope, Subscription, View};
use host_wasm::Plugin;
use tokio::sync::Semaphore;

use crate::error::Error;

/// One version of a plugin, ready to run.
pub(crate) struct ActivePlugin {
    /// Its share of the queue; the same for all versions.
    pub(crate) lane: Lane,
    /// The loaded component.
    pub(crate) plugin: Plugin,
    /// What it may do.
    pub(crate) grants: Grants,
    /// How it is set up.
    pub(crate) settings: PluginSettings,
    /// Its calls at once: one processor fewer than there are, so that a plugin that spins leaves one to the others.
    pub(crate) calls: Arc<Semaphore>,
    /// Keeps the informers it needs alive.
    pub(crate) subscriptions: Vec<(Scope, Subscription)>,
}

impl ActivePlugin {
    /// The plugin's stable name.
    pub(crate) fn name(&self) -> &str {
        &self.plugin.descriptor().name
    }

    /// The field manager of everything it applies.
    pub(crate) fn field_manager(&self) -> String {
        text::field_manager(self.name())
    }

    /// The finalizer it puts on parents, if it wants one.
    pub(crate) fn finalizer(&self) -> String {
        text::finalizer(self.name())
    }

    /// The cache of a kind for a namespace (empty: cluster-scoped or all). Unknown is never empty: a kind that is
    /// not synced is an error.
    pub(crate) fn store(&self, kind: &Kind, namespace: &str) -> Result<View<'_>, Error> {
        let covers = |scope: &Scope| match scope {
            Scope::All => true,
            Scope::Namespace(name) => *name == namespace,
        };
        let found = self
            .subscriptions
            .iter()
            .find(|(scope, subscription)| **subscription.store().kind() == *kind && covers(scope));
        let Some((_, subscription)) = found else {
            let state = format!("namespace {namespace:?} is not watched by this host");
            return Err(Error::Unobserved { kind: kind.clone(), state });
        };
        let view = subscription.store().view();
        view.map_err(|error| Error::Unobserved {
            kind: kind.clone(),
            state: error.status.to_string(),
        })
    }

    /// One object, from the cache.
    pub(crate) fn lookup(&self, id: &ObjectId) -> Option<Arc<StoredObject>> {
        self.store(&id.kind, &id.key.namespace).ok()?.get(&id.key)
    }

    /// What the cache shows of an object, for read-your-writes.
    pub(crate) fn seen(&self, id: &ObjectId) -> Option<Seen> {
        let object = self.lookup(id)?;
        Some(Seen { uid: object.uid.clone(), resource_version: object.resource_version })
    }

    /// Every parent in the cache.
    pub(crate) fn parents(&self) -> Vec<Arc<StoredObject>> {
        let kind = &self.plugin.descriptor().parent;
        let stores = self.subscriptions.iter().map(|(_, subscription)| subscription.store());
        let views =
            stores.filter(|store| **store.kind() == *kind).filter_map(|store| store.view().ok());
        views.flat_map(|view| view.select(None, None, None)).collect()
    }

    /// `redis 0.1.0 (sha256:0123456789ab)`: what people read.
    pub(crate) fn label(&self) -> String {
        let descriptor = self.plugin.descriptor();
        format!(
            "{} {} (sha256:{})",
            descriptor.name,
            descriptor.version,
            self.plugin.id().digest.short()
        )
    }
}

/// All running plugins.
#[derive(Default)]
pub(crate) struct Plugins {
    active: RwLock<BTreeMap<Lane, Arc<ActivePlugin>>>,
}

impl Plugins {
    /// The active version of a lane.
    pub(crate) fn get(&self, lane: Lane) -> Option<Arc<ActivePlugin>> {
        self.active.read().unwrap_or_else(PoisonError::into_inner).get(&lane).cloned()
    }

    /// Every active version.
    pub(crate) fn all(&self) -> Vec<Arc<ActivePlugin>> {
        self.active.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Makes a version the active one; gives back the one it replaces.
    pub(crate) fn promote(&self, plugin: Arc<ActivePlugin>) -> Option<Arc<ActivePlugin>> {
        self.active.write().unwrap_or_else(PoisonError::into_inner).insert(plugin.lane, plugin)
    }
}
