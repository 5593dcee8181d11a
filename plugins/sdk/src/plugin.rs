//! The trait a plugin implements.

use serde::de::DeserializeOwned;

use crate::{Context, Decision, Descriptor, Stop};

/// A plugin. Nothing of it lives longer than a call, so there is no `self`.
pub trait Plugin {
    /// The parent as the plugin reads it: the whole object, usually only `spec` and `status` of it.
    /// Metadata is in [`Context::meta`].
    type Parent: DeserializeOwned;

    /// What the plugin is and what it needs. Constant.
    fn describe() -> Descriptor;

    /// What should be, given what is. A pure function: equal contexts give equal results.
    fn reconcile(ctx: &Context<Self::Parent>) -> Result<Decision, Stop>;
}
