//! `plugin …`: one file for each of its commands.

mod approve;
mod check;
mod history;
mod inspect;
mod package;
mod pause;
mod plan;
mod push;
mod record;
mod replay;
mod rollback;
mod status;

use std::process::ExitCode;

use crate::flags::PluginCommand;

/// Does what the command says.
pub(crate) fn dispatch(command: PluginCommand) -> anyhow::Result<ExitCode> {
    match command {
        PluginCommand::Status(plugin) => status::status(plugin)?,
        PluginCommand::Plan(args) => return plan::plan(args),
        PluginCommand::Approve { plugin, revision } => approve::approve(plugin, revision)?,
        PluginCommand::Rollback { plugin, to } => rollback::rollback(plugin, to)?,
        PluginCommand::Pause(plugin) => pause::pause(plugin)?,
        PluginCommand::Resume(plugin) => pause::resume(plugin)?,
        PluginCommand::History(plugin) => history::history(plugin)?,
        PluginCommand::Record(args) => record::record(args)?,
        PluginCommand::Replay(args) => return replay::replay(&args),
        PluginCommand::Check(args) => return check::check(&args),
        PluginCommand::Push(args) => push::push(&args)?,
        PluginCommand::Package(args) => package::package(&args)?,
        PluginCommand::Inspect { file, json } => inspect::inspect(&file, json)?,
    }
    Ok(ExitCode::SUCCESS)
}
