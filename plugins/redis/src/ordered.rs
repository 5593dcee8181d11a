//! Maps and sets by insertion. `collect` sorts first, and each type it sorts is 8 KB of component
//! (measured); what is collected here are a few pods, which need no sort.

use std::collections::{BTreeMap, BTreeSet};

/// A map; the last of equal keys stays.
pub(crate) fn map<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        map.insert(key, value);
    }
    map
}

/// A set.
pub(crate) fn set<K: Ord>(keys: impl IntoIterator<Item = K>) -> BTreeSet<K> {
    let mut set = BTreeSet::new();
    for key in keys {
        set.insert(key);
    }
    set
}
