//! What the server, its connections and its watches share: the state behind a lock, and a pulse that tells of changes.
//!
//! **Invariant:** nothing waits while it holds the lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::cascade::settle;
use crate::state::State;

/// What befalls a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this code and reason, and not carried out.
    Refuse(u16, &'static str),
    /// It arrives this much later.
    Delay(Duration),
    /// It is carried out, and its answer is lost: the connection breaks.
    Lose,
}

/// Decides what befalls a request, from its line.
pub(crate) type Hook = Arc<dyn Fn(&str) -> Option<Fault> + Send + Sync>;

pub(crate) struct Shared {
    state: Mutex<State>,
    requests: Mutex<Vec<String>>,
    hook: Mutex<Option<Hook>>,
    pulse: watch::Sender<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State::new()),
            requests: Mutex::default(),
            hook: Mutex::default(),
            pulse: watch::Sender::default(),
        }
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&lock(&self.state))
    }

    /// Changes the state, with all that follows from it, and tells everybody.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = {
            let mut state = lock(&self.state);
            let result = change(&mut state);
            settle(&mut state);
            result
        };
        self.pulse.send_replace(());
        result
    }

    /// Is told of every change and every request.
    pub(crate) fn pulse(&self) -> watch::Receiver<()> {
        self.pulse.subscribe()
    }

    pub(crate) fn set_hook(&self, hook: Option<Hook>) {
        *lock(&self.hook) = hook;
    }

    /// Writes a request down. What befalls it?
    pub(crate) fn arrived(&self, line: String) -> Option<Fault> {
        let hook = lock(&self.hook).clone();
        let fault = hook.and_then(|hook| hook(&line));
        lock(&self.requests).push(line);
        self.pulse.send_replace(());
        fault
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        lock(&self.requests).clone()
    }
}
