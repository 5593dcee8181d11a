//! Where built binaries are kept: outside the checkout, shared by all checkouts of one user.
//!
//! **Invariant:** a directory that carries a version's name is complete.
//! It is filled under a temporary name and renamed, under a file lock.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Overrides the cache directory (its `operator-host` folder is created inside).
pub const CACHE_ENV: &str = "OPERATOR_HOST_CACHE";

/// The cache root: `$OPERATOR_HOST_CACHE`, else `$XDG_CACHE_HOME`, else `~/.cache`, then `operator-host`.
pub fn cache_root() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let base = set(CACHE_ENV)
        .or_else(|| set("XDG_CACHE_HOME"))
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")))
        .with_context(|| format!("no cache directory: set {CACHE_ENV} or HOME"))?;
    Ok(base.join("operator-host"))
}

/// Opens (and creates) a lock file without taking the lock.
pub(crate) fn lock_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("opening the lock file {}", path.display()))
}

/// Takes an exclusive lock, waiting for whoever has it; released when the file is dropped.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = lock_file(path)?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}
