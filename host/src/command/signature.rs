//! The file that holds a component's signature.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use host_engine::signature::Signature;

/// Reads it.
pub(crate) fn read(file: &Path) -> anyhow::Result<Signature> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Signature::read(&bytes).map_err(|why| anyhow!("{}: {why}", file.display()))
}
