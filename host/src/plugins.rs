//! The plugins that are running: one active revision each, and perhaps one more for some of the parents.
//!
//! **Invariant:** a run holds one `Arc<LoadedPlugin>` from beginning to end, and a lane runs a key once at a time,
//! so no parent is ever run by two revisions at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use host_core::expectations::Seen;
use host_core::grants::{Grants, PluginSettings};
use host_core::ident::{Kind, ObjectId, ObjectKey};
use host_core::object::StoredObject;
use host_core::plugin::Revision;
use host_core::queue::Lane;
use host_core::rollout::{Runs, is_in_share};
use host_core::selector::Selector;
use host_core::text;
use host_kube::{Client, Scope, Store, Subscription, View};
use host_wasm::Plugin;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::{Error, Unobservable};

/// One revision of a plugin, granted and ready to run.
pub(crate) struct LoadedPlugin {
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
    /// Writes for it, by the account it is set up for.
    pub(crate) cluster: Client,
    /// How its runs have gone.
    pub(crate) record: TrackRecord,
}

/// How a revision has done so far.
#[derive(Debug, Default)]
pub(crate) struct TrackRecord {
    runs: Mutex<Runs>,
    condemned: OnceLock<String>,
}

impl TrackRecord {
    /// Counts a run; gives all so far.
    pub(crate) fn count(&self, failed: bool) -> Runs {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.count(failed);
        *runs
    }

    /// All runs so far.
    pub(crate) fn runs(&self) -> Runs {
        *self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it was taken back, if it was.
    pub(crate) fn condemned(&self) -> Option<&str> {
        self.condemned.get().map(String::as_str)
    }
}

impl LoadedPlugin {
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
    fn is_for(&self, parent: &ObjectKey) -> bool {
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

/// Which parents a canary acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// So many in a hundred.
    Percent(u8),
    /// Those with these labels.
    Selector(Selector),
}

impl Share {
    fn includes(&self, plugin: &LoadedPlugin, parent: &ObjectKey) -> bool {
        match self {
            Self::Percent(percent) => is_in_share(parent, *percent),
            Self::Selector(selector) => {
                let kind = plugin.plugin.descriptor().parent.clone();
                let parent = plugin.lookup(&ObjectId { kind, key: parent.clone() });
                parent.is_some_and(|parent| selector.matches(&parent.labels))
            }
        }
    }
}

/// The revisions of one plugin that act.
struct Running {
    active: Arc<LoadedPlugin>,
    /// Acts for some parents in place of the active one.
    canary: Option<(Arc<LoadedPlugin>, Share)>,
    /// Takes over at once if the active one fails before this time.
    before: Option<(Arc<LoadedPlugin>, Instant)>,
}

/// All running plugins.
#[derive(Default)]
pub(crate) struct Plugins {
    lanes: RwLock<BTreeMap<Lane, Running>>,
}

impl Plugins {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Lane, Running>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Lane, Running>> {
        self.lanes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision that runs a parent.
    pub(crate) fn get(&self, lane: Lane, parent: &ObjectKey) -> Option<Arc<LoadedPlugin>> {
        let lanes = self.read();
        let running = lanes.get(&lane)?;
        let canary =
            running.canary.as_ref().filter(|(canary, share)| share.includes(canary, parent));
        let plugin = canary.map_or(&running.active, |(canary, _)| canary);
        plugin.is_for(parent).then(|| Arc::clone(plugin))
    }

    /// The active revision of a lane.
    pub(crate) fn active(&self, lane: Lane) -> Option<Arc<LoadedPlugin>> {
        self.read().get(&lane).map(|running| Arc::clone(&running.active))
    }

    /// Every active revision.
    pub(crate) fn all(&self) -> Vec<Arc<LoadedPlugin>> {
        self.read().values().map(|running| Arc::clone(&running.active)).collect()
    }

    /// Makes a revision the active one. The one before takes over again if it fails within `probation`: the one that
    /// is active, or where none is, `before`. An error is the plugin that has its parent kind already.
    pub(crate) fn promote(
        &self,
        plugin: &Arc<LoadedPlugin>,
        probation: Duration,
        before: Option<Arc<LoadedPlugin>>,
    ) -> Result<(), Arc<LoadedPlugin>> {
        let mut lanes = self.write();
        let parent = &plugin.plugin.descriptor().parent;
        let others = lanes.iter().filter(|(lane, _)| **lane != plugin.lane);
        let mut others = others.map(|(_, running)| &running.active);
        if let Some(other) = others.find(|other| other.plugin.descriptor().parent == *parent) {
            return Err(Arc::clone(other));
        }
        let before = lanes.remove(&plugin.lane).map(|running| running.active).or(before);
        let before = before.map(|before| (before, Instant::now() + probation));
        let running = Running { active: Arc::clone(plugin), canary: None, before };
        lanes.insert(plugin.lane, running);
        Ok(())
    }

    /// Nothing acts for a lane any more; gives what did.
    pub(crate) fn retire(&self, lane: Lane) -> Option<Arc<LoadedPlugin>> {
        self.write().remove(&lane).map(|running| running.active)
    }

    /// Lets a revision act for some parents.
    pub(crate) fn canary(&self, plugin: &Arc<LoadedPlugin>, share: Share) {
        if let Some(running) = self.write().get_mut(&plugin.lane) {
            running.canary = Some((Arc::clone(plugin), share));
        }
    }

    /// Ends a canary, whichever it is. False: there was none.
    pub(crate) fn end_canary(&self, lane: Lane) -> bool {
        self.write().get_mut(&lane).is_some_and(|running| running.canary.take().is_some())
    }

    /// Lets go of the revision before, once its successor has proved itself.
    pub(crate) fn end_probation(&self, lane: Lane) {
        if let Some(running) = self.write().get_mut(&lane) {
            running.before = None;
        }
    }

    /// Until when the active revision is on probation.
    pub(crate) fn probation_end(&self, lane: Lane) -> Option<Instant> {
        self.read().get(&lane)?.before.as_ref().map(|(_, until)| *until)
    }

    /// Who would take over from a revision that is on trial.
    pub(crate) fn substitute(&self, plugin: &Arc<LoadedPlugin>) -> Option<Arc<LoadedPlugin>> {
        self.read().get(&plugin.lane)?.substitute(plugin)
    }

    /// Takes a revision on trial back: its substitute acts from here on. False: it is not on trial (any more).
    pub(crate) fn condemn(&self, plugin: &Arc<LoadedPlugin>, why: &str) -> bool {
        let mut lanes = self.write();
        let Some(running) = lanes.get_mut(&plugin.lane) else { return false };
        let Some(substitute) = running.substitute(plugin) else { return false };
        // The first reason counts.
        let _ = plugin.record.condemned.set(why.to_owned());
        running.active = substitute;
        running.canary = None;
        running.before = None;
        true
    }
}

impl Running {
    fn substitute(&self, plugin: &Arc<LoadedPlugin>) -> Option<Arc<LoadedPlugin>> {
        if let Some((canary, _)) = &self.canary
            && Arc::ptr_eq(canary, plugin)
        {
            return Some(Arc::clone(&self.active));
        }
        let (before, until) = self.before.as_ref()?;
        let on_trial = Arc::ptr_eq(&self.active, plugin) && Instant::now() < *until;
        on_trial.then(|| Arc::clone(before))
    }
}
