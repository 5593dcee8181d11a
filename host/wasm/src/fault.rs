//! How a call into a plugin can go wrong, and how wasmtime's errors become that.
//!
//! **Invariant:** a fault always names the plugin and its digest, and nothing in it is about the cluster.

use std::fmt;

use host_core::ident::PluginId;
use host_core::limits::cut;
use wasmtime::{Trap, WasmBacktrace};

use crate::call::{CallBudget, MemoryExceeded};
use crate::limits::{FAULT_TEXT_BYTES_MAX, LOG_BYTES_MAX, RECURSION_FRAMES};
use crate::log::{CallLog, LogQuotaExceeded};

/// A call that did not end as the contract wants. The plugin's fault, always; other calls are not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{plugin} {kind}")]
pub struct CallFault {
    /// Whose fault.
    pub plugin: PluginId,
    /// Which fault.
    pub kind: FaultKind,
}

impl CallFault {
    /// A `CamelCase` reason for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            FaultKind::Deadline { .. } => "PluginDeadline",
            FaultKind::Memory { .. } => "PluginMemory",
            FaultKind::StackOverflow => "PluginStackOverflow",
            FaultKind::Panicked { .. } => "PluginPanicked",
            FaultKind::Trapped { .. } => "PluginTrapped",
            FaultKind::OutputTooLarge { .. } => "PluginOutputTooLarge",
            FaultKind::LogQuota => "PluginLogQuota",
            FaultKind::BadOutput { .. } => "PluginBadOutput",
        }
    }
}

/// Which fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It did not come back in time.
    Deadline {
        /// The limit, in milliseconds.
        ms: u32,
    },
    /// It wanted more memory.
    Memory {
        /// The limit, in MiB.
        mib: u32,
    },
    /// It called itself too deeply.
    StackOverflow,
    /// It panicked and its hook said why.
    Panicked {
        /// Its last log line at level error.
        message: String,
    },
    /// It trapped, and said nothing.
    Trapped {
        /// Which trap, and in which function if that is known.
        problem: String,
    },
    /// It handed over too much at once.
    OutputTooLarge {
        /// The limit, in bytes.
        max: usize,
    },
    /// It logged too much.
    LogQuota,
    /// What it handed over is not what it should be: text that is not UTF-8, a pointer into nowhere.
    BadOutput {
        /// What wasmtime says.
        problem: String,
    },
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline { ms } => write!(f, "exceeded {ms} ms"),
            Self::Memory { mib } => write!(f, "exceeded {mib} MiB of memory"),
            Self::StackOverflow => f.write_str("overflowed its stack"),
            Self::Panicked { message } => write!(f, "panicked: {message}"),
            Self::Trapped { problem } => write!(f, "trapped: {problem}"),
            Self::OutputTooLarge { max } => write!(f, "handed over more than {max} bytes at once"),
            Self::LogQuota => write!(f, "logged more than {LOG_BYTES_MAX} bytes in one call"),
            Self::BadOutput { problem } => {
                write!(f, "handed over something malformed: {problem}")
            }
        }
    }
}

/// wasmtime has no public type for this error; the tests hold the text.
const OUTPUT_EXHAUSTED: &str = "fuel allocated for hostcalls has been exhausted";

/// Finds the fault behind an error.
pub(crate) fn classify(error: &wasmtime::Error, log: &CallLog, budget: &CallBudget) -> FaultKind {
    if error.is::<MemoryExceeded>() {
        return FaultKind::Memory { mib: budget.memory_mib };
    }
    if error.is::<LogQuotaExceeded>() {
        return FaultKind::LogQuota;
    }
    let Some(trap) = error.downcast_ref::<Trap>() else {
        let root = error.root_cause().to_string();
        return if root.contains(OUTPUT_EXHAUSTED) {
            FaultKind::OutputTooLarge { max: budget.output_bytes }
        } else {
            FaultKind::BadOutput { problem: cut(&root, FAULT_TEXT_BYTES_MAX) }
        };
    };
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    if *trap == Trap::Interrupt {
        return FaultKind::Deadline { ms: budget.deadline_ms };
    }
    let runaway = *trap == Trap::MemoryOutOfBounds && backtrace.is_some_and(is_recursion);
    if *trap == Trap::StackOverflow || runaway {
        return FaultKind::StackOverflow;
    }
    match log.last_error() {
        Some(message) if *trap == Trap::UnreachableCodeReached => FaultKind::Panicked { message },
        _ => FaultKind::Trapped { problem: trap_text(*trap, backtrace) },
    }
}

fn is_recursion(backtrace: &WasmBacktrace) -> bool {
    let frames = backtrace.frames();
    let same = |index| frames.iter().filter(|frame| frame.func_index() == index).count();
    frames.iter().any(|frame| same(frame.func_index()) >= RECURSION_FRAMES)
}

fn trap_text(trap: Trap, backtrace: Option<&WasmBacktrace>) -> String {
    let text = trap.to_string();
    let text = text.strip_prefix("wasm trap: ").unwrap_or(&text);
    let function = backtrace
        .and_then(|backtrace| backtrace.frames().first())
        .and_then(|frame| frame.func_name());
    match function {
        Some(name) => cut(&format!("{text}, in {name}"), FAULT_TEXT_BYTES_MAX),
        None => text.to_owned(),
    }
}
