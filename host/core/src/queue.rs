//! The work queue: keyed, deduplicating, FIFO within a priority, fair between plugins, with delays and
//! per-key back-off. Stage *requeue*.
//!
//! Time comes in as a [`Moment`]; nothing here reads a clock.
//!
//! **Invariant:** a key is run by one worker at a time. **Invariant:** an event is never lost: a key that is
//! running when it arrives runs again afterwards. **Invariant:** events neither bypass nor inflate a key's
//! back-off, unless a user has changed the parent (kubernetes#132805, #136853).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::backoff;
use crate::ident::ObjectKey;
use crate::limits;

/// Time since the host started, monotonic.
pub type Moment = Duration;

/// A plugin's share of the queue.
pub type Lane = u32;

/// A parent of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParentKey {
    /// Whose parent.
    pub lane: Lane,
    /// Which parent.
    pub key: ObjectKey,
}

/// Why a key is in the queue; higher runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Everything again: the initial list, a swapped plugin.
    Sweep,
    /// A timer ran out: requeue-after, retry.
    Timer,
    /// Something the parent owns or reads has changed.
    Child,
    /// The parent itself was changed.
    User,
}

impl Priority {
    /// Every priority, lowest first.
    pub const ALL: [Self; 4] = [Self::Sweep, Self::Timer, Self::Child, Self::User];

    /// For metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Timer => "timer",
            Self::Child => "child",
            Self::User => "user",
        }
    }
}

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

#[derive(Debug, Default)]
struct Entry {
    /// Set while in `ready`.
    ready: Option<(Priority, u64)>,
    /// Set while in `delayed`.
    due: Option<(Moment, Priority)>,
    running: bool,
    /// An event that arrived during the run.
    dirty: Option<Priority>,
    failures: u32,
    /// Until then events do not bring the key back, only a user's change does.
    held_until: Moment,
}

#[derive(Debug)]
struct LaneState {
    concurrency: usize,
    running: usize,
}

/// The queue of all plugins.
#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<ParentKey, Entry>,
    ready: BTreeMap<Reverse<Priority>, BTreeMap<Lane, BTreeMap<u64, ObjectKey>>>,
    delayed: BTreeSet<(Moment, ParentKey)>,
    lanes: BTreeMap<Lane, LaneState>,
    last_lane: Lane,
    next_seq: u64,
}

impl Queue {
    /// Opens a plugin's lane, or changes how many of its parents run at once (at least one).
    pub fn open_lane(&mut self, lane: Lane, concurrency: usize) {
        let concurrency = concurrency.max(1);
        self.lanes
            .entry(lane)
            .and_modify(|state| state.concurrency = concurrency)
            .or_insert(LaneState { concurrency, running: 0 });
    }

