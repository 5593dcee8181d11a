//! What a call keeps in its store: answers wasmtime when the guest wants memory, and the guest's only import, the log.
//!
//! **Invariant:** all memories of a call share one budget; what would break it ends the call.

use wasmtime::ResourceLimiter;

use crate::bindings::v1::operator_host::plugin::log::{Host, Level};
use crate::limits::TABLE_ELEMENTS_MAX;
use crate::log::{CallLog, LogLevel, LogLine};

/// What a store holds: the log so far, and the memory left.
pub(crate) struct CallState {
    pub(crate) log: CallLog,
    memory_bytes_left: usize,
}

impl CallState {
    /// For a call that has written nothing and may use `memory_mib`.
    pub(crate) fn new(memory_mib: u32) -> Self {
        Self { log: CallLog::default(), memory_bytes_left: memory_mib as usize * 1024 * 1024 }
    }
}

/// A call wanted more memory than its budget.
#[derive(Debug, thiserror::Error)]
#[error("memory budget exceeded")]
pub(crate) struct MemoryExceeded;

impl ResourceLimiter for CallState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let allowed = maximum.is_none_or(|maximum| desired <= maximum);
        match self.memory_bytes_left.checked_sub(more) {
            Some(left) if allowed => {
                self.memory_bytes_left = left;
                Ok(true)
            }
            // An error, not a refusal: a guest would answer a refusal with a bare `unreachable`.
            _ => Err(MemoryExceeded.into()),
        }
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        Err(MemoryExceeded.into())
    }

    fn table_growing(
        &mut self,
        _: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let max = TABLE_ELEMENTS_MAX as usize;
        Ok(desired <= maximum.unwrap_or(max).min(max))
    }
}

impl Host for CallState {
    fn write(
        &mut self,
        level: Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> wasmtime::Result<()> {
        let level = match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        Ok(self.log.push(LogLine { level, message, fields })?)
    }
}
