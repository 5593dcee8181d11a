//! Every bound of the host, with its arithmetic. A bound that is not here does not exist.

use std::time::Duration;

/// Rounds of questions in one run. A plugin that needs more asks in a chain; 5 covers
/// "which pods, then their probes, then details" twice.
pub const ROUNDS_MAX: usize = 5;

/// Queries in one run. 1,000 pods with one probe each, and room for object queries.
pub const QUERIES_MAX: usize = 1_100;

/// Objects in one decision. A RedisCluster of 1,000 pods returns about 1,020 (a role label each).
pub const OBJECTS_MAX: usize = 2_000;

/// Actions in one decision.
pub const ACTIONS_MAX: usize = 2_000;

/// Events in one decision.
pub const EVENTS_MAX: usize = 32;

/// Bytes of one desired object. etcd refuses requests above 1.5 MiB.
pub const OBJECT_BYTES_MAX: usize = 1_536 * 1024;

/// Bytes of a status. It shares an object with the spec, which etcd bounds at 1.5 MiB.
pub const STATUS_BYTES_MAX: usize = 512 * 1024;

/// The shortest requeue a plugin can ask for: 10 runs a second at most from one parent.
pub const REQUEUE_FLOOR: Duration = Duration::from_millis(100);

/// How much later than asked a requeue may come, to spread what was listed together: a tenth, at most this.
pub const REQUEUE_SPREAD_MAX: Duration = Duration::from_mins(5);

/// Runs that all plugins together have at once, unless the host is told otherwise. A run waits for the API server
/// most of its time: 32 of them keep two cores busy at 1 ms of computing in 20 ms.
pub const RUNS_AT_ONCE: usize = 32;

/// Runs of one parent that are free before its breaker holds them back. Creating a RedisCluster of 9 pods takes
/// about 40; a loop of 10 runs a second is caught after 11 s.
pub const CIRCUIT_BURST: u32 = 100;

/// How often a parent runs while its breaker is open, and how fast its allowance comes back: whole after 100 s.
pub const CIRCUIT_REFILL: Duration = Duration::from_secs(1);

/// First retry of a failing key; doubled for each failure, as controller-runtime does.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(5);

/// Longest retry of a failing key: 5 ms × 2^18 = 1310 s is cut to 1000 s, as controller-runtime does.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1_000);

/// How long a run waits for the cache to show the host's own writes before it goes on without. A watch that lags is
/// waited for: 10 s were seen, and going on early would decide from what is known to be gone.
pub const READ_YOUR_WRITES_DEADLINE: Duration = Duration::from_secs(30);

/// Repairs of one object within [`CONTEST_WINDOW`] that make a fight of an accident: a person undoes a change once
/// or twice, another controller does it every time.
pub const CONTEST_REPAIRS: u32 = 5;

/// See [`CONTEST_REPAIRS`]. Controllers that resync every minute or two are caught, too.
pub const CONTEST_WINDOW: Duration = Duration::from_mins(10);

/// Deletions in one plan that are always allowed.
pub const DELETIONS_FREE: usize = 2;

/// Share of a parent's children, in percent, that one plan may delete without a user's consent.
pub const DELETIONS_PERCENT_MAX: usize = 50;

/// Length of a plugin's name: `operator-host/` + 40 stays far under the 128 of a field manager,
/// and `<plugin>` fits into a label value (63).
pub const PLUGIN_NAME_MAX: usize = 40;

/// Bytes of an event note (events.k8s.io/v1 validation).
pub const EVENT_NOTE_BYTES_MAX: usize = 1_024;

/// Bytes of a condition message that the host writes. The API allows 32,768; a screen does not.
pub const CONDITION_MESSAGE_BYTES_MAX: usize = 1_024;

/// Fields that a plan names of one object. A screen line has room for three.
pub const PLAN_FIELDS: usize = 3;

/// Differences in a Plugin's status: at 0.5 KB each, 5 KB of an object that people print.
pub const PLAN_DIFFERENCES: usize = 10;

/// Runs of a new revision, and of the one before, from which their shares of failures are compared: with fewer, one
/// failure is more than a twentieth.
pub const PROBATION_RUNS_MIN: u64 = 20;

/// How many percent more of a new revision's runs may fail than of the one before.
pub const PROBATION_PERCENT: u64 = 20;

/// Revisions in a Plugin's history, and revisions taken back that are remembered: a screenful each.
pub const HISTORY_MAX: usize = 20;

/// Cuts a text to at most `max` bytes, at a character boundary, and says so.
pub fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_keeps_the_bound_and_the_characters_whole() {
        assert_eq!(cut("short", 10), "short");
        let long = "ä".repeat(20);
        let result = cut(&long, 10);
        assert!(result.len() <= 10, "{result}");
        assert!(result.ends_with('…'));
    }
}
