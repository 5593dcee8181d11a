//! What one turn has measured.

use serde::Serialize;

use crate::account::{Requests, writes};
use crate::inside::Inside;

/// What something has cost a candidate.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Cost {
    /// CPU time, seconds.
    pub(crate) cpu_s: f64,
    /// API requests by verb.
    pub(crate) requests: Requests,
}

impl Cost {
    /// All requests.
    pub(crate) fn total(&self) -> u64 {
        self.requests.values().sum()
    }

    /// Requests that change something.
    pub(crate) fn writes(&self) -> u64 {
        writes(&self.requests)
    }
}

/// Of a number of delays, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(
    clippy::struct_field_names,
    reason = "they are printed as they are, and a figure says its unit"
)]
pub(crate) struct Delays {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Delays {
    /// None of nothing.
    pub(crate) fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        // The smallest value that is not below `percent` of all.
        let at = |percent: usize| {
            let rank = (seconds.len() * percent).div_ceil(100).max(1);
            seconds.get(rank - 1).map(|seconds| seconds * 1_000.0)
        };
        Some(Self { p50_ms: at(50)?, p99_ms: at(99)?, max_ms: at(100)? })
    }
}

/// One turn of one candidate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Turn {
    /// From the first create to the last child and status, seconds.
    pub(crate) create_s: f64,
    /// From the first create until nothing changed any more.
    pub(crate) create: Cost,
    /// The largest resident set until then, bytes.
    pub(crate) rss_peak_bytes: u64,
    /// What the host says of it.
    pub(crate) inside: Option<Inside>,
    /// What only full turns have.
    pub(crate) full: Option<Full>,
}

/// The rest of a full turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Full {
    /// Single changes: from a parent's change to its child's.
    pub(crate) single: Delays,
    /// What they cost.
    pub(crate) single_cost: Cost,
    /// The same when every parent changes at once.
    pub(crate) burst: Delays,
    /// From the first change to the last child, seconds.
    pub(crate) burst_s: f64,
    /// What it cost.
    pub(crate) burst_cost: Cost,
    /// A minute in which nothing changes, and every parent is looked at once.
    pub(crate) resync: Cost,
    /// A new process, until it rests.
    pub(crate) restart: Cost,
    /// Its largest resident set, bytes.
    pub(crate) restart_rss_peak_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let delays = Delays::of((1..=200).map(f64::from).collect()).unwrap();
        assert_eq!(delays, Delays { p50_ms: 100e3, p99_ms: 198e3, max_ms: 200e3 });
        let one = Delays::of(vec![2.0]).unwrap();
        assert_eq!(one, Delays { p50_ms: 2e3, p99_ms: 2e3, max_ms: 2e3 });
        assert!(Delays::of(vec![]).is_none());
    }
}
