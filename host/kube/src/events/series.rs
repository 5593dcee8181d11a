//! Which events are new, which are repeats, and which are too many. Sends nothing: it says what to send.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use host_core::decision::Event;
use host_core::limits::{EVENT_NOTE_BYTES_MAX, cut};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::about::{Regarding, Reporter};

/// How often one series is written.
const SERIES_EVERY: Duration = Duration::from_mins(1);

/// A series that was silent for so long is over; the next occurrence is a new event, as in client-go.
const SERIES_IDLE: Duration = Duration::from_mins(6);

/// Series kept in memory: 1,000 parents with two running ones each, at about 200 bytes.
const SERIES_MAX: usize = 2_048;

/// New events of one object: 25 at once, then one in five minutes, as client-go's spam filter.
const BURST: u32 = 25;

/// See [`BURST`].
const REFILL_EVERY: Duration = Duration::from_mins(5);

/// Objects whose budget is not full, at about 100 bytes. A budget is full again after 25 × 5 min = 125 min.
const BUDGETS_MAX: usize = 4_096;

/// Bytes of an event's name: a DNS subdomain's 253, less a dot and 16 hexadecimal digits.
const NAME_BYTES_MAX: usize = 253 - 17;

/// Bytes of `reportingController` and `reportingInstance`.
const REPORTER_BYTES_MAX: usize = 128;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct About<'a> {
    api_version: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

/// An object has used up its events.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RateLimited;

/// One call to make.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) series: u64,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) create: bool,
    pub(crate) body: String,
}

struct Series {
    namespace: String,
    name: String,
    count: u32,
    written: u32,
    written_at: Instant,
    seen: Instant,
}

/// What was recorded lately.
pub(crate) struct Book {
    wall: Timestamp,
    origin: Instant,
    series: BTreeMap<u64, Series>,
    /// By uid, the moment when the budget is full again; absent: it is.
    budgets: BTreeMap<Box<str>, Instant>,
}

impl Book {
    pub(crate) fn new(wall: SystemTime, origin: Instant) -> Self {
        let wall = Timestamp::try_from(wall).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { wall, origin, series: BTreeMap::new(), budgets: BTreeMap::new() }
    }

    /// Takes an event in: the call that creates it, or none for a repeat.
    pub(crate) fn record(
        &mut self,
        reporter: &Reporter,
        regarding: &Regarding,
        event: &Event,
        now: Instant,
    ) -> Result<Option<Write>, RateLimited> {
        let id = series_id(reporter, regarding, event);
        if let Some(series) = self.series.get_mut(&id)
            && now.duration_since(series.seen) < SERIES_IDLE
        {
            series.count = series.count.saturating_add(1);
            series.seen = now;
            return Ok(None);
        }
        self.spend(&regarding.uid, now)?;
        self.make_room(now);
        let namespace = match &*regarding.key.namespace {
            // Events about cluster-scoped objects must be in `default` (events.k8s.io/v1 validation).
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        };
        let name = event_name(&regarding.key.name, id, self.time(now));
        let body = self.creation(&namespace, &name, reporter, regarding, event, now);
        let series = Series {
            namespace: namespace.clone(),
            name: name.clone(),
            count: 1,
            written: 1,
            written_at: now,
            seen: now,
        };
        self.series.insert(id, series);
        Ok(Some(Write { series: id, namespace, name, create: true, body }))
    }

