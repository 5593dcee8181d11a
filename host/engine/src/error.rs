//! Why a run did not go through, in classes. The class sets the delay, the metric label and whether it counts
//! against the plugin; one tested table.

use std::time::Duration;

use host_core::decision::InvalidDecision;
use host_core::ident::{Kind, PluginId};
use host_core::queue::Done;
use host_core::snapshot::{Failure, FailureKind};
use host_kube::{ApiError, ApiErrorKind, Status};
use host_wasm::CallFault;

/// Why a run did not go through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A kind is not known well enough to decide anything: unknown is never empty.
    #[error("{kind} cannot be observed: {state}")]
    Unobserved { kind: Kind, state: Unobservable },
    /// The cache does not show the last run's writes yet.
    #[error("the cache does not show the last run's writes yet")]
    Stale,
    /// The parent has no finalizer yet, or just got one.
    #[error("the finalizer was added; the run starts again")]
    FinalizerAdded,
    /// The API server said no.
    #[error("{doing}")]
    Api {
        doing: String,
        #[source]
        source: ApiError,
    },
    /// The plugin broke a limit or trapped.
    #[error("{0}")]
    Fault(CallFault),
    /// The plugin's answer breaks the contract.
    #[error("{plugin} returned something unusable")]
    Invalid {
        plugin: PluginId,
        #[source]
        source: InvalidDecision,
    },
    /// The plugin asked and asked.
    #[error("{plugin} asked for more in each of {rounds} rounds and never decided")]
    Undecided { plugin: PluginId, rounds: usize },
    /// The plugin says it cannot decide.
    #[error("{}: {}", failure.reason, failure.message)]
    Declined { failure: Failure },
    /// The host is shutting down.
    #[error("the host is shutting down")]
    ShuttingDown,
}

/// Why a kind is not known well enough.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unobservable {
    /// It is being listed for the first time: a matter of a moment, and not worth a write.
    #[error("{}", Status::Syncing)]
    Listing,
    /// It may not be or cannot be listed.
    #[error("{0}")]
    Trouble(Status),
    /// The host does not look there.
    #[error("namespace {0:?} is not watched by this host")]
    Unwatched(String),
}

impl From<Status> for Unobservable {
    fn from(status: Status) -> Self {
        match status {
            Status::Syncing => Self::Listing,
            Status::Synced | Status::Missing | Status::Forbidden(_) | Status::Failing(_) => {
                Self::Trouble(status)
            }
        }
    }
}

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Passes by itself: retried with back-off.
    Transient,
    /// Not known yet: looked at again soon, and counts neither way.
    Waiting,
    /// Needs a change by somebody: slow heartbeat.
    Terminal,
    /// The plugin's own fault: retried with back-off, and counted against its digest.
    Plugin,
}

impl Class {
    /// For metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Waiting => "waiting",
            Self::Terminal => "terminal",
            Self::Plugin => "plugin",
        }
    }
}

/// How often a terminal failure is looked at again: often enough to notice a repair outside what is watched.
const HEARTBEAT: Duration = Duration::from_mins(5);

/// How soon the cache is looked at again for the host's own writes; a watch event usually takes a few milliseconds.
const STALE_RETRY: Duration = Duration::from_millis(25);

/// How soon an unobserved kind is looked at again: 1,000 parents that wait for it cost 200 looks a second. At a start
/// and after a swap the sweep comes sooner.
const UNOBSERVED_RETRY: Duration = Duration::from_secs(5);

