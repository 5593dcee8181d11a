//! `operator-host`: runs Kubernetes reconcile logic that is a WebAssembly component.

mod ask;
mod config;
mod dispatch;
mod election;
mod error;
mod explain;
mod inspect;
mod operate;
mod package;
mod plugins;
mod providers;
mod reconcile;
mod recordings;
mod registry;
mod replay;
mod rollout;
mod run;
mod serve;
mod signature;
mod telemetry;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::config::{Cli, Command, PluginCommand};

/// A reconcile allocates many small pieces of JSON: glibc's allocator took a fifth of the processor time, and musl's,
/// in the static image, would take more (ADR 0006).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Crds { files } => inspect::crds(&files).map(|()| ExitCode::SUCCESS),
        Command::Explain(args) => explain::command(args).map(|()| ExitCode::SUCCESS),
        Command::Plugin(command) => plugin(command),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "operator-host", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Compile { limits } => return host_wasm::compile_child_main(&limits),
    };
    result.unwrap_or_else(|error| telemetry::fail(&error))
}

fn plugin(command: PluginCommand) -> anyhow::Result<ExitCode> {
    match command {
        PluginCommand::Status(plugin) => operate::status(plugin)?,
        PluginCommand::Plan(args) => return operate::plan(args),
        PluginCommand::Approve { plugin, revision } => operate::approve(plugin, revision)?,
        PluginCommand::Rollback { plugin, to } => operate::rollback(plugin, to)?,
        PluginCommand::Pause(plugin) => operate::pause(plugin, true)?,
        PluginCommand::Resume(plugin) => operate::pause(plugin, false)?,
        PluginCommand::History(plugin) => operate::history(plugin)?,
        PluginCommand::Record(args) => replay::record(args)?,
        PluginCommand::Replay(args) => return replay::replay(&args),
        PluginCommand::Check(args) => return replay::check(&args),
        PluginCommand::Push(args) => package::push(&args)?,
        PluginCommand::Package(args) => package::package(&args)?,
        PluginCommand::Inspect { file, json } => inspect::inspect(&file, json)?,
    }
    Ok(ExitCode::SUCCESS)
}
