//! How long an informer waits after something went wrong.
//!
//! **Invariant:** only real progress resets it: objects received, or a watch that lived. A list that succeeds does
//! not, or a kind whose list works and whose watch fails at once would be listed in a hot loop (seen with Events
//! and old resource versions, k8s#137307).

use std::time::Duration;

use host_core::chance;

/// The first wait. client-go's reflector uses the same.
const FIRST: Duration = Duration::from_millis(800);

/// The longest wait for a server that fails: 0.8 s × 2^6 = 51 s is cut to 30 s, as client-go's reflector does.
pub(crate) const MAX: Duration = Duration::from_secs(30);

/// The longest wait for a kind that does not exist: a CRD installed now is noticed within 5 s × 1.25.
pub(crate) const MAX_MISSING: Duration = Duration::from_secs(5);

/// Grows with each failure, jittered by a quarter to either side from a seed.
#[derive(Debug)]
pub(crate) struct Backoff {
    seed: u64,
    failures: u32,
    waits: u64,
}

impl Backoff {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, failures: 0, waits: 0 }
    }

    /// The next wait, at most `max` and a quarter.
    pub(crate) fn next(&mut self, max: Duration) -> Duration {
        let grown = FIRST.saturating_mul(1 << self.failures.min(6)).min(max);
        self.failures = self.failures.saturating_add(1);
        grown * self.jitter(75, 125) / 100
    }

    /// A deterministic number in `low..=high`, another one each time.
    pub(crate) fn jitter(&mut self, low: u32, high: u32) -> u32 {
        self.waits = self.waits.wrapping_add(1);
        let span = u64::from(high.saturating_sub(low)) + 1;
        low + u32::try_from(chance::below((self.seed, self.waits), span)).unwrap_or(0)
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_its_bound_and_starts_again_after_a_reset() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<_> = (0..10).map(|_| backoff.next(MAX)).collect();
        assert!(waits[0] >= FIRST * 3 / 4 && waits[0] <= FIRST * 5 / 4, "{waits:?}");
        assert!(waits[9] >= MAX * 3 / 4 && waits[9] <= MAX * 5 / 4, "{waits:?}");
        assert!(waits[3] > waits[0] * 3, "{waits:?}");
        backoff.reset();
        assert!(backoff.next(MAX) <= FIRST * 5 / 4);
    }

    #[test]
    fn equal_seeds_wait_equally_and_others_do_not() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..5).map(|_| backoff.next(MAX)).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
