//! Standard output.

use std::io::Write as _;

use anyhow::Context as _;

/// Prints lines to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end()).context("writing to standard output")
}
