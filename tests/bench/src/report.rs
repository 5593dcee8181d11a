//! The table, and the one line for programs at the end.
//!
//! Of several rounds the least time, CPU and memory counts (whatever else ran on the machine has only added to them), and
//! the most requests and writes (what happened once can happen).

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use crate::figures::{Full, Turn};
use crate::operator::Candidate;

/// All turns so far.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    turns: BTreeMap<Candidate, Vec<Turn>>,
}

impl Rounds {
    pub(crate) fn add(&mut self, candidate: Candidate, turn: Turn) {
        self.turns.entry(candidate).or_default().push(turn);
    }

    fn of(&self, candidate: Candidate) -> &[Turn] {
        self.turns.get(&candidate).map(Vec::as_slice).unwrap_or_default()
    }

    fn least(&self, candidate: Candidate, value: impl Fn(&Turn) -> Option<f64>) -> Option<f64> {
        self.of(candidate).iter().filter_map(value).min_by(f64::total_cmp)
    }

    fn most(&self, candidate: Candidate, value: impl Fn(&Turn) -> Option<f64>) -> Option<f64> {
        self.of(candidate).iter().filter_map(value).max_by(f64::total_cmp)
    }
}

/// One line of the table: its name, its unit, whether more rounds can only make it smaller, and where it is.
struct Row {
    key: &'static str,
    title: &'static str,
    least: bool,
    value: fn(&Turn) -> Option<f64>,
}

fn full(turn: &Turn, value: impl Fn(&Full) -> f64) -> Option<f64> {
    turn.full.as_ref().map(value)
}

#[expect(clippy::cast_precision_loss, reason = "a benchmark's counts fit 52 bits")]
fn number(count: u64) -> f64 {
    count as f64
}

const MIB: f64 = 1_048_576.0;

const ROWS: [Row; 17] = [
    Row { key: "time", title: "create: time, s", least: true, value: |t| Some(t.create_s) },
    Row { key: "cpu", title: "create: CPU, s", least: true, value: |t| Some(t.create.cpu_s) },
    Row {
        key: "rss",
        title: "peak RSS, MiB",
        least: true,
        value: |t| Some(number(t.rss_peak_bytes) / MIB),
    },
    Row {
        key: "requests",
        title: "create: API requests",
        least: false,
        value: |t| Some(number(t.create.total())),
    },
    Row {
        key: "single_p50_ms",
        title: "one change: p50, ms",
        least: true,
        value: |t| full(t, |f| f.single.p50_ms),
    },
    Row {
        key: "single_p99_ms",
        title: "one change: p99, ms",
        least: true,
        value: |t| full(t, |f| f.single.p99_ms),
    },
    Row {
        key: "single_cpu",
        title: "single changes: CPU, s",
        least: true,
        value: |t| full(t, |f| f.single_cost.cpu_s),
    },
    Row {
        key: "burst_time",
        title: "all change: time, s",
        least: true,
        value: |t| full(t, |f| f.burst_s),
    },
    Row {
        key: "burst_p50_ms",
        title: "all change: p50, ms",
        least: true,
        value: |t| full(t, |f| f.burst.p50_ms),
    },
    Row {
        key: "burst_p99_ms",
        title: "all change: p99, ms",
        least: true,
        value: |t| full(t, |f| f.burst.p99_ms),
    },
    Row {
        key: "burst_cpu",
        title: "all change: CPU, s",
        least: true,
        value: |t| full(t, |f| f.burst_cost.cpu_s),
    },
    Row {
        key: "burst_requests",
        title: "all change: API requests",
        least: false,
        value: |t| full(t, |f| number(f.burst_cost.total())),
    },
    Row {
        key: "resync_cpu",
        title: "a minute's resync: CPU, s",
        least: true,
        value: |t| full(t, |f| f.resync.cpu_s),
    },
    Row {
        key: "steady_writes",
        title: "a minute's resync: writes",
        least: false,
        value: |t| full(t, |f| number(f.resync.writes())),
    },
    Row {
        key: "restart_cpu",
        title: "restart: CPU, s",
        least: true,
        value: |t| full(t, |f| f.restart.cpu_s),
    },
    Row {
        key: "restart_rss",
        title: "restart: peak RSS, MiB",
        least: true,
        value: |t| full(t, |f| number(f.restart_rss_peak_bytes) / MIB),
    },
    Row {
        key: "restart_writes",
        title: "restart: writes",
        least: false,
        value: |t| full(t, |f| number(f.restart.writes())),
    },
];

