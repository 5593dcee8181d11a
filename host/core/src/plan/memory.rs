//! What is remembered of one parent's objects between two plans.

use std::collections::{BTreeMap, BTreeSet};

use super::step::Apply;
use crate::diff::{self, Difference};
use crate::ident::ObjectId;
use crate::limits::{CONTEST_REPAIRS, CONTEST_WINDOW};
use crate::moment::Moment;
use crate::object::StoredObject;

/// An object that somebody else keeps changing back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contested {
    /// Which object.
    pub id: ObjectId,
    /// The first field that was found changed, the last time.
    pub path: String,
    /// How often it was set back, each time within [`CONTEST_WINDOW`] of the time before.
    pub repairs: u32,
    /// Whether this plan sets it back once more.
    pub repaired: bool,
}

/// What was learnt from the API server's answers for one parent: how it normalises what a plugin sends,
/// and which version of an object is known to be as desired. Lost on a restart, which costs one apply that
/// changes nothing for each object with an unknown normalisation.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    known: BTreeMap<ObjectId, Known>,
    drifted: BTreeMap<ObjectId, Drifted>,
}

/// Repairs of one object, each within a window of the one before.
#[derive(Clone, Debug)]
struct Drifted {
    last: Moment,
    repairs: u32,
    path: String,
}

#[derive(Clone, Debug)]
struct Known {
    hash: String,
    resource_version: u64,
    tolerated: Vec<Difference>,
}

impl Memory {
    /// Learns from the answer to an apply: what still differs now is how the server writes it.
    pub fn learn(&mut self, apply: &Apply, answer: &StoredObject) {
        let tolerated = match serde_json::from_str(&answer.json) {
            Ok(live) => diff::differences(&apply.body, &live),
            Err(_) => Vec::new(),
        };
        let known = Known {
            hash: apply.hash.clone(),
            resource_version: answer.resource_version,
            tolerated,
        };
        self.known.insert(apply.id.clone(), known);
    }

    pub(super) fn knows(&self, id: &ObjectId, hash: &str, live: &StoredObject) -> bool {
        self.known.get(id).is_some_and(|known| {
            known.hash == hash && known.resource_version == live.resource_version
        })
    }

    pub(super) fn tolerates(&self, id: &ObjectId, hash: &str, differences: &[Difference]) -> bool {
        let Some(known) = self.known.get(id).filter(|known| known.hash == hash) else {
            return differences.is_empty();
        };
        differences.iter().all(|difference| known.tolerated.contains(difference))
    }

    /// The kept objects' versions are known to be as desired from now on.
    pub(super) fn keep(&mut self, id: &ObjectId, hash: &str, resource_version: u64) {
        if let Some(known) = self.known.get_mut(id).filter(|known| known.hash == hash) {
            known.resource_version = resource_version;
        } else {
            let known = Known { hash: hash.to_owned(), resource_version, tolerated: Vec::new() };
            self.known.insert(id.clone(), known);
        }
    }

    pub(super) fn retain(&mut self, ids: &BTreeSet<ObjectId>) {
        self.known.retain(|id, _| ids.contains(id));
        self.drifted.retain(|id, _| ids.contains(id));
    }

    /// An object that was as desired no longer is, and what is desired has not changed: somebody else has written it.
    pub(super) fn drifted(
        &mut self,
        id: &ObjectId,
        hash: &str,
        differences: &[Difference],
        now: Moment,
    ) {
        if self.known.get(id).is_none_or(|known| known.hash != hash) {
            return;
        }
        let before = self.drifted.remove(id).filter(|drifted| drifted.is_recent(now));
        let repairs = before.map_or(0, |drifted| drifted.repairs).saturating_add(1);
        let path = differences.first().map(|one| one.path.clone()).unwrap_or_default();
        self.drifted.insert(id.clone(), Drifted { last: now, repairs, path });
    }

    /// Objects that were set back too often for an accident (k8s managers that fight do so for ever), until a window
    /// has passed without another repair.
    pub(super) fn contested(&mut self, now: Moment) -> Vec<Contested> {
        self.drifted.retain(|_, drifted| drifted.is_recent(now));
        let often = self.drifted.iter().filter(|(_, drifted)| drifted.repairs >= CONTEST_REPAIRS);
        often
            .map(|(id, drifted)| Contested {
                id: id.clone(),
                path: drifted.path.clone(),
                repairs: drifted.repairs,
                repaired: drifted.last == now,
            })
            .collect()
    }
}

impl Drifted {
    fn is_recent(&self, now: Moment) -> bool {
        now.saturating_sub(self.last) < CONTEST_WINDOW
    }
}
