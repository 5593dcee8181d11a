//! Read your writes: a parent is not run on a cache that has not seen what its last run wrote.
//!
//! After controller-runtime's consistency client and KEP-5647: requeue while stale, give up at a deadline.

use std::collections::BTreeMap;

use crate::ident::ObjectId;
use crate::limits::READ_YOUR_WRITES_DEADLINE;
use crate::queue::{Moment, ParentKey};

/// What the cache has to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The object at this version or a later one.
    Version(u64),
    /// The object with this uid is gone.
    Gone(Box<str>),
}

/// What the cache shows of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its uid.
    pub uid: Box<str>,
    /// Its version.
    pub resource_version: u64,
}

/// Every parent's writes that the cache has not shown yet.
#[derive(Debug, Default)]
pub struct Expectations {
    pending: BTreeMap<ParentKey, (Moment, Vec<(ObjectId, Expected)>)>,
}

impl Expectations {
    /// Remembers what a run has written, besides what it has written before. A run starts with nothing pending.
    pub fn expect(&mut self, parent: ParentKey, writes: Vec<(ObjectId, Expected)>, now: Moment) {
        if writes.is_empty() {
            return;
        }
        let (deadline, pending) = self.pending.entry(parent).or_default();
        *deadline = now + READ_YOUR_WRITES_DEADLINE;
        pending.extend(writes);
    }

    /// Whether the cache is fresh enough to run this parent. `seen` looks an object up in the cache.
    pub fn satisfied(
        &mut self,
        parent: &ParentKey,
        now: Moment,
        seen: impl Fn(&ObjectId) -> Option<Seen>,
    ) -> bool {
        let Some((deadline, writes)) = self.pending.get_mut(parent) else {
            return true;
        };
        writes.retain(|(id, expected)| !is_shown(expected, seen(id)));
        if writes.is_empty() || now >= *deadline {
            self.pending.remove(parent);
            return true;
        }
        false
    }

    /// What a parent's runs have written and the cache may not show yet.
    pub fn pending(&self, parent: &ParentKey) -> impl Iterator<Item = &ObjectId> {
        self.pending.get(parent).into_iter().flat_map(|(_, writes)| writes).map(|(id, _)| id)
    }

    /// Forgets a parent that is gone.
    pub fn forget(&mut self, parent: &ParentKey) {
        self.pending.remove(parent);
    }
}

fn is_shown(expected: &Expected, seen: Option<Seen>) -> bool {
    match (expected, seen) {
        // A version that did not parse cannot be waited for: fail open.
        (Expected::Version(version), Some(seen)) => {
            *version == 0 || seen.resource_version >= *version
        }
        // Written, then gone again before the cache showed it, or not shown yet: only the deadline can tell.
        (Expected::Version(version), None) => *version == 0,
        (Expected::Gone(uid), Some(seen)) => seen.uid != *uid,
        (Expected::Gone(_), None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::{Kind, ObjectKey};
    use std::time::Duration;

    fn id() -> ObjectId {
        ObjectId { kind: Kind::new("v1", "ConfigMap"), key: ObjectKey::new("n", "a") }
    }

    fn parent() -> ParentKey {
        ParentKey { lane: 0, key: ObjectKey::new("n", "p") }
    }

    fn seen(uid: &str, resource_version: u64) -> Seen {
        Seen { uid: uid.into(), resource_version }
    }

    #[test]
    fn waits_until_the_cache_shows_the_written_version() {
        let mut expectations = Expectations::default();
        expectations.expect(parent(), vec![(id(), Expected::Version(7))], Duration::ZERO);
        assert!(!expectations.satisfied(&parent(), Duration::ZERO, |_| None));
        assert!(!expectations.satisfied(&parent(), Duration::ZERO, |_| Some(seen("u", 6))));
        assert!(expectations.satisfied(&parent(), Duration::ZERO, |_| Some(seen("u", 8))));
        assert!(
            expectations.satisfied(&parent(), Duration::ZERO, |_| None),
            "forgotten once shown"
        );
    }

    #[test]
    fn waits_until_a_deleted_object_is_gone_or_replaced() {
        let mut expectations = Expectations::default();
        expectations.expect(parent(), vec![(id(), Expected::Gone("u1".into()))], Duration::ZERO);
        assert!(!expectations.satisfied(&parent(), Duration::ZERO, |_| Some(seen("u1", 9))));
        assert!(expectations.satisfied(&parent(), Duration::ZERO, |_| Some(seen("u2", 1))));
    }

    #[test]
    fn a_second_write_of_a_run_does_not_hide_the_first() {
        let mut expectations = Expectations::default();
        expectations.expect(parent(), vec![(id(), Expected::Version(7))], Duration::ZERO);
        expectations.expect(parent(), vec![(id(), Expected::Version(9))], Duration::ZERO);
        assert!(!expectations.satisfied(&parent(), Duration::ZERO, |_| Some(seen("u", 8))));
        assert!(expectations.satisfied(&parent(), Duration::ZERO, |_| Some(seen("u", 9))));
    }

    #[test]
    fn gives_up_at_the_deadline() {
        let mut expectations = Expectations::default();
        expectations.expect(parent(), vec![(id(), Expected::Version(7))], Duration::ZERO);
        assert!(expectations.satisfied(&parent(), READ_YOUR_WRITES_DEADLINE, |_| None));
    }
}
