//! What a plugin logs: lines are kept with the call and handed over when it has ended.
//!
//! **Invariant:** no call keeps more than its quota.

use host_core::limits::cut;

use crate::limits::{FAULT_TEXT_BYTES_MAX, LOG_BYTES_MAX, LOG_FIELD_BYTES, LOG_LINE_BYTES};

/// How important a line is, in the plugin's opinion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// The finest.
    Trace,
    /// For the plugin's author.
    Debug,
    /// For operators.
    Info,
    /// Somebody should look.
    Warn,
    /// Something is wrong; a panic says so here.
    Error,
}

/// One line a plugin wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How important.
    pub level: LogLevel,
    /// The text.
    pub message: String,
    /// Key and value pairs.
    pub fields: Vec<(String, String)>,
}

/// The lines of one call.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    lines: Vec<LogLine>,
    bytes: usize,
}

/// A call wrote more than it may.
#[derive(Debug, thiserror::Error)]
#[error("log quota exceeded")]
pub(crate) struct LogQuotaExceeded;

impl CallLog {
    /// Keeps a line, unless that breaks the quota.
    pub(crate) fn push(&mut self, line: LogLine) -> Result<(), LogQuotaExceeded> {
        let fields: usize =
            line.fields.iter().map(|(key, value)| key.len() + value.len() + LOG_FIELD_BYTES).sum();
        self.bytes += LOG_LINE_BYTES + line.message.len() + fields;
        if self.bytes > LOG_BYTES_MAX {
            return Err(LogQuotaExceeded);
        }
        self.lines.push(line);
        Ok(())
    }

    /// What a panic hook said: the last line at level error.
    pub(crate) fn last_error(&self) -> Option<String> {
        let line = self.lines.iter().rev().find(|line| line.level == LogLevel::Error)?;
        Some(cut(&line.message, FAULT_TEXT_BYTES_MAX))
    }

    pub(crate) fn into_lines(self) -> Vec<LogLine> {
        self.lines
    }
}
