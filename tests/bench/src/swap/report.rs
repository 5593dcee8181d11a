//! The table, and the one line for programs at the end.

use std::io::Write as _;

use anyhow::bail;
use serde_json::{Value, json};

use super::bomb::Bomb;
use super::idle::Idle;
use super::log::Logged;
use super::stream::Presence;
use crate::figures::Delays;

/// What the swaps have shown.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Children that never got the last replicas of their parents.
    pub(super) events_lost: usize,
    /// Parents that went back to replaced bytes, each time.
    pub(super) two_digests_at_once: u64,
    /// Writes while a candidate was held.
    pub(super) held: Held,
    /// From the acknowledged replacement to the first run by bytes never seen before, milliseconds.
    pub(super) compiled_ms: Vec<f64>,
    /// The same for bytes seen before.
    pub(super) cached_ms: Vec<f64>,
    /// What the host's log says.
    pub(super) logged: Logged,
    /// Whether something was active.
    pub(super) presence: Presence,
    /// Changes of parents meanwhile.
    pub(super) changes: usize,
    /// How long they took to arrive.
    pub(super) delays: Option<Delays>,
    /// A plugin that cannot be compiled.
    pub(super) bomb: Bomb,
    /// Swaps from one setting to another.
    pub(super) swaps: Swaps,
    /// What idle plugins cost; None when there were none.
    pub(super) idle: Option<Idle>,
}

/// A candidate that is held.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// Writes to anything but the `Plugin`'s status.
    pub(super) writes: u64,
    /// Writes to the `Plugin`'s status.
    pub(super) status_writes: u64,
    /// What the plan of all parents took, milliseconds.
    pub(super) plan_ms: f64,
}

/// Many swaps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swaps {
    /// How many.
    pub(super) count: u32,
    /// What they took, seconds.
    pub(super) took_s: f64,
    /// Resident set after the first of them, bytes.
    pub(super) early_bytes: u64,
    /// Resident set after the last, bytes.
    pub(super) late_bytes: u64,
}

impl Swaps {
    #[expect(clippy::cast_precision_loss, reason = "the memory of a process fits 52 bits")]
    fn ratio(&self) -> f64 {
        self.late_bytes as f64 / self.early_bytes as f64
    }
}

fn worst(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Prints the table and the last line. An error if something happened that must not.
pub(super) fn print(measured: &Measured, parents: u32) -> anyhow::Result<()> {
    let Measured { held, presence, swaps, bomb, .. } = measured;
    let rows = rows(measured);
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{parents} parents, {} changes, {} swaps\n", measured.changes, swaps.count)?;
    for (_, title, value) in &rows {
        writeln!(out, "{title:<44}{value:>12}")?;
    }
    let mut line: serde_json::Map<String, Value> =
        rows.into_iter().map(|(key, _, value)| (key.to_owned(), value)).collect();
    line.insert("parents".to_owned(), json!(parents));
    line.insert("changes".to_owned(), json!(measured.changes));
    line.insert("swaps".to_owned(), json!(swaps.count));
    line.insert("figures".to_owned(), details(measured));
    writeln!(out, "\n{}", Value::Object(line))?;
    let wrong = [
        ("events_lost is not 0", measured.events_lost > 0),
        ("two_digests_at_once is not 0", measured.two_digests_at_once > 0),
        ("shadow_writes is not 0", held.writes > 0),
        ("inactive_s is not 0", !presence.longest_gap.is_zero()),
        ("a plugin that cannot be compiled was not refused", bomb.refused_s.is_none()),
    ];
    let wrong: Vec<&str> =
        wrong.iter().filter(|(_, wrong)| *wrong).map(|(what, _)| *what).collect();
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    Ok(())
}

/// Every figure: its key, its title, its value.
fn rows(measured: &Measured) -> [(&'static str, &'static str, Value); 18] {
    let Measured { held, logged, presence, delays, bomb, swaps, idle, .. } = measured;
    let inactive_s = presence.longest_gap.as_secs_f64();
    [
        ("events_lost", "changes that never arrived", json!(measured.events_lost)),
        ("two_digests_at_once", "runs by replaced bytes", json!(measured.two_digests_at_once)),
        ("shadow_writes", "writes while a candidate was held", json!(held.writes)),
        ("inactive_s", "longest time without an active version, s", figure(Some(inactive_s))),
        ("plan_ms", "plan of all parents, ms", figure(Some(held.plan_ms))),
        (
            "first_run_compile_ms",
            "new bytes to first run, ms",
            figure(worst(&measured.compiled_ms)),
        ),
        ("first_run_cached_ms", "known bytes to first run, ms", figure(worst(&measured.cached_ms))),
        ("cutover_ms", "longest cut-over, ms", figure(worst(&logged.cut_overs_ms))),
        ("rollback_ms", "first panic to taken back, ms", figure(worst(&logged.rollbacks_ms))),
        ("faulty_ms", "a panicking revision acted for, ms", figure(worst(&logged.faulty_ms))),
        ("change_p99_ms", "one change meanwhile: p99, ms", figure(delays.map(|one| one.p99_ms))),
        (
            "change_max_ms",
            "one change meanwhile: longest, ms",
            figure(delays.map(|one| one.max_ms)),
        ),
        ("bomb_refused_s", "a compile bomb to refused, s", figure(bomb.refused_s)),
        ("bomb_child_mib", "its compiler's largest RSS, MiB", figure(bomb.child_mib())),
        ("bomb_change_p99_ratio", "p99 of a change meanwhile / before", figure(bomb.ratio())),
        ("rss_swaps_ratio", "RSS after all swaps / after the first", figure(Some(swaps.ratio()))),
        (
            "swap_ms",
            "a swap of settings, mean, ms",
            figure(Some(swaps.took_s / f64::from(swaps.count.max(1)) * 1_000.0)),
        ),
        ("idle_plugin_kib", "a further idle plugin, KiB", figure(idle.map(|idle| idle.kib))),
    ]
}

fn figure(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |value| json!(rounded(value)))
}

/// What the figures above are the worst of.
fn details(measured: &Measured) -> Value {
    let Measured { held, logged, presence, delays, bomb, swaps, .. } = measured;
    let all = |values: &[f64]| values.iter().copied().map(rounded).collect::<Vec<_>>();
    json!({
        "plugin_status_writes_while_held": held.status_writes,
        "first_run_compile_ms": all(&measured.compiled_ms),
        "first_run_cached_ms": all(&measured.cached_ms),
        "rollback_ms": all(&logged.rollbacks_ms),
        "faulty_ms": all(&logged.faulty_ms),
        "cut_overs": logged.cut_overs_ms.len(),
        "looks": presence.looks,
        "change_p50_ms": delays.map(|one| rounded(one.p50_ms)),
        "bomb_change_p99_ms": {
            "before": bomb.before.map(|one| rounded(one.p99_ms)),
            "meanwhile": bomb.meanwhile.map(|one| rounded(one.p99_ms)),
        },
        "rss_early_bytes": swaps.early_bytes,
        "rss_late_bytes": swaps.late_bytes,
    })
}
