//! What is known about the objects of one kind, indexed for the questions that reconciles ask.
//!
//! **Invariant:** contents can be read only through a [`View`], and there is none while the kind is not synchronised,
//! or while its server has not been heard of for too long.
//! **Invariant:** answers are in canonical order: namespace, then name.
//! **Invariant:** an object whose uid and resourceVersion did not change keeps its `Arc`, so a relist does not double
//! the memory and wakes nobody.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use host_core::ident::{Kind, ObjectKey};
use host_core::object::StoredObject;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::change::Change;

mod contents;
mod view;

#[cfg(test)]
mod tests;

use contents::{ByKey, Contents};

pub use view::View;

/// How long a store is relied on after the server was last heard of, while it fails: two bookmarks.
const UNHEARD_FAILING_MAX: Duration = Duration::from_mins(1);

/// The same while a watch is open: a server without bookmarks is heard of when the watch is opened again, within
/// 295 s, and a moment later at the latest.
const UNHEARD_WATCHING_MAX: Duration = Duration::from_secs(330);

/// How an informer is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The first list is being taken.
    Syncing,
    /// All is known, and watched.
    Synced,
    /// The server has no such kind.
    Missing,
    /// The server does not let us look.
    Forbidden(String),
    /// The server fails; it is asked again.
    Failing(String),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syncing => f.write_str("still being listed"),
            Self::Synced => f.write_str("synchronised"),
            Self::Missing => f.write_str("the API server has no such kind; is its CRD installed?"),
            Self::Forbidden(message) | Self::Failing(message) => f.write_str(message),
        }
    }
}

/// A kind that cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} is not synchronised: {status}")]
pub struct NotSynced {
    /// Which kind.
    pub kind: Arc<Kind>,
    /// Why.
    pub status: Status,
}

#[derive(Clone, Debug)]
struct Health {
    status: Status,
    /// A whole list was taken, and nothing has made its result doubtful since.
    complete: bool,
}

/// The objects of one kind in one scope.
pub struct Store {
    kind: Arc<Kind>,
    health: watch::Sender<Health>,
    contents: RwLock<Contents>,
}

impl Store {
    pub(crate) fn new(kind: Arc<Kind>) -> Self {
        let (health, _) = watch::channel(Health { status: Status::Syncing, complete: false });
        Self { kind, health, contents: RwLock::default() }
    }

    /// The kind of its objects.
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// How its informer is doing. A store that was synchronised and whose server now fails stays readable for a
    /// minute.
    pub fn status(&self) -> Status {
        self.health().0
    }

    /// Whether it can be read.
    pub fn is_synced(&self) -> bool {
        self.health().1
    }

    /// How it is doing, and whether it can be read.
    fn health(&self) -> (Status, bool) {
        let Health { status, complete } = self.health.borrow().clone();
        if !complete {
            return (status, false);
        }
        let (max, why) = match &status {
            Status::Failing(why) => (UNHEARD_FAILING_MAX, format!("{why}; ")),
            Status::Syncing | Status::Synced | Status::Missing | Status::Forbidden(_) => {
                (UNHEARD_WATCHING_MAX, String::new())
            }
        };
        if self.last_contact().is_some_and(|contact| contact.elapsed() <= max) {
            return (status, true);
        }
        // The bound and not the time itself: a text that moves would be written to conditions again and again.
        let max = max.as_secs();
        let stale = format!("{why}the API server has not been heard of for more than {max} s");
        (Status::Failing(stale), false)
    }

