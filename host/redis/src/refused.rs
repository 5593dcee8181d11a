//! Why a request is refused before anything is looked up or sent.
//!
//! **Invariant:** every message says where in the request the fault is and how to mend it.

use host_core::snapshot::Problem;

use crate::groups::Group;

/// Why a request is not carried out. It is the plugin's fault, always.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedRequest {
    /// A part of it is wrong.
    #[error("{path}: {problem}")]
    Field {
        /// Where, for example `commands[2][1]`.
        path: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// The plugin was not granted a command.
    #[error(
        "{path}: {command} is in group {group}, which is not granted; add it to grants.providers.redis of plugin.yaml"
    )]
    NotGranted {
        /// Where.
        path: String,
        /// Which command.
        command: String,
        /// Which group it takes.
        group: Group,
    },
}

impl RefusedRequest {
    /// The outcome of an action that is refused.
    pub fn problem(&self) -> Problem {
        let reason = match self {
            Self::Field { .. } => "InvalidRequest",
            Self::NotGranted { .. } => "NotGranted",
        };
        Problem { reason: reason.to_owned(), message: self.to_string() }
    }
}

pub(crate) fn field(path: impl Into<String>, problem: impl Into<String>) -> RefusedRequest {
    RefusedRequest::Field { path: path.into(), problem: problem.into() }
}
