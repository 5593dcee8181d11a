//! The host's side of a compilation: feeds the child, bounds what it says and how long it takes, explains its end.
//!
//! **Invariant:** when [`run`] returns there is no child any more.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::child::{self, EXIT_INVALID};
use super::limits::CompilerLimits;
use crate::error::CompileError;
use crate::limits::{CHILD_MESSAGE_BYTES_MAX, CODE_BYTES_MAX};

/// Exit status of a Rust program that panicked; how some of Cranelift's allocations fail.
const EXIT_PANIC: i32 = 101;

fn unavailable(doing: impl Into<String>, problem: &io::Error) -> CompileError {
    CompileError::Unavailable { doing: doing.into(), problem: problem.to_string() }
}

/// How a child ended.
struct Ended {
    status: ExitStatus,
    code: Vec<u8>,
    message: String,
    timed_out: bool,
}

/// Compiles `wasm` in a child.
pub(super) fn run(
    command: &Path,
    wasm: &[u8],
    limits: CompilerLimits,
) -> Result<Vec<u8>, CompileError> {
    let mut child = Command::new(command)
        .args(child::arguments(limits))
        // It needs no credentials and no settings, and must not be swayed by any.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| unavailable(format!("starting {}", command.display()), &error))?;
    match converse(&mut child, wasm, limits.wall_clock) {
        Ok(ended) => explain(ended, limits),
        Err(error) => {
            // Whatever went wrong, the child must not outlive this function.
            let _ = child.kill();
            let _ = child.wait();
            Err(unavailable("talking to the compiler", &error))
        }
    }
}

/// Feeds, reads and waits, with one thread for each thing that may block.
fn converse(child: &mut Child, wasm: &[u8], wall_clock: Duration) -> io::Result<Ended> {
    // A descriptor and not a number: it still means this child when the number has been given to another process.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the child has no process number"))?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let missing = || io::Error::other("the child has no pipes");
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let (done, is_done) = mpsc::channel::<()>();
    let kill = || pidfd_send_signal(&handle, Signal::KILL);

    thread::scope(|scope| {
        let watchdog = scope.spawn(move || wait_or(&is_done, wall_clock, kill));
        // An error here means that the child has ended; how it ended says more.
        scope.spawn(move || stdin.write_all(wasm).is_ok());
        let message = scope.spawn(move || read_bounded(stderr, CHILD_MESSAGE_BYTES_MAX));
        let code = read_bounded(stdout, CODE_BYTES_MAX + 1);
        let message = message.join().unwrap_or_default();
        let status = child.wait();
        drop(done);
        let timed_out = watchdog.join().unwrap_or(false);
        let message = String::from_utf8_lossy(&message).trim().to_owned();
        Ok(Ended { status: status?, code, message, timed_out })
    })
}

/// Waits for the end of the work; after `limit` does `kill` instead and says true.
fn wait_or<E>(done: &Receiver<()>, limit: Duration, kill: impl Fn() -> Result<(), E>) -> bool {
    match done.recv_timeout(limit) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => false,
        Err(RecvTimeoutError::Timeout) => {
            // It fails only when the child has already ended.
            let _ = kill();
            true
        }
    }
}

/// Reads up to `max` bytes and closes the pipe; a child that says more is ended by that.
/// A read that fails ends the text: what is missing is found out later, by status or length.
fn read_bounded(pipe: impl Read, max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = pipe.take(max as u64).read_to_end(&mut bytes);
    bytes
}

fn explain(ended: Ended, limits: CompilerLimits) -> Result<Vec<u8>, CompileError> {
    let Ended { status, code, message, timed_out } = ended;
    if code.len() > CODE_BYTES_MAX {
        return Err(CompileError::CodeTooLarge { max: CODE_BYTES_MAX });
    }
    if status.success() {
        return Ok(code);
    }
    let out_of_memory =
        message.contains("memory allocation of") || message.contains("out of memory");
    let signal = status.signal().and_then(Signal::from_named_raw);
    Err(match (status.code(), signal) {
        (_, Some(Signal::XCPU)) => CompileError::Cpu { seconds: limits.cpu_seconds },
        (Some(EXIT_PANIC), _) | (_, Some(Signal::ABORT)) if out_of_memory => {
            CompileError::Memory { mib: limits.memory_mib }
        }
        (_, Some(Signal::KILL)) if timed_out => CompileError::WallClock {
            ms: u64::try_from(limits.wall_clock.as_millis()).unwrap_or(u64::MAX),
        },
        (_, Some(Signal::KILL)) => CompileError::Killed,
        (Some(code), _) if code == i32::from(EXIT_INVALID) => {
            CompileError::Invalid { problem: message }
        }
        _ => CompileError::Crashed { status: status.to_string(), message },
    })
}
