//! What the engine tells as it goes, to be counted. Whoever embeds it decides what becomes of it.

use std::time::Duration;

/// A sink for measurements. Every method returns at once; the default is to ignore.
///
/// `plugin` is always the plugin's stable name.
#[expect(unused_variables, reason = "named for who implements them")]
pub trait Meter: Send + Sync {
    /// A parent was taken from the queue, in which it had been ready for so long.
    fn popped(&self, plugin: &str, waited: Duration) {}
    /// Its run has ended, in whatever way.
    fn finished(&self, plugin: &str, took: Duration) {}
    /// A run has ended with a result: `success`, `gone`, or the class of the failure.
    fn reconciled(&self, plugin: &str, result: &'static str, took: Duration) {}
    /// A stage of a run has ended: `observe`, `decide`, `plan`, `apply`, `status`.
    fn stage(&self, plugin: &str, stage: &'static str, took: Duration) {}
    /// A run has panicked.
    fn panicked(&self, plugin: &str) {}
    /// A run has set back what somebody else keeps changing.
    fn contested(&self, plugin: &str, objects: usize) {}
    /// One call into a plugin has ended.
    fn called(&self, plugin: &str, took: Duration) {}
    /// A plugin has trapped or broken a limit.
    fn faulted(&self, plugin: &str, reason: &str) {}
    /// A load has ended: `success`, `refused`, `rolled_back`.
    fn loaded(&self, plugin: &str, result: &'static str) {}
}

/// Counts nothing.
impl Meter for () {}
