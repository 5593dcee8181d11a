//! A cluster's state directory: keys, logs, volumes, etcd's data.
//!
//! **Invariant:** a directory is only emptied when its lock is free and it was made by us (it has
//! the lock file) or was empty.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::{cache, report};

const LOCK: &str = "devcluster.lock";

/// In the temporary root.
const OPENING: &str = "opening.lock";

/// A locked state directory.
#[derive(Debug)]
pub(crate) struct StateDir {
    pub(crate) path: PathBuf,
    /// Made by us under the temporary directory: removed at the end.
    temporary: bool,
    _lock: File,
}

/// Where clusters without a state directory of their own live.
pub(crate) fn temporary_root() -> PathBuf {
    std::env::temp_dir().join("operator-host-devcluster")
}

impl StateDir {
    /// Opens `wanted`, or makes a temporary directory; what an earlier cluster left is removed.
    pub(crate) fn open(wanted: Option<&Path>) -> Result<Self> {
        // Held until the directory is locked: somebody else's sweep would take a new one for a dead one.
        let (path, _opening) = if let Some(path) = wanted {
            (path.to_owned(), None)
        } else {
            let opening = opening()?;
            sweep();
            (unused_name(), Some(opening))
        };
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("finding {}", path.display()))?;
        let marker = path.join(LOCK);
        let mut entries = fs::read_dir(&path).context("reading the state directory")?;
        if !marker.exists() && entries.next().is_some() {
            bail!("{} is not empty and not a devcluster state directory", path.display());
        }
        let lock = cache::lock_file(&marker)?;
        if lock.try_lock().is_err() {
            bail!("a cluster is running in {} already", path.display());
        }
        let state = Self { path, temporary: wanted.is_none(), _lock: lock };
        state.clear()?;
        Ok(state)
    }

    fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.path).context("reading the state directory")? {
            let path = entry.context("reading the state directory")?.path();
            if path.ends_with(LOCK) {
                continue;
            }
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("removing {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes a temporary directory.
    pub(crate) fn discard(&self) {
        if self.temporary
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            report::warn(&format!("could not remove {}: {error}", self.path.display()));
        }
    }
}

/// One process at a time opens a temporary directory.
fn opening() -> Result<File> {
    let root = temporary_root();
    fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
    cache::lock(&root.join(OPENING))
}

fn unused_name() -> PathBuf {
    let root = temporary_root();
    (0..u32::MAX)
        .map(|number| root.join(format!("c{}-{number}", std::process::id())))
        .find(|path| !path.exists())
        .unwrap_or(root)
}

/// Removes what killed processes left: temporary directories whose lock is free.
fn sweep() {
    let Ok(entries) = fs::read_dir(temporary_root()) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let ours = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with('c') && name.contains('-'));
        let lock = path.join(LOCK);
        if ours
            && lock.exists()
            && cache::lock_file(&lock).is_ok_and(|file| file.try_lock().is_ok())
        {
            // Someone else may sweep at the same time; nothing depends on who wins.
            drop(fs::remove_dir_all(&path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_directory_that_is_not_its_own() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
        assert!(StateDir::open(Some(dir.path())).is_err());
        assert!(dir.path().join("thesis.txt").exists());
    }

    #[test]
    fn is_locked_while_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::open(Some(dir.path())).unwrap();
        assert!(StateDir::open(Some(dir.path())).is_err());
        drop(first);
        StateDir::open(Some(dir.path())).unwrap();
    }
}
