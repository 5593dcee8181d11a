//! All that the server knows. Decides nothing.
//!
//! **Invariant:** one counter gives everything that has to be new: resourceVersions, uids, times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{DEFINITION, Id, Kind};
use crate::managers::Managers;
use crate::refusal::Refusal;

/// Events that are kept for watches; what is older is answered with 410.
const HISTORY_MAX: usize = 10_000;

/// The first second of 2000: time here is a counter of changes.
const EPOCH: i64 = 946_684_800;

/// One object.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) object: Arc<Value>,
    pub(crate) managers: Managers,
}

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) what: &'static str,
    pub(crate) id: Id,
    pub(crate) object: Arc<Value>,
}

/// The rest of a list that was asked for by pages.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    pub(crate) version: u64,
    pub(crate) objects: Vec<Arc<Value>>,
}

#[derive(Debug)]
pub(crate) struct State {
    kinds: Vec<Kind>,
    objects: BTreeMap<Id, Stored>,
    uids: BTreeSet<String>,
    history: VecDeque<Event>,
    /// Events up to this version are no longer kept.
    forgotten: u64,
    version: u64,
    /// Lists that are being read, by their `continue` token.
    pub(crate) rests: BTreeMap<String, Rest>,
    /// How often all watches were cut.
    pub(crate) cuts: u64,
    /// It does not stream lists.
    pub(crate) pages_only: bool,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            kinds: Kind::known(),
            objects: BTreeMap::new(),
            uids: BTreeSet::new(),
            history: VecDeque::new(),
            forgotten: 0,
            version: 1,
            rests: BTreeMap::new(),
            cuts: 0,
            pages_only: false,
        }
    }

    pub(crate) fn add_kind(&mut self, kind: Kind) {
        self.kinds.retain(|old| old.names() != kind.names());
        self.kinds.push(kind);
    }

    /// Those it knows, then those that a CRD defines.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.kinds.iter().cloned().chain(self.defined()).collect()
    }

    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let is_meant = |found: &Kind| found.names() == (api_version, kind);
        let known = self.kinds.iter().find(|known| is_meant(known)).cloned();
        known.or_else(|| self.defined().into_iter().find(is_meant))
    }

    /// The kinds that CRDs define and that are not known anyway.
    fn defined(&self) -> Vec<Kind> {
        let definitions = self.list(DEFINITION.0, DEFINITION.1, None);
        let defined = definitions.iter().flat_map(|definition| Kind::of_definition(definition));
        let is_new = |kind: &Kind| self.kinds.iter().all(|known| known.names() != kind.names());
        defined.filter(is_new).collect()
    }

    /// The version of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The uid of an object that is created by the next change.
    pub(crate) fn next_uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.version + 1)
    }

    /// The time of the next change.
    pub(crate) fn next_time(&self) -> String {
        let seconds = EPOCH.saturating_add_unsigned(self.version + 1);
        Timestamp::from_second(seconds).unwrap_or_default().to_string()
    }

    pub(crate) fn get(&self, id: &Id) -> Option<&Stored> {
        self.objects.get(id)
    }

    /// Whether an object with this uid exists.
    pub(crate) fn lives(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Id, &Stored)> {
        self.objects.iter()
    }

    /// The objects of a kind, by namespace and name.
    pub(crate) fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Vec<Arc<Value>> {
        let first = Id {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: String::new(),
        };
        self.objects
            .range(&first..)
            .take_while(|(id, _)| id.api_version == api_version && id.kind == kind)
            .filter(|(id, _)| namespace.is_none_or(|namespace| id.namespace == namespace))
            .map(|(_, stored)| Arc::clone(&stored.object))
            .collect()
    }

    /// Writes an object under the next version.
    pub(crate) fn put(&mut self, id: &Id, object: Value, managers: Managers) -> Arc<Value> {
        let what = if self.objects.contains_key(id) { "MODIFIED" } else { "ADDED" };
        let object = self.record(id, what, object);
        self.uids.extend(object["metadata"]["uid"].as_str().map(ToOwned::to_owned));
        self.objects.insert(id.clone(), Stored { object: Arc::clone(&object), managers });
        object
    }

    /// Removes an object; `last` is what it was.
    pub(crate) fn remove(&mut self, id: &Id, last: Value) -> Arc<Value> {
        let object = self.record(id, "DELETED", last);
        self.uids.remove(object["metadata"]["uid"].as_str().unwrap_or_default());
        self.objects.remove(id);
        object
    }

    fn record(&mut self, id: &Id, what: &'static str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(object);
        let (version, id) = (self.version, id.clone());
        self.history.push_back(Event { version, what, id, object: Arc::clone(&object) });
        while self.history.len() > HISTORY_MAX {
            self.forgotten = self.history.pop_front().map_or(0, |event| event.version);
        }
        object
    }

    /// What happened after a version.
    pub(crate) fn since(&self, version: u64) -> Result<impl Iterator<Item = &Event>, Refusal> {
        if version < self.forgotten {
            let message = format!("too old resource version: {version} ({})", self.forgotten);
            return Err(Refusal::expired(message));
        }
        let first = self.history.partition_point(|event| event.version <= version);
        Ok(self.history.range(first..))
    }

    /// Forgets what has happened so far, as etcd's compaction does.
    pub(crate) fn compact(&mut self) {
        self.forgotten = self.version;
        self.history.clear();
        self.rests.clear();
    }
}
