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
use host_core::queue::{
    Done, KeyReport, Lane, LaneReport, Moment, ParentKey, Popped, Priority, Queue,
};
use host_core::snapshot::Outcome;
use host_kube::Change;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::last_run::{Cause, LastRun};

/// What is remembered between two runs of one parent. Losing it costs a little work, never correctness.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What became of the last decision.
    pub(crate) previous: Option<Arc<Outcome>>,
    /// What was learnt about how the API server writes things.
    pub(crate) memory: Memory,
}

/// One run to be made.
#[derive(Debug)]
pub(crate) struct Work {
    /// Which parent, and how it came up.
    pub(crate) popped: Popped,
    /// Why.
    pub(crate) cause: Cause,
    /// What its last run has left.
    pub(crate) record: Record,
}

/// What is known of one parent beside its objects.
#[derive(Debug)]
pub(crate) struct ParentReport {
    /// What it is waiting for.
    pub(crate) queue: KeyReport,
    /// How long until its delay ends.
    pub(crate) due_in: Option<std::time::Duration>,
    /// Why it will run, when something is known already.
    pub(crate) cause: Option<Cause>,
    /// What its last run has read.
    pub(crate) reads: Vec<Interest>,
    /// Writes that the cache does not show yet.
    pub(crate) unseen: Vec<ObjectId>,
    /// Its last run.
    pub(crate) last: Option<Arc<LastRun>>,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    interests: Interests,
    expectations: Expectations,
    records: BTreeMap<ParentKey, Record>,
    causes: BTreeMap<ParentKey, Cause>,
    last: BTreeMap<ParentKey, Arc<LastRun>>,
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
    clock: Clock,
}

impl Dispatch {
    /// Runs at most so many parents at once; the seed spreads waits.
    pub(crate) fn new(concurrency: usize, seed: u64, clock: Clock) -> Self {
        let state = State {
            queue: Queue::new(concurrency, seed),
            interests: Interests::default(),
            expectations: Expectations::default(),
            records: BTreeMap::new(),
            causes: BTreeMap::new(),
            last: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            lanes: BTreeMap::new(),
        };
        Self { state: Mutex::new(state), wake: Notify::new(), clock }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in pure bookkeeping code must not stop every plugin.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.clock.elapsed()
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
            state.push(&key, Priority::Sweep, Cause::Sweep, now);
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
    pub(crate) async fn next(&self) -> Work {
        loop {
            let due = {
                let mut state = self.lock();
                if let Some(popped) = state.queue.pop(self.now()) {
                    let record = state.records.remove(&popped.key).unwrap_or_default();
                    let cause = state.causes.remove(&popped.key).unwrap_or(Cause::Timer);
                    return Work { popped, cause, record };
                }
                state.queue.next_due()
            };
            match due {
                Some(due) => {
                    tokio::select! {
                        () = self.wake.notified() => {}
                        () = tokio::time::sleep_until(self.clock.instant(due)) => {}
                    }
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Ends a run.
    pub(crate) fn done(&self, key: &ParentKey, record: Record, how: Done, last: Option<LastRun>) {
        let now = self.now();
        let mut state = self.lock();
        // A parent that never runs again by itself is gone or going: there is nothing to remember.
        if how != Done::Succeeded(None) {
            state.records.insert(key.clone(), record);
            match last {
                // It has not run yet: what it is to run for stays.
                Some(last) if matches!(how, Done::Deferred(_)) => {
                    state.causes.entry(key.clone()).or_insert(last.cause);
                }
                Some(last) => {
                    state.last.insert(key.clone(), Arc::new(last));
                }
                None => {}
            }
        }
        state.queue.done(key, how, now);
        drop(state);
        self.wake.notify_one();
    }

    /// Forgets a parent that no longer exists.
    pub(crate) fn forget(&self, key: &ParentKey) {
        self.lock().forget(key);
    }

    /// What the last run of a parent has left, to plan from it without acting. Nothing while it runs.
    pub(crate) fn peek(&self, key: &ParentKey) -> (Option<Arc<Outcome>>, Memory) {
        let state = self.lock();
        let record = state.records.get(key);
        record.map(|one| (one.previous.clone(), one.memory.clone())).unwrap_or_default()
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

    /// How a plugin's share of the queue is doing.
    pub(crate) fn report(&self, lane: Lane) -> Option<LaneReport> {
        let now = self.now();
        self.lock().queue.report(lane, now)
    }

    /// Parents waiting for a time.
    pub(crate) fn delayed(&self) -> usize {
        self.lock().queue.delayed()
    }

    /// What is known of one parent.
    pub(crate) fn report_parent(&self, key: &ParentKey) -> ParentReport {
        let now = self.now();
        let state = self.lock();
        let queue = state.queue.report_key(key, now);
        ParentReport {
            queue,
            due_in: queue.due.map(|due| due.saturating_sub(now)),
            cause: state.causes.get(key).cloned(),
            reads: state.interests.of(key).cloned().collect(),
            unseen: state.expectations.pending(key).cloned().collect(),
            last: state.last.get(key).map(Arc::clone),
        }
    }
}

impl State {
    fn push(&mut self, key: &ParentKey, priority: Priority, cause: Cause, now: Moment) {
        self.causes.entry(key.clone()).or_insert(cause);
        self.queue.push(key, priority, now);
    }

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
                self.push(&key, priority, Cause::of(change), now);
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
        // Its own writes wake a parent, too: only now does its plugin see what has become of them.
        let priority = if change.initial { Priority::Sweep } else { Priority::Child };
        for key in woken {
            self.push(&key, priority, Cause::of(change), now);
        }
    }

    fn forget(&mut self, key: &ParentKey) {
        self.queue.forget(key);
        self.interests.forget(key);
        self.expectations.forget(key);
        self.records.remove(key);
        self.causes.remove(key);
        self.last.remove(key);
    }
}
