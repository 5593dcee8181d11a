//! Stage *compile*: machine code, made by a child process within limits or taken from the cache.
//!
//! Cranelift cannot be interrupted, and 0.9 MB of the wrong wasm takes it minutes and 10 GB.
//!
//! **Invariant:** no two compilations at once, so their limits add up to one child's.
//! **Invariant:** what has once broken a limit that does not depend on the machine's load is not tried again.

mod cache;
pub(crate) mod child;
mod limits;
mod parent;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use host_core::ident::{Digest, PluginId};

use crate::error::{CompileError, EngineError, LoadError};
use crate::limits::REFUSED_DIGESTS_MAX;
use crate::trusted::TrustedCode;
use crate::verify::{Facts, VerifiedPlugin};

pub use limits::CompilerLimits;

/// Compiles plugins, one at a time, and keeps what came out.
#[derive(Debug)]
pub struct Compiler {
    command: PathBuf,
    cache: Option<cache::Cache>,
    limits: CompilerLimits,
    /// What cannot be compiled, and why. The lock is also what makes compilations wait for each other.
    refused: Mutex<BTreeMap<Digest, CompileError>>,
}

/// A plugin with its machine code.
pub struct CompiledPlugin {
    pub(crate) id: PluginId,
    pub(crate) facts: Facts,
    pub(crate) code: TrustedCode,
}

impl CompiledPlugin {
    /// Compiles in this process, without limits: for a test kit, on its author's own plugin. Never for a plugin
    /// from elsewhere: that is what [`Compiler`] is for.
    pub fn in_process(plugin: VerifiedPlugin) -> Result<Self, LoadError> {
        let code = child::precompile(plugin.bytes());
        let (id, facts) = plugin.into_parts();
        match code {
            Ok(code) => Ok(Self { id, facts, code: TrustedCode::from_own_compiler(code) }),
            Err(problem) => {
                Err(LoadError::Compile { plugin: id, source: CompileError::Invalid { problem } })
            }
        }
    }
}

impl std::fmt::Debug for CompiledPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CompiledPlugin").field(&self.id).finish_non_exhaustive()
    }
}

impl Compiler {
    /// A compiler that runs `command` with the argument [`COMPILE_COMMAND`](crate::COMPILE_COMMAND) as its child:
    /// the program itself, whose `main` must then end in [`compile_child_main`](crate::compile_child_main).
    ///
    /// Machine code is kept in `cache_dir` if there is one. The directory is made when needed and must be this host's
    /// alone: what other users could have written is not used.
    pub fn new(
        command: PathBuf,
        cache_dir: Option<PathBuf>,
        limits: CompilerLimits,
    ) -> Result<Self, EngineError> {
        let cache = cache_dir.map(cache::Cache::new).transpose()?;
        Ok(Self { command, cache, limits, refused: Mutex::default() })
    }

    /// Takes a plugin's code from the cache, without waiting for anything that is being compiled. Gives the plugin back
    /// if it is not there.
    pub fn cached(&self, plugin: VerifiedPlugin) -> Result<CompiledPlugin, Box<VerifiedPlugin>> {
        let found = self.cache.as_ref().and_then(|cache| cache.get(plugin.id().digest));
        let Some(code) = found.map(TrustedCode::from_own_cache) else {
            return Err(Box::new(plugin));
        };
        let (id, facts) = plugin.into_parts();
        Ok(CompiledPlugin { id, facts, code })
    }

    /// Compiles a plugin, or takes it from the cache. Blocks, at most for the wall-clock limit of each compilation before it.
    pub fn compile(&self, plugin: VerifiedPlugin) -> Result<CompiledPlugin, LoadError> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = plugin.id().digest;
        let code = match refused.get(&digest) {
            Some(error) => Err(error.clone()),
            None => self.cached_or_made(digest, plugin.bytes()),
        };
        if let Err(error) = &code
            && is_final(error)
        {
            if refused.len() >= REFUSED_DIGESTS_MAX {
                refused.clear();
            }
            refused.insert(digest, error.clone());
        }
        drop(refused);
        let (id, facts) = plugin.into_parts();
        match code {
            Ok(code) => Ok(CompiledPlugin { id, facts, code }),
            Err(source) => Err(LoadError::Compile { plugin: id, source }),
        }
    }

    fn cached_or_made(&self, digest: Digest, wasm: &[u8]) -> Result<TrustedCode, CompileError> {
        let Some(cache) = &self.cache else {
            return parent::run(&self.command, wasm, self.limits)
                .map(TrustedCode::from_own_compiler);
        };
        if let Some(code) = cache.get(digest) {
            return Ok(TrustedCode::from_own_cache(code));
        }
        let code = parent::run(&self.command, wasm, self.limits)?;
        // A cache that cannot be written costs time and memory, not correctness.
        let kept = cache.put(digest, &code).ok().and_then(|()| cache.get(digest));
        Ok(kept.map_or_else(|| TrustedCode::from_own_compiler(code), TrustedCode::from_own_cache))
    }
}

/// Whether another try would end the same way.
fn is_final(error: &CompileError) -> bool {
    match error {
        CompileError::Invalid { .. }
        | CompileError::Cpu { .. }
        | CompileError::Memory { .. }
        | CompileError::CodeTooLarge { .. }
        | CompileError::Crashed { .. } => true,
        CompileError::Killed
        | CompileError::WallClock { .. }
        | CompileError::Unavailable { .. } => false,
    }
}
