//! A lock that a panic elsewhere does not poison: what it guards is plain data.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever has happened under it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
