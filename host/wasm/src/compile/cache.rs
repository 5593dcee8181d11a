//! Machine code on disk: one file per component and engine, named by both and by its own digest.
//!
//! wasmtime runs a corrupted file without complaint, so nothing is used whose digest does not match,
//! or that another user may have written. Whatever is wrong with a file, the answer is to compile again.
//!
//! **Invariant:** a file appears under its name only when it is whole, and is never written again: it may be mapped.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use host_core::ident::Digest;

use crate::config;
use crate::error::EngineError;
use crate::limits::{CACHE_BYTES_MAX, CODE_BYTES_MAX};

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

    /// What the names of a component's files begin with; the digest of the code follows.
    fn prefix(&self, component: Digest) -> String {
        format!("{}-{}-", component.hex(), self.engine.hex())
    }

    fn path(&self, component: Digest, code: &[u8]) -> PathBuf {
        let code = Digest::of(code).hex();
        self.directory.join(format!("{}{code}.cwasm", self.prefix(component)))
    }

    /// The file with the code, if it is there and whole and this user's own.
    pub(super) fn get(&self, component: Digest) -> Option<File> {
        let prefix = self.prefix(component);
        let entries = fs::read_dir(&self.directory).ok()?.flatten();
        let named =
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        named.map(|entry| entry.path()).find_map(|path| self.open(component, &path))
    }

    fn open(&self, component: Digest, path: &Path) -> Option<File> {
        let mut file = File::open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !own || metadata.mode() & OTHERS_WRITE != 0 {
            return None;
        }
        let mut code = Vec::new();
        (&mut file).take(CODE_BYTES_MAX as u64).read_to_end(&mut code).ok()?;
        (self.path(component, &code) == path).then_some(file)
    }

    /// Keeps the code.
    pub(super) fn put(&self, component: Digest, code: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let path = self.path(component, code);
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(code)?;
        fs::rename(&temporary, &path)?;
        self.forget_oldest(&path, CACHE_BYTES_MAX)
    }

    /// Removes what is beyond `bytes_max`, remains of a crash included, but never `newest`: clocks are coarse.
    fn forget_oldest(&self, newest: &Path, bytes_max: u64) -> io::Result<()> {
        let (mut files, mut bytes) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            bytes += metadata.len();
            if entry.path() != newest {
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort_unstable();
        for (_, len, path) in files {
            if bytes <= bytes_max {
                break;
            }
            fs::remove_file(path)?;
            bytes -= len;
        }
        Ok(())
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
        let digest = |number: u8| Digest::of(&[number]);
        for number in 0..9 {
            cache.put(digest(number), &[number; 100]).unwrap();
        }
        let newest = cache.path(digest(0), &[0; 100]);
        cache.forget_oldest(&newest, 350).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
        assert!(cache.get(digest(0)).is_some(), "the newest was removed");
        cache.forget_oldest(&newest, 0).unwrap();
        assert!(cache.get(digest(0)).is_some(), "the newest was removed");
    }

    #[test]
    fn gives_back_what_was_put_and_nothing_that_was_changed() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path().join("deep/cache")).unwrap();
        let (component, other) = (Digest::of(b"a"), Digest::of(b"b"));
        assert!(cache.get(component).is_none());
        cache.put(component, b"machine code").unwrap();
        let path = cache.path(component, b"machine code");
        assert!(cache.get(component).is_some());
        assert_eq!(fs::read(&path).unwrap(), b"machine code");

        // Another component's code under a name that would be its own, but for the digest.
        fs::write(cache.path(other, b"other code"), b"machine code").unwrap();
        assert!(cache.get(other).is_none());

        for changed in [&b"Machine code"[..], b"machine codE", b"machine cod", b""] {
            fs::write(&path, changed).unwrap();
            assert!(cache.get(component).is_none(), "{changed:?}");
        }

        fs::write(&path, b"machine code").unwrap();
        assert!(cache.get(component).is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(cache.get(component).is_none());
    }
}
