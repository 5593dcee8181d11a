//! The ways in which a call can end without a decision.

use crate::{Failure, Query};

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
