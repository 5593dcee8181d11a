//! What a status is made from.

use crate::admit::Refusal;
use crate::api::{Spec, Status};
use crate::plan::{Input, Plan};

/// All of it.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// What was observed.
    pub input: &'a Input<'a>,
    /// What was planned.
    pub plan: &'a Plan,
    /// The spec in force.
    pub spec: &'a Spec,
    /// Why it is not the user's.
    pub refusal: Option<&'a Refusal>,
    /// The user paused the operator.
    pub paused: bool,
    /// The status before.
    pub previous: &'a Status,
}
