//! The one place where unsafe code is allowed: machine code becomes executable.
//!
//! **Invariant:** [`TrustedCode`] is made only from what this host's own compiling child wrote, in this process's
//! lifetime or, by way of the cache, with a digest that matches. wasmtime runs a corrupted file without complaint.

use wasmtime::component::Component;

/// Machine code of this host's own making.
pub(crate) struct TrustedCode(Vec<u8>);

impl TrustedCode {
    /// `bytes` must come from the compiling child, directly or by a cache entry whose digest matched.
    pub(crate) fn from_own_compiler(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Makes it executable. Fails when it was compiled with another configuration.
    #[allow(
        unsafe_code,
        reason = "deserialize is unsafe because it trusts its bytes; the type's invariant is what it asks for"
    )]
    pub(crate) fn load(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        // SAFETY: by the type's invariant the bytes are what `Engine::precompile_component` wrote.
        unsafe { Component::deserialize(engine, &self.0) }
    }
}
