//! The last runs of one parent in a file: what `plugin record` takes from a host, and `plugin replay` and
//! `plugin check` run again.

use std::sync::Arc;

use host_core::decision::RawDecision;
use host_core::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use crate::recordings::Recording;

/// Says what a file is, so that another one is refused with a word.
const FORMAT: &str = "operator-host/recording/v1";

/// The last runs of one parent.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordingFile {
    format: String,
    /// Whose runs they are, for people.
    pub parent: String,
    /// The runs, the newest last.
    pub runs: Vec<RecordedRun>,
}

/// One run.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedRun {
    /// By which version, for people.
    pub plugin: String,
    /// How long it took, its probes included, in microseconds.
    pub took_us: u64,
    /// What the plugin saw, all answers included.
    pub snapshot: Snapshot,
    /// What it decided, or why it did not.
    pub end: Result<RawDecision, String>,
}

/// Why a file is not used. The words go behind its name.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRecording {
    /// It is something else.
    #[error("is no recording; `operator-host plugin record` makes them: {0}")]
    Unreadable(serde_json::Error),
    /// Another version of this program has made it.
    #[error("has the format {found:?}, this program reads {known:?}", known = FORMAT)]
    Format {
        /// The format it says it has.
        found: String,
    },
}

impl RecordingFile {
    /// What is remembered of a parent.
    pub(crate) fn new(parent: String, runs: &[Arc<Recording>]) -> Self {
        let runs = runs.iter().map(|run| RecordedRun {
            plugin: run.plugin.clone(),
            took_us: run.took_us,
            snapshot: Snapshot::clone(&run.snapshot),
            end: run.end.clone(),
        });
        Self { format: FORMAT.to_owned(), parent, runs: runs.collect() }
    }

    /// From the text of a file.
    pub fn parse(text: &str) -> Result<Self, InvalidRecording> {
        let recording: Self = serde_json::from_str(text).map_err(InvalidRecording::Unreadable)?;
        if recording.format != FORMAT {
            return Err(InvalidRecording::Format { found: recording.format });
        }
        Ok(recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_refused_with_a_word() {
        let text = serde_json::to_string(&RecordingFile::new("Demo n/a".to_owned(), &[])).unwrap();
        assert_eq!(RecordingFile::parse(&text).unwrap().parent, "Demo n/a");
        let said = |text: &str| RecordingFile::parse(text).unwrap_err().to_string();
        assert_eq!(
            said(&text.replace("/v1", "/v2")),
            r#"has the format "operator-host/recording/v2", this program reads "operator-host/recording/v1""#
        );
        assert!(said("{}").starts_with("is no recording; "), "{}", said("{}"));
    }
}
