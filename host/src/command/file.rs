//! A plugin file: captured, verified, ready to be called. Without a cluster.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use host_core::grants::CallLimits;
use host_wasm::{
    CapturedPlugin, Compiler, CompilerLimits, Engine, EngineConfig, Plugin, VerifiedPlugin,
};

/// The program itself: it compiles plugins as its own child.
pub(crate) fn this_binary() -> anyhow::Result<PathBuf> {
    std::env::current_exe()
        .context("cannot find the path of this program, which compiles plugins as its own child")
}

/// The component in a plugin file, unpacked.
pub(crate) fn capture(file: &Path) -> anyhow::Result<CapturedPlugin> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = file
        .file_stem()
        .map_or_else(|| "plugin".to_owned(), |stem| stem.to_string_lossy().into_owned());
    CapturedPlugin::new(&name, &bytes).with_context(|| format!("{} is no plugin", file.display()))
}

/// A plugin file whose imports and contract are the host's.
pub(crate) fn verify(file: &Path) -> anyhow::Result<VerifiedPlugin> {
    capture(file)?.verify().with_context(|| format!("{} is no plugin", file.display()))
}

/// A plugin file, ready to be called.
pub(crate) fn load(file: &Path) -> anyhow::Result<Plugin> {
    let verified = verify(file)?;
    let engine = Engine::new(EngineConfig { max_concurrent_calls: 1 })?;
    let compiler = Compiler::new(this_binary()?, None, CompilerLimits::default())?;
    Ok(engine.load(compiler.compile(verified)?, &CallLimits::default())?)
}
