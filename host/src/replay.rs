//! `plugin replay` and `plugin check`: recorded runs against any build, byte for byte, without a cluster.
//!
//! A recording comes from a running host (`/debug/recordings`, `plugin record`).

use std::path::Path;

use anyhow::{Context as _, bail};
use host_core::decision::{RawDecision, RawObject};
use host_core::diff::differences;
use host_core::snapshot::{Snapshot, Verdict};
use host_wasm::{Plugin, SoundnessCheck};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::process::ExitCode;

use crate::config::{CheckArgs, RecordArgs, ReplayArgs};
use crate::operate::print;

/// Says what a file is, so that another one is refused with a word.
const FORMAT: &str = "operator-host/recording/v1";

/// Fields of an object that are named when two decisions differ.
const FIELDS_SHOWN: usize = 5;

/// The last runs of one parent.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RecordingFile {
    format: String,
    parent: String,
    runs: Vec<RecordedRun>,
}

/// One run.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RecordedRun {
    /// By which version, for people.
    plugin: String,
    took_us: u64,
    /// What the plugin saw, all answers included.
    snapshot: Snapshot,
    /// What it decided, or why it did not.
    end: Result<RawDecision, String>,
}

impl RecordingFile {
    /// What is remembered of a parent.
    pub(crate) fn new(
        parent: String,
        runs: &[std::sync::Arc<crate::recordings::Recording>],
    ) -> Self {
        let runs = runs.iter().map(|run| RecordedRun {
            plugin: run.plugin.clone(),
            took_us: run.took_us,
            snapshot: Snapshot::clone(&run.snapshot),
            end: run.end.clone(),
        });
        Self { format: FORMAT.to_owned(), parent, runs: runs.collect() }
    }

    fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let recording: Self = serde_json::from_str(&text).with_context(|| {
            format!("{} is no recording; `operator-host plugin record` makes them", file.display())
        })?;
        if recording.format != FORMAT {
            bail!(
                "{} has the format {:?}, this program reads {FORMAT:?}",
                file.display(),
                recording.format
            );
        }
        Ok(recording)
    }
}

/// `plugin record`.
pub(crate) fn record(args: RecordArgs) -> anyhow::Result<()> {
    let RecordArgs { parent, output } = args;
    let text = crate::ask::ask_about(&parent, "/debug/recordings")?;
    match output {
        Some(file) => {
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
        }
        None => print(&text),
    }
}

