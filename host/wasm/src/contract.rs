//! What the contract is called: its names for the check of a component, and for people.
//!
//! **Invariant:** what people are told is supported is what is checked: both name the same major version.

/// The major version of the contract that this host speaks.
pub(crate) const MAJOR: u32 = 1;
/// The export that makes a component a plugin.
pub(crate) const EXPORT: &str = "operator-host:plugin/reconciler";
/// The import that a plugin may have.
pub(crate) const IMPORT: &str = "operator-host:plugin/log";
/// What is supported, for people.
pub(crate) const SUPPORTED: &str = "operator-host:plugin/reconciler@1.x";
/// What may be imported, for people.
pub(crate) const IMPORT_ALLOWED: &str = "operator-host:plugin/log@1.x";
