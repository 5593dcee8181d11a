//! What a failed round means: how the kind is, whether to list again, how long to wait at most.

use std::time::Duration;

use crate::backoff;
use crate::error::{ApiError, ApiErrorKind};
use crate::resource::DiscoveryError;
use crate::store::Status;

/// Why a round got nowhere.
pub(super) struct Trouble {
    pub(super) status: Status,
    pub(super) relist: bool,
    pub(super) wait_max: Duration,
}

impl Trouble {
    pub(super) fn failing(message: impl Into<String>) -> Self {
        Self { status: Status::Failing(message.into()), relist: false, wait_max: backoff::MAX }
    }

    pub(super) fn missing() -> Self {
        Self { status: Status::Missing, relist: true, wait_max: backoff::MAX_MISSING }
    }

    pub(super) fn and_relist(self) -> Self {
        Self { relist: true, ..self }
    }
}

impl From<DiscoveryError> for Trouble {
    fn from(error: DiscoveryError) -> Self {
        match error {
            DiscoveryError::NotFound(_) => Self::missing(),
            DiscoveryError::Unavailable(..) => Self::failing(error.to_string()),
        }
    }
}

impl From<ApiError> for Trouble {
    fn from(error: ApiError) -> Self {
        let message = error.to_string();
        match error.kind() {
            ApiErrorKind::NotFound | ApiErrorKind::KindMissing => Self::missing(),
            ApiErrorKind::Forbidden => {
                Self { status: Status::Forbidden(message), relist: true, wait_max: backoff::MAX }
            }
            ApiErrorKind::Expired | ApiErrorKind::Malformed | ApiErrorKind::Invalid => {
                Self::failing(message).and_relist()
            }
            ApiErrorKind::Conflict
            | ApiErrorKind::Immutable
            | ApiErrorKind::Unauthorized
            | ApiErrorKind::NamespaceTerminating
            | ApiErrorKind::TooLarge
            | ApiErrorKind::TooManyRequests { .. }
            | ApiErrorKind::NotLeader
            | ApiErrorKind::Unavailable => Self::failing(message),
        }
    }
}
