//! What a plugin says while it is asked.

use std::fmt::Write as _;

use host_wasm::{LogLevel, LogLine};

/// Logs a line of a plugin, at its level.
pub(crate) fn plugin_log(line: &LogLine) {
    let fields = line.fields.iter().fold(String::new(), |mut text, (key, value)| {
        // Writing to a String cannot fail.
        let _ = write!(text, " {key}={value:?}");
        text
    });
    match line.level {
        LogLevel::Trace => tracing::trace!(target: "plugin", "{}{fields}", line.message),
        LogLevel::Debug => tracing::debug!(target: "plugin", "{}{fields}", line.message),
        LogLevel::Info => tracing::info!(target: "plugin", "{}{fields}", line.message),
        LogLevel::Warn => tracing::warn!(target: "plugin", "{}{fields}", line.message),
        LogLevel::Error => tracing::error!(target: "plugin", "{}{fields}", line.message),
    }
}