    /// Something has changed that this parent depends on.
    pub fn push(&mut self, key: &ParentKey, priority: Priority, now: Moment) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.running {
            entry.dirty = entry.dirty.max(Some(priority));
            return;
        }
        if now < entry.held_until && priority != Priority::User {
            let until = entry.held_until;
            self.delay(key, until, priority);
            return;
        }
        self.make_ready(key, priority);
    }

    /// Run this parent at a later time; the earlier of two wishes wins.
    pub fn push_at(&mut self, key: &ParentKey, at: Moment, priority: Priority) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.ready.is_none() {
            let at = at.max(entry.held_until);
            self.delay(key, at, priority);
        }
    }

    /// The next key to run, marked as running. Call [`Queue::done`] when it ends.
    pub fn pop(&mut self, now: Moment) -> Option<(ParentKey, Priority)> {
        self.promote(now);
        let (priority, lane, seq) = self.choose()?;
        let lanes = self.ready.get_mut(&Reverse(priority))?;
        let waiting = lanes.get_mut(&lane)?;
        let key = ParentKey { lane, key: waiting.remove(&seq)? };
        if waiting.is_empty() {
            lanes.remove(&lane);
        }
        self.last_lane = lane;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.ready = None;
        entry.running = true;
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.running += 1;
        }
        if let Some((at, _)) = self.entries.get_mut(&key).and_then(|entry| entry.due.take()) {
            self.delayed.remove(&(at, key.clone()));
        }
        Some((key, priority))
    }

    /// Ends the run of a key.
    pub fn done(&mut self, key: &ParentKey, how: Done, now: Moment) {
        if let Some(state) = self.lanes.get_mut(&key.lane) {
            state.running = state.running.saturating_sub(1);
        }
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.running = false;
        let dirty = entry.dirty.take();
        let wish = match how {
            Done::Succeeded(after) => {
                entry.failures = 0;
                entry.held_until = now;
                after.map(|after| now + after.max(limits::REQUEUE_FLOOR))
            }
            Done::Failed => {
                entry.failures = entry.failures.saturating_add(1);
                entry.held_until = now + backoff::delay(entry.failures);
                Some(entry.held_until)
            }
            Done::Stopped(heartbeat) => {
                entry.held_until = now;
                Some(now + heartbeat)
            }
            Done::Deferred(after) => Some(now + after),
        };
        if let Some(at) = wish {
            self.delay(key, at, Priority::Timer);
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
            entry.dirty = None;
            entry.failures = 0;
            entry.held_until = Moment::ZERO;
        }
        self.drop_if_idle(key);
    }

    /// Forgets every parent of a lane.
    pub fn close_lane(&mut self, lane: Lane) {
        let keys: Vec<_> = self.entries.keys().filter(|key| key.lane == lane).cloned().collect();
        for key in keys {
            self.forget(&key);
        }
        if self.lanes.get(&lane).is_some_and(|state| state.running == 0) {
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

    /// Keys waiting to run now, by lane and priority.
    pub fn depth(&self) -> impl Iterator<Item = (Lane, Priority, usize)> + '_ {
        self.ready.iter().flat_map(|(priority, lanes)| {
            lanes.iter().map(move |(lane, waiting)| (*lane, priority.0, waiting.len()))
        })
    }

    /// Keys waiting for a time.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    fn make_ready(&mut self, key: &ParentKey, priority: Priority) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        match entry.ready {
            Some((current, _)) if current >= priority => return,
            Some(_) | None => {}
        }
        self.take_out(key);
        let seq = self.next_seq;
        self.next_seq += 1;
        let lanes = self.ready.entry(Reverse(priority)).or_default();
        lanes.entry(key.lane).or_default().insert(seq, key.key.clone());
        if let Some(entry) = self.entries.get_mut(key) {
            entry.ready = Some((priority, seq));
        }
    }

    fn delay(&mut self, key: &ParentKey, at: Moment, priority: Priority) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
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
        while let Some((at, key)) = self.delayed.first().cloned() {
            if at > now {
                return;
            }
            self.delayed.remove(&(at, key.clone()));
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            let priority = entry.due.take().map_or(Priority::Timer, |(_, priority)| priority);
            if entry.running {
                entry.dirty = entry.dirty.max(Some(priority));
            } else {
                self.make_ready(&key, priority);
            }
        }
    }

    /// Highest priority first; within it the next lane in turn that has a worker left; within that the oldest.
    fn choose(&self) -> Option<(Priority, Lane, u64)> {
        self.ready.iter().find_map(|(Reverse(priority), lanes)| {
            let after = lanes.range(self.last_lane.saturating_add(1)..);
            let before = lanes.range(..=self.last_lane);
            let (lane, waiting) = after.chain(before).find(|(lane, _)| self.has_room(**lane))?;
            waiting.first_key_value().map(|(seq, _)| (*priority, *lane, *seq))
        })
    }

    fn has_room(&self, lane: Lane) -> bool {
        self.lanes.get(&lane).is_some_and(|state| state.running < state.concurrency)
    }

    fn take_out(&mut self, key: &ParentKey) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if let Some((at, _)) = entry.due.take() {
            self.delayed.remove(&(at, key.clone()));
        }
        let Some((priority, seq)) = entry.ready.take() else {
            return;
        };
        let Some(lanes) = self.ready.get_mut(&Reverse(priority)) else {
            return;
        };
        if let Some(waiting) = lanes.get_mut(&key.lane) {
            waiting.remove(&seq);
            if waiting.is_empty() {
                lanes.remove(&key.lane);
            }
        }
    }

    fn drop_if_idle(&mut self, key: &ParentKey) {
        let idle = self.entries.get(key).is_some_and(|entry| {
            entry.ready.is_none() && entry.due.is_none() && !entry.running && entry.failures == 0
        });
        if idle {
            self.entries.remove(key);
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
