//! `plugin pause` and `plugin resume`: whether a plugin follows its source.

use serde_json::{Value, json};

use crate::command::cluster::{Found, block_on};
use crate::command::output::print;
use crate::flags::PluginArgs;

/// Lets no new revision act.
pub(crate) fn pause(args: PluginArgs) -> anyhow::Result<()> {
    change(args, json!({ "paused": true }), "is paused")
}

/// Ends a pause or a rollback.
pub(crate) fn resume(args: PluginArgs) -> anyhow::Result<()> {
    change(args, json!({ "paused": null, "revision": null }), "follows its source")
}

fn change(args: PluginArgs, spec: Value, now: &str) -> anyhow::Result<()> {
    block_on(async {
        let found = Found::find(args).await?;
        found.set(spec).await?;
        print(&format!("{} {now}", found.id))
    })
}
