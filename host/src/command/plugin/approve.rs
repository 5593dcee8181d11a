//! `plugin approve`: lets a held revision act, whatever its plan says.

use anyhow::bail;
use host_core::plugin::{Revision, Stage};
use serde_json::json;

use crate::command::cluster::{Found, block_on};
use crate::command::output::print;
use crate::flags::PluginArgs;

/// Approves a revision, or the one that is held.
pub(crate) fn approve(args: PluginArgs, revision: Option<Revision>) -> anyhow::Result<()> {
    block_on(async {
        let found = Found::find(args).await?;
        let candidate = found.object.status.candidate.as_ref();
        let held = candidate.filter(|candidate| {
            matches!(candidate.stage, Stage::Held | Stage::Shadowing | Stage::Canary)
        });
        let Some(revision) = revision.or_else(|| held?.revision) else {
            match candidate {
                Some(candidate) => bail!(
                    "no revision waits for approval: the newest one is {} ({}): {}",
                    candidate.stage.as_str(),
                    candidate.reason,
                    candidate.message
                ),
                None => bail!("no revision waits for approval: the newest one acts"),
            }
        };
        if found.object.spec.approved == Some(revision) {
            // It was taken back since: the host has to see that this is another approval.
            let generation = found.set(json!({ "approved": null })).await?;
            found.seen(generation).await?;
        }
        found.set(json!({ "approved": revision })).await?;
        print(&format!("revision {revision} of {} is approved", found.id))
    })
}
