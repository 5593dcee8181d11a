//! `plugin replay`: recorded runs against any build, byte for byte, without a cluster.

use std::process::ExitCode;

use host_core::decision::{RawDecision, RawObject};
use host_core::diff::differences;
use serde_json::{Map, Value};

use crate::command::output::print;
use crate::command::recording::decide;
use crate::command::{file, recording};
use crate::flags::ReplayArgs;

/// Fields of an object that are named when two decisions differ.
const FIELDS_SHOWN: usize = 5;

/// Exits with 1 if a build decides otherwise than was recorded.
pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let ReplayArgs { recording, with } = args;
    let plugin = file::load(with)?;
    let recording = recording::read(recording)?;
    let mut other = false;
    print(&format!("{}, {} runs, with {}", recording.parent, recording.runs.len(), plugin.id()))?;
    for (number, run) in recording.runs.iter().enumerate() {
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
