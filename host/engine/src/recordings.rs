//! The last runs of each parent, as the plugin saw them: what a shadow run answers from, and what `plugin replay`
//! runs again.
//!
//! **Invariant:** bounded in bytes; the oldest go first. What they hold is shared with the cache as long as nothing
//! has changed.
//! **Invariant:** no Secret: a snapshot never has one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use host_core::decision::RawDecision;
use host_core::queue::ParentKey;
use host_core::snapshot::{Answer, Reply, Snapshot};

/// Runs of one parent that are remembered.
const RUNS_PER_PARENT: usize = 3;

/// Bytes of all of them: 4 MiB are the last run of 200 clusters of Redis, whose objects the cache holds anyway.
const BYTES_MAX: usize = 4 << 20;

/// One run.
#[derive(Debug)]
pub(crate) struct Recording {
    /// By which revision, as people read it.
    pub(crate) plugin: String,
    /// What the plugin saw, all answers included.
    pub(crate) snapshot: Arc<Snapshot>,
    /// What it decided, or why it did not.
    pub(crate) end: Result<RawDecision, String>,
    /// How long it took, its probes included, in microseconds.
    pub(crate) took_us: u64,
    bytes: usize,
}

impl Recording {
    pub(crate) fn new(
        plugin: String,
        snapshot: Arc<Snapshot>,
        end: Result<RawDecision, String>,
        took: std::time::Duration,
    ) -> Self {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bytes = bytes(&snapshot, &end);
        Self { plugin, snapshot, end, took_us, bytes }
    }
}

/// About as much as it takes.
fn bytes(snapshot: &Snapshot, end: &Result<RawDecision, String>) -> usize {
    let answers: usize = snapshot
        .answers
        .iter()
        .map(|answer| match &answer.reply {
            Reply::Objects(objects) => objects.iter().map(|one| one.object.json.len()).sum(),
            Reply::Probe(json) => json.len(),
        })
        .sum();
    let children: usize = snapshot.children.iter().map(|child| child.object.json.len()).sum();
    let decided = match end {
        Ok(decision) => {
            let objects: usize = decision.objects.iter().map(|object| object.body.len()).sum();
            objects + decision.status.as_ref().map_or(0, String::len)
        }
        Err(why) => why.len(),
    };
    512 + snapshot.parent.object.json.len() + children + answers + decided
}

#[derive(Debug, Default)]
struct Kept {
    runs: BTreeMap<ParentKey, VecDeque<Arc<Recording>>>,
    /// In the order they came; some may be gone from `runs` already.
    order: VecDeque<ParentKey>,
    bytes: usize,
}

/// All recordings.
#[derive(Debug, Default)]
pub(crate) struct Recordings(Mutex<Kept>);

impl Recordings {
    /// Keeps a run.
    pub(crate) fn push(&self, key: &ParentKey, recording: Recording) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += recording.bytes;
        kept.order.push_back(key.clone());
        let runs = kept.runs.entry(key.clone()).or_default();
        runs.push_back(Arc::new(recording));
        let excess = if runs.len() > RUNS_PER_PARENT { runs.pop_front() } else { None };
        if let Some(old) = excess {
            kept.bytes -= old.bytes;
        }
        while kept.bytes > BYTES_MAX
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.drop_oldest_of(&oldest);
        }
        // An order that names what is long gone would grow for ever.
        if kept.order.len() > 4 * RUNS_PER_PARENT * kept.runs.len().max(16) {
            let runs = std::mem::take(&mut kept.runs);
            kept.order =
                runs.iter().flat_map(|(key, runs)| runs.iter().map(|_| key.clone())).collect();
            kept.runs = runs;
        }
    }

    /// What is known of a parent's last runs, the newest last.
    pub(crate) fn of(&self, key: &ParentKey) -> Vec<Arc<Recording>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.runs.get(key).into_iter().flatten().cloned().collect()
    }

    /// What a provider said in the last run of a parent.
    pub(crate) fn probes(&self, key: &ParentKey) -> Vec<Answer> {
        let last = self.of(key).pop();
        let answers = last.iter().flat_map(|last| &last.snapshot.answers);
        answers.filter(|answer| matches!(answer.reply, Reply::Probe(_))).cloned().collect()
    }

    /// Forgets a parent that is gone.
    pub(crate) fn forget(&self, key: &ParentKey) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for recording in kept.runs.remove(key).unwrap_or_default() {
            kept.bytes -= recording.bytes;
        }
    }
}

impl Kept {
    fn drop_oldest_of(&mut self, key: &ParentKey) {
        let Some(runs) = self.runs.get_mut(key) else { return };
        if let Some(old) = runs.pop_front() {
            self.bytes -= old.bytes;
        }
        if runs.is_empty() {
            self.runs.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use host_core::ident::{Kind, ObjectKey};
    use host_core::object::StoredObject;
    use host_core::snapshot::Observed;

    use super::*;

    fn key(name: &str) -> ParentKey {
        ParentKey { lane: 0, key: ObjectKey::new("n", name) }
    }

    fn recording(bytes: usize) -> Recording {
        let kind = Kind::new("v1", "Demo");
        let text = format!(r#"{{"metadata":{{"name":"a"}},"data":"{}"}}"#, "x".repeat(bytes));
        let object = Arc::new(StoredObject::parse(&kind, &text).unwrap());
        let snapshot = Snapshot {
            now: String::new(),
            parent: Observed { kind: Arc::new(kind), object },
            children: Vec::new(),
            answers: Vec::new(),
            previous: None,
            config: Vec::new(),
        };
        let end = Ok(RawDecision::default());
        Recording::new("demo".to_owned(), Arc::new(snapshot), end, std::time::Duration::ZERO)
    }

    #[test]
    fn keeps_the_last_runs_of_a_parent_within_its_bound() {
        let recordings = Recordings::default();
        for _ in 0..10 {
            recordings.push(&key("a"), recording(10));
        }
        assert_eq!(recordings.of(&key("a")).len(), RUNS_PER_PARENT);
        for number in 0..100 {
            recordings.push(&key(&number.to_string()), recording(100_000));
        }
        assert!(recordings.of(&key("a")).is_empty(), "the oldest goes first");
        assert_eq!(recordings.of(&key("99")).len(), 1);
        assert!(recordings.0.lock().unwrap().bytes <= BYTES_MAX);
        for number in 0..100 {
            recordings.forget(&key(&number.to_string()));
        }
        assert_eq!(recordings.0.lock().unwrap().bytes, 0);
    }
}
