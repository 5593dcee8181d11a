//! `plugin history`: the revisions that have acted, and why they ended.

use std::fmt::Write as _;

use crate::command::cluster::{Found, block_on};
use crate::command::output::print;
use crate::flags::PluginArgs;

/// Lists them.
pub(crate) fn history(args: PluginArgs) -> anyhow::Result<()> {
    let found = block_on(Found::find(args))?;
    let mut out =
        format!("{:<14}{:<10}{:<22}{:<22}{}", "REVISION", "VERSION", "DIGEST", "PROMOTED", "ENDED");
    for entry in &found.object.status.history {
        let digest: String = entry.digest.chars().take("sha256:".len() + 12).collect();
        let ended = if entry.ended.is_empty() { "acts" } else { &entry.ended };
        write!(
            out,
            "\n{:<14}{:<10}{digest:<22}{:<22}{ended}",
            entry.revision.to_string(),
            entry.version,
            entry.promoted
        )?;
    }
    print(&out)
}
