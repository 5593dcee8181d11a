//! The compiling child: a component on stdin, machine code on stdout, a complaint on stderr.
//!
//! **Invariant:** its limits are in force before it reads the first byte.

use std::fs;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::limits::CompilerLimits;
use crate::config;
use crate::limits::COMPONENT_BYTES_MAX;

/// The argument that makes the host's program a compiling child. Two more follow: seconds and MiB.
pub const COMPILE_COMMAND: &str = "compile";

/// Exit status: the component is not valid; stderr says why.
pub(super) const EXIT_INVALID: u8 = 3;
/// Exit status: the child could not do its work; stderr says why.
const EXIT_UNABLE: u8 = 4;

/// The arguments for a child with these limits.
pub(super) fn arguments(limits: CompilerLimits) -> [String; 3] {
    [COMPILE_COMMAND.to_owned(), limits.cpu_seconds.to_string(), limits.memory_mib.to_string()]
}

/// What the program does when its first argument is [`COMPILE_COMMAND`]: `arguments` are those behind it.
///
/// Limits itself, reads a component from stdin, writes machine code to stdout.
pub fn compile_child_main(arguments: &[String]) -> ExitCode {
    let (status, complaint) = match compile(arguments) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Complaint::Invalid(text)) => (EXIT_INVALID, text),
        Err(Complaint::Unable(text)) => (EXIT_UNABLE, text),
    };
    // The status says enough if nobody reads the text.
    let _ = io::stderr().write_all(complaint.as_bytes());
    ExitCode::from(status)
}

enum Complaint {
    Invalid(String),
    Unable(String),
}

fn unable(doing: &str, error: impl std::fmt::Display) -> Complaint {
    Complaint::Unable(format!("{doing}: {error}"))
}

fn compile(arguments: &[String]) -> Result<(), Complaint> {
    limit(arguments)?;
    let mut wasm = Vec::new();
    io::stdin()
        .take(COMPONENT_BYTES_MAX as u64)
        .read_to_end(&mut wasm)
        .map_err(|error| unable("reading the component", error))?;
    let code = precompile(&wasm).map_err(Complaint::Invalid)?;
    let mut out = io::stdout().lock();
    out.write_all(&code)
        .and_then(|()| out.flush())
        .map_err(|error| unable("writing the machine code", error))
}

/// Machine code, or what the compiler has against the component.
pub(super) fn precompile(wasm: &[u8]) -> Result<Vec<u8>, String> {
    wasmtime::Engine::new(&config::base())
        .and_then(|engine| engine.precompile_component(wasm))
        .map_err(|error| format!("{error:#}"))
}

fn limit(arguments: &[String]) -> Result<(), Complaint> {
    let [cpu_seconds, memory_mib] = arguments else {
        return Err(Complaint::Unable("expected two arguments: seconds and MiB".to_owned()));
    };
    let number = |text: &String| text.parse::<u64>().map_err(|error| unable("a limit", error));
    let (cpu_seconds, memory_mib) = (number(cpu_seconds)?, number(memory_mib)?);
    for (resource, limit) in [
        (Resource::Cpu, cpu_seconds),
        (Resource::As, memory_mib.saturating_mul(1024 * 1024)),
        // A crash is expected, its memory is of no use to anybody.
        (Resource::Core, 0),
    ] {
        // For Cpu the signal comes at `current`; `maximum` a second later would be the second, harder one.
        let maximum = limit.saturating_add(u64::from(resource == Resource::Cpu));
        let limit = Rlimit { current: Some(limit), maximum: Some(maximum) };
        setrlimit(resource, limit).map_err(|error| unable("limiting the compiler", error))?;
    }
    // When memory runs out on the machine, this is what should go. Not every container lets it be said.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}
