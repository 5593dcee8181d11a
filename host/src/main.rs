//! `operator-host`: runs Kubernetes reconcile logic that is a WebAssembly component.

mod config;
mod dispatch;
mod election;
mod error;
mod explain;
mod inspect;
mod plugins;
mod providers;
mod reconcile;
mod rollout;
mod run;
mod serve;
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
        Command::Run(args) => run::run(*args),
        Command::Crds { files } => inspect::crds(&files),
        Command::Explain(args) => explain::command(args),
        Command::Plugin(PluginCommand::Inspect { file, json }) => inspect::inspect(&file, json),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "operator-host", &mut std::io::stdout());
            Ok(())
        }
        Command::Compile { limits } => return host_wasm::compile_child_main(&limits),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => telemetry::fail(&error),
    }
}
