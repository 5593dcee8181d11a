//! The work queue: keyed, deduplicating, fair, with priorities, delays, per-key back-off and a breaker for keys that
//! run hot. Stage *requeue*.
//!
//! Time comes in as a [`Moment`] and chance as a seed; nothing here reads either.
//!
//! **Invariant:** a key is run by one worker at a time. **Invariant:** an event is never lost: a key that is
//! running when it arrives runs again afterwards, and the breaker only delays. **Invariant:** events neither bypass
//! nor inflate a key's back-off, unless a user has changed the parent (kubernetes#132805, #136853).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::backoff;
use crate::chance;
use crate::ident::ObjectKey;
use crate::limits;

mod circuit;
mod key;
mod ready;

use circuit::Circuit;
use ready::{Place, Ready};

pub use crate::moment::Moment;
pub use key::{Lane, ParentKey, Priority};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Well: failures are forgotten. Run again after the given time, if any.
    Succeeded(Option<Duration>),
    /// Badly: retried with back-off.
    Failed,
    /// Badly, and only a change or a slow heartbeat can help.
    Stopped(Duration),
    /// Not at all: something was not known yet. Tried again after the given time; counts neither way.
    Deferred(Duration),
}

/// A key that is to be run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popped {
    /// Which parent.
    pub key: ParentKey,
    /// Why.
    pub priority: Priority,
    /// How long it was ready and had no worker.
    pub waited: Duration,
    /// Whether its breaker is open.
    pub hot: bool,
}

#[derive(Debug, Default)]
struct Entry {
    /// Set while in `ready`, with the moment it came there first.
    ready: Option<(Place, Moment)>,
    /// Set while in `delayed`.
    due: Option<(Moment, Priority)>,
    /// An event that arrived during the run.
    dirty: Option<Priority>,
    failures: u32,
    /// Until then events do not bring the key back, only a user's change does.
    held_until: Moment,
    circuit: Circuit,
}

#[derive(Debug)]
struct LaneState {
    concurrency: usize,
    running: BTreeMap<ObjectKey, Moment>,
    adds: u64,
    retries: u64,
    hot: BTreeSet<ObjectKey>,
}

/// How one plugin's share of the queue is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneReport {
    /// Keys ready to run, by priority in the order of [`Priority::ALL`].
    pub depth: [usize; 4],
    /// Keys that have become ready so far.
    pub adds: u64,
    /// Runs so far that failed and are to be tried again.
    pub retries: u64,
    /// How many may run at once.
    pub concurrency: usize,
    /// How long the running ones have been running, added up.
    pub unfinished: Duration,
    /// How long the longest of them has.
    pub longest: Duration,
    /// Keys whose breaker is open.
    pub hot: usize,
}

/// What a key is waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyReport {
    /// Whether it is being run.
    pub running: bool,
    /// With which priority it is ready.
    pub ready: Option<Priority>,
    /// When its delay ends.
    pub due: Option<Moment>,
    /// Failures in a row.
    pub failures: u32,
    /// Whether its breaker is open.
    pub hot: bool,
}

/// The queue of all plugins.
#[derive(Debug)]
pub struct Queue {
    entries: BTreeMap<ParentKey, Entry>,
    ready: Ready,
    delayed: BTreeSet<(Moment, ParentKey)>,
    lanes: BTreeMap<Lane, LaneState>,
    concurrency: usize,
    seed: u64,
}

