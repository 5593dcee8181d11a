//! What all connections of a proxy have in common: rules, the log of exchanges, open watches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use tokio::sync::oneshot;

use crate::exchange::{Asked, Exchange, Traffic};
use crate::fault::Rules;

/// How an open watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// In the middle, as by a broken connection.
    Cut,
    /// As by the server's own timeout.
    Clean,
    /// With the error event 410 Expired.
    Expired,
}

struct OpenWatch {
    number: u64,
    asked: Asked,
    end: oneshot::Sender<WatchEnd>,
}

/// What every connection shares.
pub(crate) struct Shared {
    pub(crate) upstream: Client,
    pub(crate) rules: Arc<Rules>,
    log: Mutex<Vec<Exchange>>,
    watches: Mutex<Vec<OpenWatch>>,
    numbers: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(upstream: Client) -> Self {
        Self {
            upstream,
            rules: Arc::default(),
            log: Mutex::default(),
            watches: Mutex::default(),
            numbers: AtomicU64::default(),
        }
    }

    /// Writes an exchange down.
    pub(crate) fn note(&self, exchange: Exchange) {
        lock(&self.log).push(exchange);
    }

    /// Registers an open watch; the receiver says how it is to end.
    pub(crate) fn opened(&self, asked: &Asked) -> (u64, oneshot::Receiver<WatchEnd>) {
        let (end, ended) = oneshot::channel();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        lock(&self.watches).push(OpenWatch { number, asked: asked.clone(), end });
        (number, ended)
    }

    /// Forgets a watch that has ended.
    pub(crate) fn closed(&self, number: u64) {
        lock(&self.watches).retain(|watch| watch.number != number);
    }

    /// Ends the open watches that match; says how many there were.
    pub(crate) fn end_watches(&self, how: WatchEnd, matches: impl Fn(&Asked) -> bool) -> usize {
        let mut watches = lock(&self.watches);
        let (ended, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *watches).into_iter().partition(|watch| matches(&watch.asked));
        *watches = open;
        ended.into_iter().filter_map(|watch| watch.end.send(how).ok()).count()
    }

    /// How many exchanges there were so far.
    pub(crate) fn mark(&self) -> usize {
        lock(&self.log).len()
    }

    /// The exchanges since a mark.
    pub(crate) fn since(&self, mark: usize) -> Traffic {
        Traffic(lock(&self.log).get(mark..).unwrap_or_default().to_vec())
    }
}
