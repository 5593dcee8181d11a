//! The trait a plugin implements, and the ways in which it can end without a decision.

use serde::de::DeserializeOwned;

use crate::{Context, Decision, Descriptor, Failure, Query};

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

/// Why a call ends without a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// More has to be known first. The host answers and calls again, at most five times in a run.
    Ask(Vec<Query>),
    /// No decision is possible. Nothing is changed or deleted.
    Fail(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Fail(failure)
    }
}