impl Error {
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Unobserved { .. } | Self::Stale | Self::FinalizerAdded | Self::ShuttingDown => {
                Class::Waiting
            }
            Self::Api { source, .. } if source.kind() == ApiErrorKind::NotLeader => Class::Waiting,
            Self::Api { source, .. } if is_terminal(source) => Class::Terminal,
            Self::Api { .. } => Class::Transient,
            Self::Fault(_) | Self::Invalid { .. } | Self::Undecided { .. } => Class::Plugin,
            Self::Declined { failure } => match failure.kind {
                FailureKind::Transient => Class::Transient,
                FailureKind::Terminal => Class::Terminal,
            },
        }
    }

    /// The reason shown in the `Reconciled` condition and in metrics.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Unobserved { .. } => "ObservedStateUnavailable".to_owned(),
            Self::Stale => "CacheStale".to_owned(),
            Self::FinalizerAdded => "FinalizerAdded".to_owned(),
            Self::Api { source, .. } => source.reason().to_owned(),
            Self::Fault(fault) => fault.reason().to_owned(),
            Self::Invalid { .. } => "PluginInvalidDecision".to_owned(),
            Self::Undecided { .. } => "PluginUndecided".to_owned(),
            Self::Declined { failure } if host_core::text::is_reason(&failure.reason) => {
                failure.reason.clone()
            }
            Self::Declined { .. } => "PluginDeclined".to_owned(),
            Self::ShuttingDown => "ShuttingDown".to_owned(),
        }
    }

    /// Whether the user should read about it in the parent's status.
    pub(crate) fn is_reported(&self) -> bool {
        match self {
            Self::Stale
            | Self::FinalizerAdded
            | Self::ShuttingDown
            | Self::Unobserved { state: Unobservable::Listing, .. } => false,
            // The host that leads will tell; and a conflict is over by the next try.
            Self::Api { source, .. } => {
                !matches!(source.kind(), ApiErrorKind::NotLeader | ApiErrorKind::Conflict)
            }
            Self::Unobserved { .. }
            | Self::Fault(_)
            | Self::Invalid { .. }
            | Self::Undecided { .. }
            | Self::Declined { .. } => true,
        }
    }

    /// What the queue does next.
    pub(crate) fn requeue(&self) -> Done {
        match self.class() {
            Class::Transient | Class::Plugin => Done::Failed,
            Class::Terminal => Done::Stopped(HEARTBEAT),
            Class::Waiting if matches!(self, Self::Stale | Self::FinalizerAdded) => {
                Done::Deferred(STALE_RETRY)
            }
            Class::Waiting => Done::Deferred(UNOBSERVED_RETRY),
        }
    }
}

/// Whether only a change by somebody can help: a retry would be refused again.
pub(crate) fn is_terminal(error: &ApiError) -> bool {
    match error.kind() {
        ApiErrorKind::NotFound
        | ApiErrorKind::KindMissing
        | ApiErrorKind::Immutable
        | ApiErrorKind::Invalid
        | ApiErrorKind::Forbidden
        | ApiErrorKind::NamespaceTerminating
        | ApiErrorKind::TooLarge => true,
        ApiErrorKind::Conflict
        | ApiErrorKind::NotLeader
        | ApiErrorKind::Unauthorized
        | ApiErrorKind::TooManyRequests { .. }
        | ApiErrorKind::Expired
        | ApiErrorKind::Unavailable
        | ApiErrorKind::Malformed => false,
    }
}

/// The whole chain of an error in one line: `doing this: because of that`.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declined(kind: FailureKind) -> Error {
        Error::Declined {
            failure: Failure { kind, reason: "NoQuorum".into(), message: "m".into() },
        }
    }

    #[test]
    fn the_class_decides_what_happens_next() {
        let unobserved = Error::Unobserved {
            kind: Kind::new("v1", "Pod"),
            state: Unobservable::Trouble(Status::Missing),
        };
        let table = [
            (declined(FailureKind::Transient), Class::Transient, Done::Failed),
            (declined(FailureKind::Terminal), Class::Terminal, Done::Stopped(HEARTBEAT)),
            (unobserved, Class::Waiting, Done::Deferred(UNOBSERVED_RETRY)),
            (Error::Stale, Class::Waiting, Done::Deferred(STALE_RETRY)),
        ];
        for (error, class, done) in table {
            assert_eq!((error.class(), error.requeue()), (class, done), "{error}");
        }
    }

    #[test]
    fn a_kind_that_is_being_listed_is_not_worth_a_word() {
        let unobserved = |status: Status| Error::Unobserved {
            kind: Kind::new("v1", "Pod"),
            state: status.into(),
        };
        assert!(!unobserved(Status::Syncing).is_reported());
        assert!(unobserved(Status::Missing).is_reported());
    }

    #[test]
    fn a_plugins_reason_is_used_only_if_it_is_one() {
        assert_eq!(declined(FailureKind::Terminal).reason(), "NoQuorum");
        let failure =
            Failure { kind: FailureKind::Terminal, reason: "no".into(), message: String::new() };
        assert_eq!(Error::Declined { failure }.reason(), "PluginDeclined");
    }
}
