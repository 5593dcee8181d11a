//! The faults, and the rules that say to which requests they happen.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::exchange::Asked;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answered with this code, and the server is not asked. 429 and 503 carry `Retry-After: 1`.
    Refuse(u16),
    /// Forwarded this much later.
    Delay(Duration),
    /// Never answered; when the fault is taken back the connection is closed.
    Hang,
    /// The connection is closed without an answer, and the server is not asked.
    Disconnect,
    /// A watch opens and ends at once, with nothing in it.
    EndAtOnce,
    /// A watch opens and its first event is the error 410 Expired.
    ExpireInStream,
    /// Events of a watch arrive this much later.
    Lag(Duration),
}

/// Where in a write a [`Trap`] springs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server has not been asked, and is not.
    BeforeServer,
    /// The server has answered, and the host does not hear it.
    BeforeHost,
}

type Matches = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

struct Rule {
    number: u64,
    matches: Matches,
    fault: Fault,
    hits: Arc<AtomicUsize>,
    over: Arc<Notify>,
}

struct Snare {
    number: u64,
    matches: Matches,
    left: usize,
    moment: Moment,
    spring: Box<dyn FnOnce() + Send>,
    sprung: Arc<AtomicUsize>,
}

/// All that goes wrong at present.
#[derive(Default)]
pub(crate) struct Rules {
    active: Mutex<Vec<Rule>>,
    snares: Mutex<Vec<Snare>>,
    numbers: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What to do to one request.
pub(crate) struct Applied {
    pub(crate) fault: Fault,
    /// Notified when the fault is taken back.
    pub(crate) over: Arc<Notify>,
}

impl Rules {
    pub(crate) fn inject(self: &Arc<Self>, matches: Matches, fault: Fault) -> Injected {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let hits = Arc::<AtomicUsize>::default();
        let rule = Rule { number, matches, fault, hits: Arc::clone(&hits), over: Arc::default() };
        lock(&self.active).push(rule);
        Injected { rules: Arc::clone(self), number, hits }
    }

    /// The first fault that a request meets, delays of a watch's events apart.
    pub(crate) fn meets(&self, asked: &Asked) -> Option<Applied> {
        let rules = lock(&self.active);
        let rule = rules
            .iter()
            .find(|rule| !matches!(rule.fault, Fault::Lag(_)) && (rule.matches)(asked))?;
        rule.hits.fetch_add(1, Ordering::Relaxed);
        Some(Applied { fault: rule.fault, over: Arc::clone(&rule.over) })
    }

    /// How late the events of a watch are at present.
    pub(crate) fn lag(&self, asked: &Asked) -> Duration {
        let rules = lock(&self.active);
        let lags = rules.iter().filter(|rule| (rule.matches)(asked)).map(|rule| match rule.fault {
            Fault::Lag(lag) => lag,
            Fault::Refuse(_)
            | Fault::Delay(_)
            | Fault::Hang
            | Fault::Disconnect
            | Fault::EndAtOnce
            | Fault::ExpireInStream => Duration::ZERO,
        });
        lags.max().unwrap_or_default()
    }

    pub(crate) fn trap(
        self: &Arc<Self>,
        matches: Matches,
        nth: usize,
        moment: Moment,
        spring: Box<dyn FnOnce() + Send>,
    ) -> Trap {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let sprung = Arc::<AtomicUsize>::default();
        let snare =
            Snare { number, matches, left: nth, moment, spring, sprung: Arc::clone(&sprung) };
        lock(&self.snares).push(snare);
        Trap { rules: Arc::clone(self), number, sprung }
    }

    /// Counts a write; gives the trap that it springs.
    pub(crate) fn springs(&self, asked: &Asked) -> Option<(Moment, Box<dyn FnOnce() + Send>)> {
        let mut snares = lock(&self.snares);
        for snare in snares.iter_mut().filter(|snare| (snare.matches)(asked)) {
            snare.left = snare.left.saturating_sub(1);
        }
        let due = snares.iter().position(|snare| snare.left == 0)?;
        let Snare { moment, spring, sprung, .. } = snares.remove(due);
        sprung.store(1, Ordering::Release);
        Some((moment, spring))
    }
}

/// A fault that lasts as long as this value.
#[must_use = "the fault ends when this is dropped"]
pub struct Injected {
    rules: Arc<Rules>,
    number: u64,
    hits: Arc<AtomicUsize>,
}

impl Injected {
    /// How many requests have met it.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        let mut rules = lock(&self.rules.active);
        for over in rules.iter().filter(|rule| rule.number == self.number).map(|rule| &rule.over) {
            over.notify_waiters();
        }
        rules.retain(|rule| rule.number != self.number);
    }
}

/// A trap for the n-th write that lasts as long as this value.
#[must_use = "the trap is taken away when this is dropped"]
pub struct Trap {
    rules: Arc<Rules>,
    number: u64,
    sprung: Arc<AtomicUsize>,
}

impl Trap {
    /// Whether it has sprung.
    pub fn has_sprung(&self) -> bool {
        self.sprung.load(Ordering::Acquire) == 1
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        lock(&self.rules.snares).retain(|snare| snare.number != self.number);
    }
}

impl std::fmt::Debug for Injected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injected").field("hits", &self.hits()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trap").field("sprung", &self.has_sprung()).finish_non_exhaustive()
    }
}
