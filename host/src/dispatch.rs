//! From a change in the cluster to the parents that must run: the queue, what each parent has read, what it has
//! written, and what is remembered of its last run. Everything that decides is in core; this is the lock around it.
//!
//! **Invariant:** the lock is never held across an await or a call into a plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host_core::expectations::{Expectations, Expected, Seen};
use host_core::ident::{Kind, ObjectId};
use host_core::interest::{Interest, Interests};
use host_core::object::StoredObject;
use host_core::plan::Memory;
use host_core::queue::{Done, Lane, Moment, ParentKey, Priority, Queue};
use host_core::snapshot::Outcome;
use host_kube::Change;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What is remembered between two runs of one parent. Losing it costs a little work, never correctness.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What became of the last decision.
    pub(crate) previous: Option<Arc<Outcome>>,
    /// What was learnt about how the API server writes things.
    pub(crate) memory: Memory,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    interests: Interests,
    expectations: Expectations,
    records: BTreeMap<ParentKey, Record>,
    /// Parents by uid, to find the owner of a child.
    by_uid: BTreeMap<Box<str>, BTreeSet<ParentKey>>,
    /// Which lanes reconcile which parent kind.
    lanes: BTreeMap<Kind, BTreeSet<Lane>>,
}

/// The shared dispatcher.
#[derive(Debug)]
pub(crate) struct Dispatch {
    state: Mutex<State>,
    wake: Notify,
    start: Instant,
}

impl Dispatch {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), wake: Notify::new(), start: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in pure bookkeeping code must not stop every plugin.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.start.elapsed()
    }

    /// Opens a plugin's lane for a parent kind, or changes its concurrency.
    pub(crate) fn open_lane(&self, lane: Lane, parent: &Kind, concurrency: usize) {
        let mut state = self.lock();
        for lanes in state.lanes.values_mut() {
            lanes.remove(&lane);
        }
        state.lanes.entry(parent.clone()).or_default().insert(lane);
        state.queue.open_lane(lane, concurrency);
    }

    /// Runs these parents again, behind everything else.
    pub(crate) fn sweep(&self, lane: Lane, parents: impl IntoIterator<Item = Arc<StoredObject>>) {
        let now = self.now();
        let mut state = self.lock();
        for parent in parents {
            let key = ParentKey { lane, key: parent.key.clone() };
            state.by_uid.entry(parent.uid.clone()).or_default().insert(key.clone());
            state.queue.push(&key, Priority::Sweep, now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// A change in the cluster: wakes the parent itself, the owner of a child, and whoever has read it.
    pub(crate) fn changed(&self, change: &Change) {
        let now = self.now();
        let mut state = self.lock();
        state.parent_changed(change, now);
        state.child_changed(change, now);
        drop(state);
        self.wake.notify_one();
    }

    /// The next parent to run, once there is one. Cancel-safe.
    pub(crate) async fn next(&self) -> (ParentKey, Priority, Record) {
        loop {
            let due = {
                let mut state = self.lock();
                if let Some((key, priority)) = state.queue.pop(self.now()) {
                    let record = state.records.remove(&key).unwrap_or_default();
                    return (key, priority, record);
                }
                state.queue.next_due()
            };
            match due {
                Some(due) => {
                    tokio::select! {
                        () = self.wake.notified() => {}
                        () = tokio::time::sleep_until(self.start + due) => {}
                    }
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Ends a run.
    pub(crate) fn done(&self, key: &ParentKey, record: Record, how: Done) {
        let now = self.now();
        let mut state = self.lock();
        // A parent that never runs again by itself is gone or going: there is nothing to remember.
        if how != Done::Succeeded(None) {
            state.records.insert(key.clone(), record);
        }
        state.queue.done(key, how, now);
        drop(state);
        self.wake.notify_one();
    }

    /// Forgets a parent that no longer exists.
    pub(crate) fn forget(&self, key: &ParentKey) {
        self.lock().forget(key);
    }

    /// Remembers what a run has read.
    pub(crate) fn remember_reads(&self, key: &ParentKey, interests: BTreeSet<Interest>) {
        self.lock().interests.set(key, interests);
    }

    /// Remembers what a run has written.
    pub(crate) fn remember_writes(&self, key: &ParentKey, writes: Vec<(ObjectId, Expected)>) {
        let now = self.now();
        self.lock().expectations.expect(key.clone(), writes, now);
    }

    /// Whether the cache shows what the last run has written.
    pub(crate) fn is_fresh(
        &self,
        key: &ParentKey,
        seen: impl Fn(&ObjectId) -> Option<Seen>,
    ) -> bool {
        let now = self.now();
        self.lock().expectations.satisfied(key, now, seen)
    }

    /// Waiting keys by lane and priority, and delayed keys.
    pub(crate) fn depth(&self) -> (Vec<(Lane, Priority, usize)>, usize) {
        let state = self.lock();
        (state.queue.depth().collect(), state.queue.delayed())
    }
}

impl State {
    fn parent_changed(&mut self, change: &Change, now: Moment) {
        let lanes: Vec<Lane> =
            self.lanes.get(&*change.kind).into_iter().flatten().copied().collect();
        for lane in lanes {
            let key = ParentKey { lane, key: change.key.clone() };
            if let Some(old) = &change.old
                && change.new.as_ref().is_none_or(|new| new.uid != old.uid)
            {
                self.by_uid.remove(&old.uid);
            }
            let Some(new) = &change.new else {
                self.forget(&key);
                continue;
            };
            self.by_uid.entry(new.uid.clone()).or_default().insert(key.clone());
            let status_only = change.old.as_ref().is_some_and(|old| new.same_but_status(old));
            if !status_only {
                let priority = if change.initial { Priority::Sweep } else { Priority::User };
                self.queue.push(&key, priority, now);
            }
        }
    }

    fn child_changed(&mut self, change: &Change, now: Moment) {
        let sides = || change.old.iter().chain(&change.new);
        let owners = sides().filter_map(|object| object.controller().map(|owner| &owner.uid));
        let marks =
            sides().filter_map(|object| object.applied.as_ref().map(|mark| &mark.parent_uid));
        let mut woken: BTreeSet<ParentKey> =
            owners.chain(marks).filter_map(|uid| self.by_uid.get(uid)).flatten().cloned().collect();
        woken.extend(self.interests.woken_by(
            &change.kind,
            change.old.as_deref(),
            change.new.as_deref(),
        ));
        if woken.is_empty() {
            return;
        }
        let id = ObjectId { kind: Kind::clone(&change.kind), key: change.key.clone() };
        for key in woken {
            let own = change
                .new
                .as_ref()
                .is_some_and(|new| self.expectations.is_own_write(&key, &id, new.resource_version));
            if !own {
                let priority = if change.initial { Priority::Sweep } else { Priority::Child };
                self.queue.push(&key, priority, now);
            }
        }
    }

    fn forget(&mut self, key: &ParentKey) {
        self.queue.forget(key);
        self.interests.forget(key);
        self.expectations.forget(key);
        self.records.remove(key);
    }
}
