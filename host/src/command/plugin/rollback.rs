//! `plugin rollback`: back to a revision that has acted before, until `resume`.

use anyhow::Context as _;
use host_core::plugin::{PluginStatus, Revision};
use serde_json::json;

use crate::command::cluster::{Found, block_on};
use crate::command::output::print;
use crate::flags::PluginArgs;

/// Pins a revision, or the one that acted before.
pub(crate) fn rollback(args: PluginArgs, to: Option<Revision>) -> anyhow::Result<()> {
    block_on(async {
        let found = Found::find(args).await?;
        let revision = to
            .or_else(|| before(&found.object.status))
            .context("no earlier revision is known; name one with --to, `history` lists them")?;
        found.set(json!({ "revision": revision })).await?;
        print(&format!(
            "{} goes back to revision {revision} and stays there; `operator-host plugin resume {}` follows the source again",
            found.id, found.id.key.name
        ))
    })
}

/// The revision that acted before the one that acts, and was not taken back.
fn before(status: &PluginStatus) -> Option<Revision> {
    let active = status.active.as_ref()?.revision;
    let bad = |revision: Revision| status.quarantined.iter().any(|one| one.revision == revision);
    let mut earlier = status.history.iter().map(|entry| entry.revision);
    earlier.find(|revision| *revision != active && !bad(*revision))
}

#[cfg(test)]
mod tests {
    use host_core::plugin::{HistoryEntry, Quarantined, RevisionStatus};

    use super::*;

    fn entry(revision: &str) -> HistoryEntry {
        HistoryEntry {
            revision: revision.parse().unwrap(),
            digest: "sha256:0".into(),
            version: "1".into(),
            promoted: "t".into(),
            ended: String::new(),
        }
    }

    #[test]
    fn goes_back_to_what_acted_before_and_was_good() {
        let (now, bad, good) = ("00000000000a", "00000000000b", "00000000000c");
        let status = PluginStatus {
            active: Some(RevisionStatus {
                revision: now.parse().unwrap(),
                digest: String::new(),
                version: String::new(),
                since: String::new(),
                on_probation: false,
            }),
            history: [now, bad, now, good].map(entry).to_vec(),
            quarantined: vec![Quarantined {
                revision: bad.parse().unwrap(),
                reason: "trap".into(),
                approval_spent: false,
            }],
            ..PluginStatus::default()
        };
        assert_eq!(before(&status), good.parse().ok());
        assert_eq!(before(&PluginStatus::default()), None);
    }
}
