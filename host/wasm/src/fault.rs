//! How a call into a plugin can go wrong.
//!
//! **Invariant:** a fault always names the plugin and its digest, and nothing in it is about the cluster.

use std::fmt;

use host_core::ident::PluginId;

use crate::limits::LOG_BYTES_MAX;

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
