//! What a request is for, so that its failure can be told.
//!
//! **Invariant:** what is about a Secret is confidential: its answer is not quoted.

use std::fmt::Display;

use host_core::ident::{Kind, ObjectId};

/// What a request is for: the beginning of its error message, and whether its answer may be quoted.
#[derive(Clone, Debug)]
pub(crate) struct Purpose {
    pub(crate) text: String,
    pub(crate) confidential: bool,
}

impl Purpose {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), confidential: false }
    }

    pub(crate) fn on(verb: impl Display, id: &ObjectId) -> Self {
        Self { text: format!("{verb} {id}"), confidential: is_secret(&id.kind) }
    }
}

/// Whether objects of this kind hold what must not be quoted.
pub(crate) fn is_secret(kind: &Kind) -> bool {
    kind.kind == "Secret" && kind.group().is_empty()
}
