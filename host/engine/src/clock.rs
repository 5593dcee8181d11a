//! The engine's clock: what time it is for people and plugins, and how long it has been running.
//!
//! **Invariant:** nothing else in the engine reads a wall clock. Waiting is tokio's, so a test can pause it.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use host_core::queue::Moment;
use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the time. Cheap to clone.
#[derive(Clone)]
pub struct Clock {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    start: Instant,
}

impl Clock {
    /// A clock whose wall time is given: a test's, or [`Clock::system`]'s.
    pub fn new(wall: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { wall: Arc::new(wall), start: Instant::now() }
    }

    /// The system's clock.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// This moment as Kubernetes writes it: `2026-12-07T06:26:36Z`.
    pub(crate) fn now(&self) -> String {
        (self.wall)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// This moment as the system counts it.
    pub(crate) fn wall(&self) -> SystemTime {
        (self.wall)().into()
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Moment {
        self.start.elapsed()
    }

    /// A moment as tokio's timers know it.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        self.start + moment
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("start", &self.start).finish_non_exhaustive()
    }
}
