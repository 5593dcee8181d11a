//! What one compilation may use: several times what the largest honest plugin was seen to need.

use std::time::Duration;

/// Limits of one compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompilerLimits {
    /// Processor time, in seconds. A Rust plugin takes 0.2, QuickJS 1.6, Go 3.3 at full optimisation.
    pub cpu_seconds: u32,
    /// Address space, in MiB. Compiling a Rust plugin peaks at 19, QuickJS at 54, CPython at 320.
    pub memory_mib: u32,
    /// Duration.
    pub wall_clock: Duration,
}

impl Default for CompilerLimits {
    fn default() -> Self {
        Self { cpu_seconds: 10, memory_mib: 2_048, wall_clock: Duration::from_secs(15) }
    }
}