impl Queue {
    /// An empty queue that runs at most so many keys at once (at least one). The seed spreads waits.
    pub fn new(concurrency: usize, seed: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            ready: Ready::default(),
            delayed: BTreeSet::new(),
            lanes: BTreeMap::new(),
            concurrency: concurrency.max(1),
            seed,
        }
    }

    /// Opens a plugin's lane, or changes how many of its parents run at once (at least one).
    pub fn open_lane(&mut self, lane: Lane, concurrency: usize) {
        let concurrency = concurrency.max(1);
        self.lanes.entry(lane).and_modify(|state| state.concurrency = concurrency).or_insert(
            LaneState {
                concurrency,
                running: BTreeMap::new(),
                adds: 0,
                retries: 0,
                hot: BTreeSet::new(),
            },
        );
    }

    /// Something has changed that this parent depends on.
    pub fn push(&mut self, key: &ParentKey, priority: Priority, now: Moment) {
        let running = self.is_running(key);
        let entry = self.entries.entry(key.clone()).or_default();
        if running {
            entry.dirty = entry.dirty.max(Some(priority));
            return;
        }
        if now < entry.held_until && priority != Priority::User {
            let until = entry.held_until;
            self.delay(key, until, priority);
            return;
        }
        self.make_ready(key, priority, now);
    }

    /// The next key to run, marked as running. Call [`Queue::done`] when it ends.
    pub fn pop(&mut self, now: Moment) -> Option<Popped> {
        self.promote(now);
        let running: usize = self.lanes.values().map(|lane| lane.running.len()).sum();
        if running >= self.concurrency {
            return None;
        }
        let lanes = &self.lanes;
        let has_room = |lane: Lane| {
            lanes.get(&lane).is_some_and(|state| state.running.len() < state.concurrency)
        };
        let (key, priority) = self.ready.pop(has_room)?;
        if let Some(state) = self.lanes.get_mut(&key.lane) {
            state.running.insert(key.key.clone(), now);
        }
        let entry = self.entries.entry(key.clone()).or_default();
        let since = entry.ready.take().map_or(now, |(_, since)| since);
        let hot = entry.circuit.is_open(now);
        if let Some((at, _)) = entry.due.take() {
            self.delayed.remove(&(at, key.clone()));
        }
        Some(Popped { key, priority, waited: now.saturating_sub(since), hot })
    }

    /// Ends the run of a key.
    pub fn done(&mut self, key: &ParentKey, how: Done, now: Moment) {
        if let Some(state) = self.lanes.get_mut(&key.lane) {
            state.running.remove(&key.key);
            state.retries += u64::from(how == Done::Failed);
        }
        let Some(entry) = self.entries.get_mut(key) else { return };
        let wait = match how {
            Done::Succeeded(after) => {
                entry.failures = 0;
                after.map(|after| after.max(limits::REQUEUE_FLOOR))
            }
            Done::Failed => {
                entry.failures = entry.failures.saturating_add(1);
                Some(backoff::delay(entry.failures))
            }
            Done::Stopped(after) | Done::Deferred(after) => Some(after),
        };
        let due = wait.map(|wait| now + spread(self.seed, key, wait, now));
        match how {
            Done::Failed => entry.held_until = due.unwrap_or(now),
            Done::Succeeded(_) | Done::Stopped(_) => entry.held_until = now,
            Done::Deferred(_) => {}
        }
        // Waiting for the cache costs nothing, however often.
        let opened = !matches!(how, Done::Deferred(_)) && entry.circuit.charge(now);
        let dirty = entry.dirty.take();
        if let (true, Some(state)) = (opened, self.lanes.get_mut(&key.lane)) {
            state.hot.insert(key.key.clone());
        }
        if let Some(due) = due {
            self.delay(key, due, Priority::Timer);
        }
        if let Some(priority) = dirty {
            self.push(key, priority, now);
        }
        self.drop_if_idle(key);
    }

    /// Forgets a parent that is gone. A run in progress ends by itself.
    pub fn forget(&mut self, key: &ParentKey) {
        self.take_out(key);
        if let Some(entry) = self.entries.get_mut(key) {
            *entry = Entry::default();
        }
        if let Some(state) = self.lanes.get_mut(&key.lane) {
            state.hot.remove(&key.key);
        }
        self.drop_if_idle(key);
    }

    /// Forgets every parent of a lane.
    pub fn close_lane(&mut self, lane: Lane) {
        let keys: Vec<_> = self.entries.keys().filter(|key| key.lane == lane).cloned().collect();
        for key in keys {
            self.forget(&key);
        }
        self.ready.close(lane);
        if self.lanes.get(&lane).is_some_and(|state| state.running.is_empty()) {
            self.lanes.remove(&lane);
        }
    }

    /// When the next delayed key is due; None when nothing is delayed.
    pub fn next_due(&self) -> Option<Moment> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Failures in a row of a key.
    pub fn failures(&self, key: &ParentKey) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// How a plugin's share is doing; None when it has none.
    pub fn report(&self, lane: Lane, now: Moment) -> Option<LaneReport> {
        let state = self.lanes.get(&lane)?;
        let ages = || state.running.values().map(|since| now.saturating_sub(*since));
        let is_hot = |key: &&ObjectKey| {
            let key = ParentKey { lane, key: (*key).clone() };
            self.entries.get(&key).is_some_and(|entry| entry.circuit.is_open(now))
        };
        Some(LaneReport {
            depth: Priority::ALL.map(|priority| self.ready.depth(lane, priority)),
            adds: state.adds,
            retries: state.retries,
            concurrency: state.concurrency,
            unfinished: ages().sum(),
            longest: ages().max().unwrap_or_default(),
            hot: state.hot.iter().filter(is_hot).count(),
        })
    }

    /// What a key is waiting for.
    pub fn report_key(&self, key: &ParentKey, now: Moment) -> KeyReport {
        let Some(entry) = self.entries.get(key) else { return KeyReport::default() };
        KeyReport {
            running: self.is_running(key),
            ready: entry.ready.map(|(place, _)| place.priority),
            due: entry.due.map(|(at, _)| at),
            failures: entry.failures,
            hot: entry.circuit.is_open(now),
        }
    }

    /// Keys waiting for a time.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    fn is_running(&self, key: &ParentKey) -> bool {
        self.lanes.get(&key.lane).is_some_and(|state| state.running.contains_key(&key.key))
    }

    fn make_ready(&mut self, key: &ParentKey, priority: Priority, now: Moment) {
        let Some(entry) = self.entries.get(key) else { return };
        let allowed_at = entry.circuit.allowed_at();
        if now < allowed_at {
            self.delay(key, allowed_at, priority);
            return;
        }
        if entry.ready.is_some_and(|(place, _)| place.priority >= priority) {
            return;
        }
        let since = entry.ready.map(|(_, since)| since);
        if let (None, Some(state)) = (since, self.lanes.get_mut(&key.lane)) {
            state.adds += 1;
        }
        self.take_out(key);
        let place = self.ready.insert(key, priority);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.ready = Some((place, since.unwrap_or(now)));
        }
    }

    fn delay(&mut self, key: &ParentKey, at: Moment, priority: Priority) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let at = at.max(entry.circuit.allowed_at());
        let (at, priority) = match entry.due {
            None => (at, priority),
            Some((earlier, other)) => {
                self.delayed.remove(&(earlier, key.clone()));
                (at.min(earlier), priority.max(other))
            }
        };
        entry.due = Some((at, priority));
        self.delayed.insert((at, key.clone()));
    }

    fn promote(&mut self, now: Moment) {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, key)) = self.delayed.pop_first()
        {
            let running = self.is_running(&key);
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let priority = entry.due.take().map_or(Priority::Timer, |(_, priority)| priority);
            if running {
                entry.dirty = entry.dirty.max(Some(priority));
            } else {
                self.make_ready(&key, priority, now);
            }
        }
    }

    fn take_out(&mut self, key: &ParentKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Some((at, _)) = entry.due.take() {
            self.delayed.remove(&(at, key.clone()));
        }
        if let Some((place, _)) = entry.ready.take() {
            self.ready.remove(key, place);
        }
    }

    fn drop_if_idle(&mut self, key: &ParentKey) {
        let idle = self.entries.get(key).is_some_and(|entry| {
            entry.ready.is_none() && entry.due.is_none() && entry.failures == 0
        });
        if idle && !self.is_running(key) {
            self.entries.remove(key);
        }
    }
}

/// A wait, up to a tenth longer: what failed or was listed together does not come back together.
fn spread(seed: u64, key: &ParentKey, wait: Duration, now: Moment) -> Duration {
    let share = u32::try_from(chance::below((seed, key, now), 1_000)).unwrap_or(0);
    wait + (wait / 10).min(limits::REQUEUE_SPREAD_MAX) * share / 1_000
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
