//! Machine code on disk: one file per component and engine, with a digest of its own in front.
//!
//! wasmtime runs a corrupted file without complaint, so nothing is used whose digest does not match,
//! or that another user may have written. Whatever is wrong with a file, the answer is to compile again.
//!
//! **Invariant:** a file appears under its name only when it is whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use host_core::ident::Digest;

use crate::config;
use crate::error::EngineError;
use crate::limits::{CACHE_FILES_MAX, CODE_BYTES_MAX};

/// Bits of a file mode that let others write.
const OTHERS_WRITE: u32 = 0o022;

#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
    /// What machine code depends on beside the component: wasmtime's version and settings, the processor.
    engine: Digest,
}

impl Cache {
    pub(super) fn new(directory: PathBuf) -> Result<Self, EngineError> {
        let engine = wasmtime::Engine::new(&config::base())
            .map_err(|error| EngineError::Compiler(format!("{error:#}")))?;
        let mut bytes = HashedBytes::default();
        engine.precompile_compatibility_hash().hash(&mut bytes);
        Ok(Self { directory, engine: Digest::of(&bytes.0) })
    }

    fn path(&self, component: Digest) -> PathBuf {
        self.directory.join(format!("{}-{}.cwasm", component.hex(), self.engine.short()))
    }

    /// The first line of a file: for which component and engine it is, and what the rest hashes to.
    fn header(&self, component: Digest, code: &[u8]) -> String {
        format!("{} {} {}\n", component.hex(), self.engine.hex(), Digest::of(code).hex())
    }

    /// The code, if it is there and whole and this user's own.
    pub(super) fn get(&self, component: Digest) -> Option<Vec<u8>> {
        let file = File::open(self.path(component)).ok()?;
        let metadata = file.metadata().ok()?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !own || metadata.mode() & OTHERS_WRITE != 0 {
            return None;
        }
        let header_len = self.header(component, &[]).len();
        let mut bytes = Vec::new();
        file.take((header_len + CODE_BYTES_MAX) as u64).read_to_end(&mut bytes).ok()?;
        let code = bytes.split_off(header_len.min(bytes.len()));
        (bytes == self.header(component, &code).as_bytes()).then_some(code)
    }

    /// Keeps the code.
    pub(super) fn put(&self, component: Digest, code: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let path = self.path(component);
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(self.header(component, code).as_bytes())?;
        file.write_all(code)?;
        fs::rename(&temporary, &path)?;
        self.forget_oldest(&path)
    }

    /// Removes what is beyond the bound, remains of a crash included, but never `newest`: clocks are coarse.
    fn forget_oldest(&self, newest: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.path() != newest {
                files.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        files.sort_unstable();
        let excess = (files.len() + 1).saturating_sub(CACHE_FILES_MAX);
        files.iter().take(excess).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

/// Collects what is hashed, so that a digest that never changes its algorithm can be made of it.
#[derive(Default)]
struct HashedBytes(Vec<u8>);

impl Hasher for HashedBytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn never_holds_more_than_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().to_owned()).unwrap();
        let digest = |number: usize| Digest::of(&number.to_le_bytes());
        for number in 0..CACHE_FILES_MAX + 5 {
            cache.put(digest(number), b"machine code").unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), CACHE_FILES_MAX);
        assert!(cache.get(digest(CACHE_FILES_MAX + 4)).is_some(), "the newest was removed");
    }

    #[test]
    fn gives_back_what_was_put_and_nothing_that_was_changed() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().join("deep/cache")).unwrap();
        let (component, other) = (Digest::of(b"a"), Digest::of(b"b"));
        assert_eq!(cache.get(component), None);
        cache.put(component, b"machine code").unwrap();
        assert_eq!(cache.get(component).as_deref(), Some(&b"machine code"[..]));

        // Another component's file under this one's name.
        fs::copy(cache.path(component), cache.path(other)).unwrap();
        assert_eq!(cache.get(other), None);

        let whole = fs::read(cache.path(component)).unwrap();
        for position in [0, 70, 140, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[position] ^= 1;
            fs::write(cache.path(component), bytes).unwrap();
            assert_eq!(cache.get(component), None, "byte {position}");
        }
        for length in [0, 10, whole.len() - 1] {
            fs::write(cache.path(component), &whole[..length]).unwrap();
            assert_eq!(cache.get(component), None, "length {length}");
        }

        fs::write(cache.path(component), &whole).unwrap();
        assert!(cache.get(component).is_some());
        fs::set_permissions(cache.path(component), fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(cache.get(component), None);
    }
}
