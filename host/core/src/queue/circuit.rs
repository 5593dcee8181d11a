//! The breaker of one key: runs are free up to a burst, then one at a time as the allowance comes back (ADR 0007).
//!
//! A generic cell rate algorithm: the state is one moment, the time at which the allowance would be whole again.

use crate::limits::{CIRCUIT_BURST, CIRCUIT_REFILL};
use crate::moment::Moment;

/// How far ahead of the clock a key may get: the whole burst.
fn window() -> Moment {
    CIRCUIT_REFILL.saturating_mul(CIRCUIT_BURST)
}

/// How often one key has run lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Circuit {
    whole_at: Moment,
    open: bool,
}

impl Circuit {
    /// A run has ended. True: that was the one that opens it.
    pub(super) fn charge(&mut self, now: Moment) -> bool {
        self.settle(now);
        self.whole_at = self.whole_at.max(now) + CIRCUIT_REFILL;
        let opens = !self.open && self.allowed_at() > now;
        self.open |= opens;
        opens
    }

    /// The earliest moment of the next run.
    pub(super) fn allowed_at(&self) -> Moment {
        (self.whole_at + CIRCUIT_REFILL).saturating_sub(window())
    }

    /// Whether it holds runs back. It closes at half the allowance, so that it does not flap.
    pub(super) fn is_open(mut self, now: Moment) -> bool {
        self.settle(now);
        self.open
    }

    fn settle(&mut self, now: Moment) {
        self.open &= self.whole_at > now + window() / 2;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lets_a_burst_through_then_one_run_for_each_refill() {
        let mut circuit = Circuit::default();
        let now = Duration::from_secs(1_000);
        let mut opened = 0;
        for _ in 0..CIRCUIT_BURST {
            assert!(circuit.allowed_at() <= now);
            opened += u32::from(circuit.charge(now));
        }
        assert_eq!(opened, 1);
        assert!(circuit.is_open(now));
        assert_eq!(circuit.allowed_at(), now + CIRCUIT_REFILL);
        circuit.charge(now + CIRCUIT_REFILL);
        assert_eq!(circuit.allowed_at(), now + CIRCUIT_REFILL * 2);
    }

    #[test]
    fn closes_after_rest_and_never_opens_for_a_key_that_keeps_the_rate() {
        let mut circuit = Circuit::default();
        let mut now = Duration::from_secs(1_000);
        for _ in 0..CIRCUIT_BURST {
            circuit.charge(now);
        }
        let half = now + window() / 2;
        assert!(circuit.is_open(half.saturating_sub(CIRCUIT_REFILL)));
        assert!(!circuit.is_open(half));
        let mut steady = Circuit::default();
        for _ in 0..CIRCUIT_BURST * 3 {
            assert!(!steady.charge(now));
            now += CIRCUIT_REFILL;
        }
    }
}
