//! What applying leaves for the end of a run.

use host_core::expectations::Expected;
use host_core::ident::ObjectId;
use host_core::snapshot::Outcome;

/// What a run has done so far.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// What became of the decision.
    pub(crate) outcome: Outcome,
    /// What the cache has to show before the next run.
    pub(crate) writes: Vec<(ObjectId, Expected)>,
    /// Something failed that a retry may mend.
    pub(crate) retry: bool,
}
