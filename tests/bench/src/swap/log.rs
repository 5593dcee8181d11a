//! What the host's log says of swaps: how long a cut-over took, and how soon a revision was taken back.

use serde_json::Value;

/// Seconds of a day; a difference of two times of day is below that.
const DAY_S: f64 = 86_400.0;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_field_names, reason = "a figure says its unit")]
pub(super) struct Logged {
    /// Each cut-over, milliseconds.
    pub(super) cut_overs_ms: Vec<f64>,
    /// From the first line about a panic to the one that says that the revision was taken back, milliseconds.
    pub(super) rollbacks_ms: Vec<f64>,
    /// From the cut-over to the revision that panics until it was taken back, milliseconds.
    pub(super) faulty_ms: Vec<f64>,
}

/// Reads a log of JSON lines; whatever is none is passed over.
pub(super) fn read(log: &str) -> Logged {
    let mut logged = Logged::default();
    let (mut cut_over, mut panicked) = (None, None);
    for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let text = |field: &str| line.get(field).and_then(Value::as_str).unwrap_or_default();
        let Some(at) = time_of_day(text("timestamp")) else { continue };
        if text("message") == "cut over" {
            logged.cut_overs_ms.extend(milliseconds(text("took")));
            // Runs that were under way when a revision was taken back may still have told of their panic.
            (cut_over, panicked) = (Some(at), None);
        } else if text("reason") == "PluginPanicked" && cut_over.is_some() {
            panicked.get_or_insert(at);
        } else if text("message").contains("was taken back") {
            logged.rollbacks_ms.extend(panicked.take().map(|from| since(from, at)));
            logged.faulty_ms.extend(cut_over.take().map(|from| since(from, at)));
        }
    }
    logged
}

fn since(from: f64, until: f64) -> f64 {
    (until - from).rem_euclid(DAY_S) * 1_000.0
}

/// `2026-11-30T22:35:03.123456Z`, in seconds since midnight.
fn time_of_day(timestamp: &str) -> Option<f64> {
    let (_, time) = timestamp.strip_suffix('Z')?.split_once('T')?;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    Some((hours * 60.0 + minutes) * 60.0 + seconds)
}

/// A duration as Rust prints it for debugging: `850ns`, `12.3µs`, `4.5ms`, `1.2s`.
fn milliseconds(duration: &str) -> Option<f64> {
    let units = [("ns", 1e-6), ("µs", 1e-3), ("ms", 1.0), ("s", 1_000.0)];
    units
        .iter()
        .find_map(|(unit, factor)| Some(duration.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_host_writes() {
        let log = r#"
{"timestamp":"2026-11-30T23:59:59.900000Z","level":"DEBUG","message":"cut over","took":"12.5µs"}
not JSON
{"timestamp":"2026-11-30T23:59:59.950000Z","level":"WARN","reason":"PluginPanicked","message":"a"}
{"timestamp":"2026-12-01T00:00:00.000000Z","level":"WARN","reason":"PluginPanicked","message":"b"}
{"timestamp":"2026-12-01T00:00:00.050000Z","level":"ERROR","message":"tutorial was taken back: c"}
{"timestamp":"2026-12-01T00:00:00.060000Z","level":"WARN","reason":"PluginPanicked","message":"d"}
{"timestamp":"2026-12-01T00:00:01.000000Z","level":"DEBUG","message":"cut over","took":"1.5ms"}
"#;
        let Logged { cut_overs_ms, rollbacks_ms, faulty_ms } = read(log);
        assert_eq!(cut_overs_ms, [0.0125, 1.5]);
        assert_eq!(rollbacks_ms.iter().map(|ms| ms.round()).collect::<Vec<_>>(), [100.0]);
        assert_eq!(faulty_ms.iter().map(|ms| ms.round()).collect::<Vec<_>>(), [150.0]);
    }
}
