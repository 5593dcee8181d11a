//! One revision of a plugin as who asks it sees it: the component, what it may see, and the caches it sees.
//!
//! **Invariant:** there is nothing in it that could write.

use std::sync::Arc;

use host_core::expectations::Seen;
use host_core::grants::{Grants, PluginSettings};
use host_core::ident::{Kind, ObjectId, ObjectKey};
use host_core::object::StoredObject;
use host_core::plugin::Revision;
use host_core::queue::Lane;
use host_core::text;
use host_kube::{Scope, Store, Subscription, View};
use host_wasm::Plugin;
use tokio::sync::Semaphore;

use crate::error::{Error, Unobservable};
use crate::reader::Reader;

/// One revision of a plugin, granted and ready to be asked.
pub(crate) struct Logic {
    /// Its share of the queue; the same for all revisions.
    pub(crate) lane: Lane,
    /// Which revision.
    pub(crate) revision: Revision,
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
    /// Looks for it, by the account it is set up for.
    pub(crate) reader: Reader,
}

impl Logic {
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

    /// What it may do and another revision may not, for people.
    pub(crate) fn beyond(&self, other: &Self) -> Vec<String> {
        let mut more = self.grants.beyond(&other.grants);
        more.extend(self.settings.namespaces_beyond(&other.settings));
        more
    }

    /// Whether a parent is one of those that it is for: another plugin may watch more of its kind.
    pub(crate) fn is_for(&self, parent: &ObjectKey) -> bool {
        let namespaces = self.settings.namespaces.as_ref();
        namespaces.is_none_or(|names| names.contains(&*parent.namespace))
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
            let state = Unobservable::Unwatched(namespace.to_owned());
            return Err(Error::Unobserved { kind: kind.clone(), state });
        };
        let view = subscription.store().view();
        view.map_err(|error| Error::Unobserved { kind: kind.clone(), state: error.status.into() })
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
        let views = self.stores_of_parents().filter_map(|store| store.view().ok());
        views.flat_map(|view| view.select(None, None, None)).collect()
    }

    /// How many parents the cache has.
    pub(crate) fn parent_count(&self) -> usize {
        self.stores_of_parents().map(|store| store.len()).sum()
    }

    fn stores_of_parents(&self) -> impl Iterator<Item = &Arc<Store>> {
        let kind = &self.plugin.descriptor().parent;
        let stores = self.subscriptions.iter().map(|(_, subscription)| subscription.store());
        stores.filter(|store| **store.kind() == *kind)
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