/// `plugin replay`: exits with 1 if a build decides otherwise than was recorded.
pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let ReplayArgs { recording, with } = args;
    let plugin = crate::inspect::load(with)?;
    let file = RecordingFile::read(recording)?;
    let mut other = false;
    print(&format!("{}, {} runs, with {}", file.parent, file.runs.len(), plugin.id()))?;
    for (number, run) in file.runs.iter().enumerate() {
        let found = compare(&run.end, &decide(&plugin, &run.snapshot));
        other |= !found.is_empty();
        let said = if found.is_empty() {
            "the same, byte for byte".to_owned()
        } else {
            found.join("\n    ")
        };
        print(&format!("run {} at {} by {}: {said}", number + 1, run.snapshot.now, run.plugin))?;
    }
    Ok(if other { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn decide(plugin: &Plugin, snapshot: &Snapshot) -> Result<RawDecision, String> {
    match plugin.reconcile(snapshot, &mut |_| ()) {
        Ok(Ok(Verdict::Decide(decision))) => Ok(decision),
        Ok(Ok(Verdict::Ask(queries))) => {
            let known: Vec<_> = snapshot.answers.iter().map(|answer| &answer.query).collect();
            let new = queries.iter().find(|query| !known.contains(query));
            Err(format!("asks what was not recorded: {new:?}"))
        }
        Ok(Err(failure)) => Err(format!("{}: {}", failure.reason, failure.message)),
        Err(fault) => Err(fault.to_string()),
    }
}

/// Every difference, a line each.
fn compare(
    recorded: &Result<RawDecision, String>,
    now: &Result<RawDecision, String>,
) -> Vec<String> {
    let (recorded, now) = match (recorded, now) {
        (Ok(recorded), Ok(now)) => (recorded, now),
        // The text of a failure names the digest.
        (Err(_), Err(_)) => return Vec::new(),
        (Ok(_), Err(why)) => return vec![format!("fails: {why}")],
        (Err(why), Ok(_)) => return vec![format!("decides; recorded was a failure: {why}")],
    };
    let mut found = Vec::new();
    for object in &now.objects {
        match recorded.objects.iter().find(|other| names(other) == names(object)) {
            None => found.push(format!("+ {}", names(object))),
            Some(other) if other == object => {}
            Some(other) => found.push(format!("~ {} ({})", names(object), fields(other, object))),
        }
    }
    let gone = recorded
        .objects
        .iter()
        .filter(|object| !now.objects.iter().any(|other| names(other) == names(object)));
    found.extend(gone.map(|object| format!("- {}", names(object))));
    if found.is_empty() && recorded.objects != now.objects {
        found.push("~ the order of objects".to_owned());
    }
    for (what, same) in [
        ("status", recorded.status == now.status),
        ("events", recorded.events == now.events),
        ("actions", recorded.actions == now.actions),
        ("requeueAfter", recorded.requeue_after_ms == now.requeue_after_ms),
        ("finished", recorded.finished == now.finished),
    ] {
        if !same {
            found.push(format!("~ {what}"));
        }
    }
    found
}

fn body(object: &RawObject) -> Map<String, Value> {
    serde_json::from_str(&object.body).unwrap_or_default()
}

fn names(object: &RawObject) -> String {
    let body = body(object);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("?").to_owned();
    let name = body.get("metadata").and_then(|metadata| metadata.get("name"));
    format!("{} {}", text(body.get("kind")), text(name))
}

/// Which fields differ, in either direction.
fn fields(before: &RawObject, after: &RawObject) -> String {
    let (before, after) = (body(before), body(after));
    let mut paths: Vec<_> = differences(&after, &before)
        .into_iter()
        .chain(differences(&before, &after))
        .map(|difference| difference.path)
        .collect();
    paths.sort();
    paths.dedup();
    paths.truncate(FIELDS_SHOWN);
    if paths.is_empty() { "its text alone".to_owned() } else { paths.join(", ") }
}

/// `plugin check`: exits with 1 if something is wrong.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs { file, recordings } = args;
    let plugin = crate::inspect::load(file)?;
    let facts = plugin.facts();
    let mut lines = vec![
        format!("ok    contract     {}", facts.contract),
        format!("ok    imports      {}", facts.imports.join(", ")),
        format!("ok    size         {} bytes, {} functions", facts.size_bytes, facts.functions),
    ];
    let grants = host_core::grants::Grants::as_asked(plugin.descriptor());
    let mut wrong = grants.is_err();
    lines.push(match grants {
        Ok(_) => format!(
            "ok    descriptor   {} {}",
            plugin.descriptor().name,
            plugin.descriptor().version
        ),
        Err(error) => format!("WRONG descriptor   {error}"),
    });
    for recording in recordings {
        let file = RecordingFile::read(recording)?;
        for (number, run) in file.runs.iter().enumerate() {
            let about = format!("{} run {}", file.parent, number + 1);
            let verdict = match decide(&plugin, &run.snapshot) {
                Ok(decision) => match plugin.check_soundness(&run.snapshot, &decision) {
                    SoundnessCheck::Sound => Ok("deterministic, independent of order, content"),
                    SoundnessCheck::Unsound(why) => Err(why),
                },
                Err(why) => Err(why),
            };
            wrong |= verdict.is_err();
            lines.push(match verdict {
                Ok(said) => format!("ok    snapshot     {about}: {said}"),
                Err(why) => format!("WRONG snapshot     {about}: {why}"),
            });
        }
    }
    if recordings.is_empty() {
        lines.push("-     snapshot     none given: determinism was not checked; `plugin record` makes some".to_owned());
    }
    print(&lines.join("\n"))?;
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use host_core::decision::{OnImmutable, Ownership};

    use super::*;

    fn decision(objects: &[(&str, &str)]) -> RawDecision {
        let object = |(name, text): &(&str, &str)| RawObject {
            ownership: Ownership::Owned,
            on_immutable: OnImmutable::Report,
            body: format!(
                r#"{{"kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"text":"{text}"}}}}"#
            ),
        };
        RawDecision { objects: objects.iter().map(object).collect(), ..RawDecision::default() }
    }

    #[test]
    fn says_what_another_build_decides_otherwise() {
        let before = Ok(decision(&[("a", "1"), ("b", "1")]));
        assert!(compare(&before, &before.clone()).is_empty());
        let after = Ok(decision(&[("a", "2"), ("c", "1")]));
        let expected = ["~ ConfigMap a (.data.text)", "+ ConfigMap c", "- ConfigMap b"];
        assert_eq!(compare(&before, &after), expected);
        let turned = Ok(decision(&[("b", "1"), ("a", "1")]));
        assert_eq!(compare(&before, &turned), ["~ the order of objects"]);
        let status =
            Ok(RawDecision { status: Some("{}".into()), ..decision(&[("a", "1"), ("b", "1")]) });
        assert_eq!(compare(&before, &status), ["~ status"]);
        assert_eq!(compare(&before, &Err("boom".into())), ["fails: boom"]);
    }
}
