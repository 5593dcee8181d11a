//! Keys that are ready to run, in the order in which they will.
//!
//! **Invariant:** within a priority, plugins take turns, within a plugin its namespaces do, and within a namespace
//! the oldest key is first: a flood in one place delays nobody else by more than one run.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::key::{Lane, ParentKey, Priority};
use crate::ident::ObjectKey;

/// Keys of one namespace by age.
type Waiting = BTreeMap<u64, Arc<str>>;

/// Keys of one plugin by namespace.
type Namespaces = BTreeMap<Arc<str>, Waiting>;

/// Where a ready key stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) priority: Priority,
    age: u64,
}

/// All ready keys.
#[derive(Debug, Default)]
pub(super) struct Ready {
    places: BTreeMap<Reverse<Priority>, BTreeMap<Lane, Namespaces>>,
    last_lane: Option<Lane>,
    last_namespace: BTreeMap<Lane, Arc<str>>,
    next_age: u64,
}

impl Ready {
    /// Puts a key at the end of its namespace's turn.
    pub(super) fn insert(&mut self, key: &ParentKey, priority: Priority) -> Place {
        let place = Place { priority, age: self.next_age };
        self.next_age += 1;
        let lanes = self.places.entry(Reverse(priority)).or_default();
        let namespaces = lanes.entry(key.lane).or_default();
        let waiting = namespaces.entry(Arc::clone(&key.key.namespace)).or_default();
        waiting.insert(place.age, Arc::clone(&key.key.name));
        place
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, key: &ParentKey, place: Place) {
        let Some(lanes) = self.places.get_mut(&Reverse(place.priority)) else { return };
        let Some(namespaces) = lanes.get_mut(&key.lane) else { return };
        if let Some(waiting) = namespaces.get_mut(&key.key.namespace) {
            waiting.remove(&place.age);
            if waiting.is_empty() {
                namespaces.remove(&key.key.namespace);
            }
        }
        if namespaces.is_empty() {
            lanes.remove(&key.lane);
        }
    }

    /// Takes the next key whose plugin has room.
    pub(super) fn pop(&mut self, has_room: impl Fn(Lane) -> bool) -> Option<(ParentKey, Priority)> {
        let (place, key) = self.next(has_room)?;
        self.remove(&key, place);
        self.last_lane = Some(key.lane);
        self.last_namespace.insert(key.lane, Arc::clone(&key.key.namespace));
        Some((key, place.priority))
    }

    fn next(&self, has_room: impl Fn(Lane) -> bool) -> Option<(Place, ParentKey)> {
        self.places.iter().find_map(|(Reverse(priority), lanes)| {
            let (lane, namespaces) =
                in_turn(lanes, self.last_lane.as_ref()).find(|(lane, _)| has_room(**lane))?;
            let last = self.last_namespace.get(lane);
            let (namespace, waiting) = in_turn(namespaces, last).next()?;
            let (age, name) = waiting.first_key_value()?;
            let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
            Some((Place { priority: *priority, age: *age }, ParentKey { lane: *lane, key }))
        })
    }

    /// Forgets whose turn it was in a plugin that is gone.
    pub(super) fn close(&mut self, lane: Lane) {
        self.last_namespace.remove(&lane);
    }

    /// How many keys wait, by plugin and priority.
    pub(super) fn depth(&self, lane: Lane, priority: Priority) -> usize {
        let namespaces = self.places.get(&Reverse(priority)).and_then(|lanes| lanes.get(&lane));
        namespaces.into_iter().flat_map(BTreeMap::values).map(BTreeMap::len).sum()
    }
}

/// A map's entries, beginning behind the one whose turn was last.
fn in_turn<'a, K: Ord, V>(
    map: &'a BTreeMap<K, V>,
    last: Option<&'a K>,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    let after = last.map_or(Bound::Unbounded, Bound::Excluded);
    let until = last.map_or(Bound::Unbounded, Bound::Included);
    let wrapped = map.range::<K, _>((Bound::Unbounded, until)).take(if last.is_some() {
        usize::MAX
    } else {
        0
    });
    map.range::<K, _>((after, Bound::Unbounded)).chain(wrapped)
}