/// Prints the table, and the last line.
pub(crate) fn print(rounds: &Rounds, parents: u32, parts: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let count = rounds.of(Candidate::Host).len();
    writeln!(
        out,
        "\n{parents} parents, {count} round(s); least time, CPU and memory, most requests and writes of all rounds.\n\
         The peer would ping pods over TCP; the cluster has no nodes, so no pod has an address and neither pings.\n\n\
         {:<28}{:>12}{:>12}{:>12}",
        "", "host", "peer", "host/peer"
    )?;
    let mut figures = Map::new();
    for Row { key, title, least, value } in ROWS {
        let pick = |candidate| {
            let value =
                if least { rounds.least(candidate, value) } else { rounds.most(candidate, value) };
            value.with_context(|| format!("nothing was measured for {key}"))
        };
        let (host, peer) = (pick(Candidate::Host)?, pick(Candidate::Peer)?);
        let ratio = (peer > 0.0).then_some(host / peer);
        let shown = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        writeln!(out, "{title:<28}{:>12}{:>12}{shown:>12}", short(host), short(peer))?;
        figures.insert(key.to_owned(), json!({"host": rounded(host), "peer": rounded(peer)}));
        figures.insert(
            format!("{key}_ratio"),
            ratio.map_or(Value::Null, |ratio| json!(rounded(ratio))),
        );
    }
    let alone = rounds.least(Candidate::Host, |turn| Some(turn.create_s));
    let beside = rounds.least(Candidate::HostBesideFailing, |turn| Some(turn.create_s));
    let (alone, beside) = (alone.context("no host")?, beside.context("no failing plugin")?);
    writeln!(
        out,
        "\nBeside a plugin that cannot work: {beside:.2} s instead of {alone:.2} s to create."
    )?;
    requests(&mut out, rounds)?;
    if let Some(parts) = parts.as_object() {
        writeln!(out)?;
        for (name, value) in parts {
            writeln!(out, "{}: {value}", name.replace('_', " "))?;
        }
        figures.insert("parts".to_owned(), Value::Object(parts.clone()));
    }
    let line = line(figures, rounds, parents, beside / alone);
    writeln!(out, "\n{line}")?;
    Ok(())
}

/// Requests by verb, of the last round.
fn requests(out: &mut impl std::io::Write, rounds: &Rounds) -> anyhow::Result<()> {
    for candidate in [Candidate::Host, Candidate::Peer] {
        let Some(turn) = rounds.of(candidate).last() else { continue };
        let phases =
            [("create", Some(&turn.create))].into_iter().chain(turn.full.iter().flat_map(|full| {
                [
                    ("burst", Some(&full.burst_cost)),
                    ("minute", Some(&full.resync)),
                    ("restart", Some(&full.restart)),
                ]
            }));
        for (phase, cost) in phases {
            let verbs =
                cost.into_iter().flat_map(|cost| &cost.requests).filter(|(_, count)| **count > 0);
            let verbs: Vec<String> = verbs.map(|(verb, count)| format!("{verb} {count}")).collect();
            writeln!(out, "requests, {}, {phase}: {}", candidate.slug(), verbs.join(", "))?;
        }
    }
    Ok(())
}

/// What issue reports and CI read: the ratios by their short names first.
fn line(mut figures: Map<String, Value>, rounds: &Rounds, parents: u32, beside: f64) -> Value {
    let host = |key: &str| figures.get(key).and_then(|figure| figure.get("host")).cloned();
    let (burst, steady, restart) =
        (host("burst_p99_ms"), host("steady_writes"), host("restart_writes"));
    let mut line = Map::new();
    for key in ["time", "cpu", "rss", "requests", "resync_cpu"] {
        let ratio = figures.remove(&format!("{key}_ratio"));
        line.insert(format!("{key}_ratio"), ratio.unwrap_or(Value::Null));
    }
    line.insert("steady_writes".to_owned(), json!(steady));
    line.insert("restart_writes".to_owned(), json!(restart));
    line.insert("burst_p99_ms".to_owned(), json!(burst));
    line.insert("failing_kind_time_ratio".to_owned(), json!(rounded(beside)));
    line.insert("parents".to_owned(), json!(parents));
    line.insert("rounds".to_owned(), json!(rounds.of(Candidate::Host).len()));
    line.insert("figures".to_owned(), Value::Object(figures));
    Value::Object(line)
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
