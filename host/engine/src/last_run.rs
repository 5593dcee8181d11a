//! What is remembered of a parent's last run: why it was made, and what came of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use host_core::ident::{Kind, ObjectKey};
use host_core::queue::Done;
use host_core::snapshot::Outcome;
use host_kube::Change;

/// What has brought a parent into the queue, the first time since its last run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A timer: requeue-after, back-off, heartbeat.
    Timer,
    /// Everything runs again: a start, or another version of the plugin.
    Sweep,
    /// This object has changed.
    Changed(Arc<Kind>, ObjectKey),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timer => f.write_str("its time had come"),
            Self::Sweep => f.write_str("everything was run again"),
            Self::Changed(kind, key) => write!(f, "{} {key} has changed", kind.kind),
        }
    }
}

impl Cause {
    pub(crate) fn of(change: &Change) -> Self {
        if change.initial {
            return Self::Sweep;
        }
        Self::Changed(Arc::clone(&change.kind), change.key.clone())
    }
}

/// What is remembered of one run. The outcome is shared with the next run's snapshot.
#[derive(Debug)]
pub(crate) struct LastRun {
    /// When it ended, RFC 3339.
    pub(crate) at: String,
    /// How long it took.
    pub(crate) took: Duration,
    /// Why it was made.
    pub(crate) cause: Cause,
    /// By which version.
    pub(crate) plugin: String,
    /// `success`, or the class of the failure.
    pub(crate) result: &'static str,
    /// Why it failed.
    pub(crate) failure: Option<(String, String)>,
    /// What it has done.
    pub(crate) outcome: Option<Arc<Outcome>>,
    /// What it asked the queue for.
    pub(crate) done: Done,
}
