//! How long a failing key waits: 5 ms doubled for each failure in a row, at most 1000 s.
//!
//! The figures are controller-runtime's per-item limiter, so that operators behave as people expect.

use std::time::Duration;

use crate::limits::{BACKOFF_FIRST, BACKOFF_MAX};

/// The wait after `failures` failures in a row; none for 0.
pub fn delay(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let factor = 1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
    BACKOFF_FIRST.saturating_mul(factor).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_from_five_milliseconds_to_a_thousand_seconds() {
        assert_eq!(delay(0), Duration::ZERO);
        assert_eq!(delay(1), Duration::from_millis(5));
        assert_eq!(delay(2), Duration::from_millis(10));
        assert_eq!(delay(10), Duration::from_millis(2_560));
        assert_eq!(delay(19), Duration::from_secs(1_000));
        assert_eq!(delay(u32::MAX), Duration::from_secs(1_000));
    }
}