    /// The contents, if they can be relied on.
    pub fn view(&self) -> Result<View<'_>, NotSynced> {
        match self.health() {
            (_, true) => Ok(View(&self.contents)),
            (status, false) => Err(NotSynced { kind: Arc::clone(&self.kind), status }),
        }
    }

    /// Waits until it can be read.
    pub async fn wait_synced(&self, deadline: Instant) -> Result<View<'_>, NotSynced> {
        let mut health = self.health.subscribe();
        let wait = async { while !self.is_synced() && health.changed().await.is_ok() {} };
        let _ = tokio::time::timeout_at(deadline, wait).await;
        self.view()
    }

    /// When the server was last heard of. A quiet kind is heard of once a minute, by a bookmark.
    pub fn last_contact(&self) -> Option<Instant> {
        self.read().contact
    }

    /// Every change up to this resourceVersion is in the store.
    pub fn observed_version(&self) -> u64 {
        self.read().observed
    }

    /// How many objects there are, readable or not.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of JSON text that it holds.
    pub fn bytes(&self) -> usize {
        self.read().bytes
    }

    /// Lists that were taken after the first.
    pub fn relists(&self) -> u64 {
        self.read().listed.saturating_sub(1)
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(
        &self,
        listed: u64,
        old: Option<Arc<StoredObject>>,
        new: Option<Arc<StoredObject>>,
    ) -> Option<Change> {
        let key = new.as_ref().or(old.as_ref())?.key.clone();
        Some(Change { kind: Arc::clone(&self.kind), key, old, new, initial: listed == 0 })
    }

    /// Begins a list: what is not taken in from here on is gone when it ends.
    pub(crate) fn begin(&self) {
        let mut contents = self.write();
        contents.list = contents.list.wrapping_add(1);
    }

    /// Takes in an object. A new uid under an old name is a deletion and a creation.
    pub(crate) fn upsert(&self, object: StoredObject) -> Vec<Change> {
        let mut contents = self.write();
        let (list, listed) = (contents.list, contents.listed);
        let old = contents.get(&object.key).map(Arc::clone);
        if let Some(old) = &old
            && old.uid == object.uid
            && old.resource_version == object.resource_version
            && object.resource_version != 0
        {
            if let Some(last) = contents.objects.get_mut(&object.key) {
                *last = list;
            }
            return Vec::new();
        }
        let new = Arc::new(object);
        contents.put(Arc::clone(&new));
        drop(contents);
        match old {
            Some(old) if old.uid != new.uid => {
                let gone = self.change(listed, Some(old), None);
                gone.into_iter().chain(self.change(listed, None, Some(new))).collect()
            }
            old => self.change(listed, old, Some(new)).into_iter().collect(),
        }
    }

    /// Takes out an object, if it is known.
    pub(crate) fn remove(&self, key: &ObjectKey) -> Option<Change> {
        let mut contents = self.write();
        let old = contents.take(key)?;
        let listed = contents.listed;
        drop(contents);
        self.change(listed, Some(old), None)
    }

    /// Ends a list: what it did not name is gone. From here on the store can be read.
    pub(crate) fn complete(&self, version: u64) -> Vec<Change> {
        let mut contents = self.write();
        let (list, listed) = (contents.list, contents.listed);
        let absent: Vec<_> = contents
            .objects
            .iter()
            .filter(|(_, last)| **last != list)
            .map(|(ByKey(object), _)| object.key.clone())
            .collect();
        let gone: Vec<_> = absent.iter().filter_map(|key| contents.take(key)).collect();
        contents.listed += 1;
        // Not a maximum: an etcd restored from a backup goes back.
        contents.observed = version;
        contents.contact = Some(Instant::now());
        drop(contents);
        self.health.send_replace(Health { status: Status::Synced, complete: true });
        gone.into_iter().filter_map(|old| self.change(listed, Some(old), None)).collect()
    }

    /// The server was heard of, and every change up to `version` was taken in.
    pub(crate) fn observed(&self, version: u64) {
        let mut contents = self.write();
        contents.observed = contents.observed.max(version);
        contents.contact = Some(Instant::now());
    }

    /// The watch is open.
    pub(crate) fn watching(&self) {
        self.write().contact = Some(Instant::now());
        // Tells even when nothing changes: a store that was silent for too long can be read again.
        self.health.send_modify(|health| {
            if health.complete {
                health.status = Status::Synced;
            }
        });
    }

    /// Something is wrong. A kind that is missing or forbidden is no longer readable, and is so again only after a
    /// whole list.
    pub(crate) fn troubled(&self, status: Status) {
        let doubtful = matches!(status, Status::Missing | Status::Forbidden(_));
        self.health.send_modify(|health| {
            health.complete &= !doubtful;
            health.status = status;
        });
    }
}
