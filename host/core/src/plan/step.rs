//! The steps of a plan.
//!
//! **Invariant:** a step holds everything needed to carry it out; a deletion names the uid, so that it never hits
//! a namesake.

use serde_json::{Map, Value};

use crate::ident::ObjectId;
use crate::raw_decision::{OnImmutable, Ownership};
use crate::snapshot::Problem;

/// One thing to do, with everything needed to do it.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Already as desired.
    Keep(ObjectId),
    /// Create or change.
    Apply(Apply),
    /// Delete: no longer desired.
    Prune {
        /// Which object.
        id: ObjectId,
        /// Exactly that one.
        uid: Box<str>,
    },
    /// Give up the fields set on somebody else's object.
    Release {
        /// Which object.
        id: ObjectId,
        /// Exactly that one.
        uid: Box<str>,
    },
    /// Not to be done, and why.
    Refuse {
        /// Which object.
        id: ObjectId,
        /// Why.
        problem: Problem,
    },
}

impl Step {
    /// The object the step is about.
    pub fn id(&self) -> &ObjectId {
        match self {
            Self::Keep(id)
            | Self::Prune { id, .. }
            | Self::Release { id, .. }
            | Self::Refuse { id, .. } => id,
            Self::Apply(apply) => &apply.id,
        }
    }
}

/// One server-side apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// Which object.
    pub id: ObjectId,
    /// The whole apply configuration.
    pub body: Map<String, Value>,
    /// The live object, if there is one; None means it will be created.
    pub live: Option<Live>,
    /// What to do when a field is immutable.
    pub on_immutable: OnImmutable,
    /// Whose it is.
    pub ownership: Ownership,
    /// Hash of the desired fields.
    pub hash: String,
}

/// The live object a step was planned against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its uid.
    pub uid: Box<str>,
    /// Its version.
    pub resource_version: u64,
}
