//! The file that holds a recording, and what a build makes of a recorded snapshot.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use host_core::decision::RawDecision;
use host_core::snapshot::{Snapshot, Verdict};
use host_engine::recording_file::RecordingFile;
use host_wasm::Plugin;

/// Reads it.
pub(crate) fn read(file: &Path) -> anyhow::Result<RecordingFile> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    RecordingFile::parse(&text).map_err(|invalid| anyhow!("{} {invalid}", file.display()))
}

/// What a build decides on a snapshot, or why it does not.
pub(crate) fn decide(plugin: &Plugin, snapshot: &Snapshot) -> Result<RawDecision, String> {
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
