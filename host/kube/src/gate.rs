//! Whether this host may write: the door that every change of the cluster goes through.
//!
//! **Invariant:** a gate closes by itself, on tokio's clock, and not because somebody remembers to close it: a host
//! that was frozen finds it closed when it wakes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host_core::lease::HANDOVER;
use tokio::time::Instant;

/// This host must not write, because it does not lead or does not know whether it still does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this host does not lead: nothing is written")]
pub struct NotLeader;

/// Lets writes through while this host leads. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Option<Arc<Mutex<Option<Instant>>>>);

impl Gate {
    /// A gate that is always open: for a host that runs alone.
    pub fn open() -> Self {
        Self(None)
    }

    /// A gate that is closed until [`Gate::extend`].
    pub(crate) fn closed() -> Self {
        Self(Some(Arc::default()))
    }

    fn until(&self) -> Option<MutexGuard<'_, Option<Instant>>> {
        self.0.as_ref().map(|until| until.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a write may begin now.
    pub fn is_open(&self) -> bool {
        self.until().is_none_or(|until| until.is_some_and(|until| Instant::now() < until))
    }

    /// Call just before each write that does not go through a gated [`crate::Client`].
    pub fn check(&self) -> Result<(), NotLeader> {
        if self.is_open() { Ok(()) } else { Err(NotLeader) }
    }

    /// When another host may begin to write: whatever was begun must be over by then. None: never.
    pub fn lease_end(&self) -> Option<Instant> {
        self.until().map(|until| until.map_or_else(Instant::now, |at| at + HANDOVER))
    }

    pub(crate) fn extend(&self, to: Instant) {
        if let Some(mut until) = self.until() {
            *until = Some(to);
        }
    }

    pub(crate) fn close(&self) {
        if let Some(mut until) = self.until() {
            *until = None;
        }
    }
}
