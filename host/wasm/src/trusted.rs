//! The one place where unsafe code is allowed: machine code becomes executable.
//!
//! **Invariant:** [`TrustedCode`] is made only from what this host's own compiling child wrote, in this process's
//! lifetime or, by way of the cache, with a digest that matches. wasmtime runs a corrupted file without complaint.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use wasmtime::component::Component;

/// Machine code of this host's own making.
pub(crate) struct TrustedCode(Code);

enum Code {
    Memory(Vec<u8>),
    /// Mapped when it is loaded: the kernel reads what is run, and may take back what is not.
    File(File),
}

impl TrustedCode {
    /// `bytes` must come from the compiling child.
    pub(crate) fn from_own_compiler(bytes: Vec<u8>) -> Self {
        Self(Code::Memory(bytes))
    }

    /// `file` must be a cache entry whose digest matched, in a directory where only this user writes, and where nothing
    /// is written under its name a second time.
    pub(crate) fn from_own_cache(file: File) -> Self {
        Self(Code::File(file))
    }

    /// Makes it executable. Fails when it was compiled with another configuration.
    #[allow(
        unsafe_code,
        reason = "deserialize is unsafe because it trusts its bytes; the type's invariant is what it asks for"
    )]
    pub(crate) fn load(self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        // SAFETY: by the type's invariant the bytes are what `Engine::precompile_component` wrote, and a file stays it.
        unsafe {
            match self.0 {
                Code::Memory(bytes) => Component::deserialize(engine, &bytes),
                // The file that was checked, whatever has its name by now.
                Code::File(file) => {
                    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
                    Component::deserialize_file(engine, opened)
                }
            }
        }
    }
}
