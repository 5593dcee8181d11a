//! The objects of a store and their one index, without the question whether they can be relied on.
//!
//! **Invariant:** an object is in the index under each of its facets, and under no others.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use host_core::ident::ObjectKey;
use host_core::object::StoredObject;
use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Contents {
    /// Each with the last list that has named it or that it was seen after.
    pub(super) objects: BTreeMap<ByKey, u32>,
    /// (hash of a [`Facet`], key): one ordered set for all indexes, 40 bytes an entry. Collisions are sorted out by
    /// looking at the object.
    pub(super) index: BTreeSet<(u64, ObjectKey)>,
    /// Every change up to this version is known.
    pub(super) observed: u64,
    /// The list that is being taken, or the last one.
    pub(super) list: u32,
    /// Lists that were completed.
    pub(super) listed: u64,
    /// Of all JSON texts together.
    pub(super) bytes: usize,
    /// When the server was last heard of.
    pub(super) contact: Option<Instant>,
}

/// An object in the order of its key: the key is not held twice.
pub(super) struct ByKey(pub(super) Arc<StoredObject>);

impl Borrow<ObjectKey> for ByKey {
    fn borrow(&self) -> &ObjectKey {
        &self.0.key
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

/// A property that objects are found by.
#[derive(Clone, Copy, Hash)]
pub(super) enum Facet<'a> {
    /// The uid of its controller or of the parent it was applied for, mostly the same.
    ParentUid(&'a str),
    Label(&'a str, &'a str),
}

impl Facet<'_> {
    fn code(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

fn facets(object: &StoredObject) -> impl Iterator<Item = u64> {
    let owner = object.controller().map(|owner| Facet::ParentUid(&owner.uid));
    let applied = object.applied.as_ref().map(|mark| Facet::ParentUid(&mark.parent_uid));
    let labels = object.labels.iter().map(|(key, value)| Facet::Label(key, value));
    owner.into_iter().chain(applied).chain(labels).map(|facet| facet.code())
}

impl Contents {
    pub(super) fn put(&mut self, object: Arc<StoredObject>) {
        self.take(&object.key);
        for code in facets(&object) {
            self.index.insert((code, object.key.clone()));
        }
        self.bytes = self.bytes.saturating_add(object.json.len());
        self.objects.insert(ByKey(object), self.list);
    }

    pub(super) fn take(&mut self, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        let (ByKey(object), _) = self.objects.remove_entry(key)?;
        for code in facets(&object) {
            self.index.remove(&(code, key.clone()));
        }
        self.bytes = self.bytes.saturating_sub(object.json.len());
        Some(object)
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<StoredObject>> {
        self.objects.get_key_value(key).map(|(ByKey(object), _)| object)
    }

    /// Objects from a key on.
    pub(super) fn from(&self, first: &ObjectKey) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.objects.range::<ObjectKey, _>(first..).map(|(ByKey(object), _)| object)
    }

    /// Objects with a facet's code, from `namespace` on.
    pub(super) fn with(
        &self,
        facet: Facet<'_>,
        namespace: &str,
    ) -> impl Iterator<Item = &Arc<StoredObject>> {
        let code = facet.code();
        self.index
            .range((code, ObjectKey::new(namespace, ""))..)
            .take_while(move |(found, _)| *found == code)
            .filter_map(|(_, key)| self.get(key))
    }
}