    /// When the next series is to be written.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let dirty = self.series.values().filter(|series| series.count > series.written);
        dirty.map(|series| series.written_at + SERIES_EVERY).min()
    }

    /// The series to write now; None: all that have something to say.
    pub(crate) fn due(&mut self, now: Option<Instant>) -> Vec<Write> {
        let (wall, origin) = (self.wall, self.origin);
        let due = |series: &Series| {
            series.count > series.written
                && now.is_none_or(|now| series.written_at + SERIES_EVERY <= now)
        };
        let series = self.series.iter_mut().filter(|(_, series)| due(series));
        series
            .map(|(id, series)| {
                series.written = series.count;
                series.written_at = now.unwrap_or(series.seen);
                let last = micro_time(later(wall, origin, series.seen));
                let body = json!({"series": {"count": series.count, "lastObservedTime": last}});
                Write {
                    series: *id,
                    namespace: series.namespace.clone(),
                    name: series.name.clone(),
                    create: false,
                    body: body.to_string(),
                }
            })
            .collect()
    }

    /// Drops a series that could not be written.
    pub(crate) fn forget(&mut self, series: u64) {
        self.series.remove(&series);
    }

    /// Takes one event out of an object's budget. The budget is kept as the moment when it is full again, so that
    /// nothing has to tick.
    fn spend(&mut self, uid: &str, now: Instant) -> Result<(), RateLimited> {
        if self.budgets.len() >= BUDGETS_MAX {
            self.budgets.retain(|_, full| *full > now);
        }
        let full = self.budgets.get(uid).copied().unwrap_or(now).max(now);
        let room = self.budgets.len() < BUDGETS_MAX || self.budgets.contains_key(uid);
        if !room || full.duration_since(now) > REFILL_EVERY * (BURST - 1) {
            return Err(RateLimited);
        }
        self.budgets.insert(uid.into(), full + REFILL_EVERY);
        Ok(())
    }

    fn make_room(&mut self, now: Instant) {
        if self.series.len() < SERIES_MAX {
            return;
        }
        self.series.retain(|_, series| {
            now.duration_since(series.seen) < SERIES_IDLE || series.count > series.written
        });
        let oldest = self.series.iter().min_by_key(|(_, series)| series.seen).map(|(id, _)| *id);
        if self.series.len() >= SERIES_MAX
            && let Some(oldest) = oldest
        {
            self.series.remove(&oldest);
        }
    }

    fn time(&self, at: Instant) -> Timestamp {
        later(self.wall, self.origin, at)
    }

    fn creation(
        &self,
        namespace: &str,
        name: &str,
        reporter: &Reporter,
        regarding: &Regarding,
        event: &Event,
        now: Instant,
    ) -> String {
        let about = About {
            api_version: &regarding.kind.api_version,
            kind: &regarding.kind.kind,
            namespace: &regarding.key.namespace,
            name: &regarding.key.name,
            uid: &regarding.uid,
        };
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": micro_time(self.time(now)),
            "type": event.kind.as_str(),
            "reason": event.reason,
            "action": event.action,
            "note": cut(&event.note, EVENT_NOTE_BYTES_MAX),
            "regarding": about,
            "reportingController": cut(&reporter.controller, REPORTER_BYTES_MAX),
            "reportingInstance": cut(&reporter.instance, REPORTER_BYTES_MAX),
        })
        .to_string()
    }
}

fn series_id(reporter: &Reporter, regarding: &Regarding, event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&reporter.controller, &regarding.uid).hash(&mut hasher);
    (event.kind.as_str(), &event.reason, &event.action, &event.note).hash(&mut hasher);
    hasher.finish()
}

/// The object's name, made a DNS subdomain, and a hash of what happened when: an event that comes back later is
/// another event.
fn event_name(about: &str, series: u64, at: Timestamp) -> String {
    let mut hasher = DefaultHasher::new();
    (series, at.as_nanosecond()).hash(&mut hasher);
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let plain: String =
        about.chars().take(NAME_BYTES_MAX).map(|c| if allowed(c) { c } else { '-' }).collect();
    let trimmed = plain.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{}.{:016x}", if trimmed.is_empty() { "event" } else { trimmed }, hasher.finish())
}

fn later(wall: Timestamp, origin: Instant, at: Instant) -> Timestamp {
    wall.checked_add(at.duration_since(origin)).unwrap_or(wall)
}

/// As the API writes a `MicroTime`.
fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
