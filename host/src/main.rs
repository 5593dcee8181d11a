//! `operator-host`: runs Kubernetes reconcile logic that is a WebAssembly component.

mod command;
mod flags;
mod run;
mod serve;
mod telemetry;

use std::process::ExitCode;

use clap::Parser as _;

use crate::flags::{Cli, Command};

/// A reconcile allocates many small pieces of JSON: glibc's allocator took a fifth of the processor time, and musl's,
/// in the static image, would take more (ADR 0006).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Tool(command) => command::dispatch(command),
        Command::Compile { limits } => return host_wasm::compile_child_main(&limits),
    };
    result.unwrap_or_else(|error| telemetry::fail(&error))
}
