//! How the bytes of a plugin become machine code.

use host_wasm::{CompiledPlugin, Compiler, LoadError, VerifiedPlugin};

/// Compiles plugins.
pub trait Compilation: Send + Sync {
    /// What is compiled already, without waiting; gives the plugin back if it is not.
    fn cached(&self, plugin: VerifiedPlugin) -> Result<CompiledPlugin, Box<VerifiedPlugin>> {
        Err(Box::new(plugin))
    }

    /// Compiles; blocks.
    fn compile(&self, plugin: VerifiedPlugin) -> Result<CompiledPlugin, LoadError>;
}

/// In a child process, within limits, with a cache: for plugins from elsewhere.
impl Compilation for Compiler {
    fn cached(&self, plugin: VerifiedPlugin) -> Result<CompiledPlugin, Box<VerifiedPlugin>> {
        self.cached(plugin)
    }

    fn compile(&self, plugin: VerifiedPlugin) -> Result<CompiledPlugin, LoadError> {
        self.compile(plugin)
    }
}

/// In this process, without limits: for one's own plugins, in a test or a program that embeds the engine.
#[derive(Clone, Copy, Debug)]
pub struct InProcess;

impl Compilation for InProcess {
    fn compile(&self, plugin: VerifiedPlugin) -> Result<CompiledPlugin, LoadError> {
        CompiledPlugin::in_process(plugin)
    }
}
