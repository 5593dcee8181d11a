//! One file for each command, and below them what several of them need.

mod ask;
mod cluster;
mod completions;
mod crds;
mod differences;
mod explain;
pub(crate) mod file;
mod output;
mod plugin;
mod recording;
mod signature;

use std::process::ExitCode;

use crate::flags::ToolCommand;

/// Does what the command says.
pub(crate) fn dispatch(command: ToolCommand) -> anyhow::Result<ExitCode> {
    match command {
        ToolCommand::Crds { files } => crds::crds(&files)?,
        ToolCommand::Explain(args) => explain::explain(args)?,
        ToolCommand::Plugin(command) => return plugin::dispatch(command),
        ToolCommand::Completions { shell } => completions::completions(shell),
    }
    Ok(ExitCode::SUCCESS)
}
