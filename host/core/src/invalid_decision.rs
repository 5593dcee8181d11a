//! Why a decision cannot be used: for the plugin's author, who alone can mend it.
//!
//! **Invariant:** every message names what is wrong and how to mend it.

/// Why a decision cannot be used. It is the plugin's fault, always.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDecision {
    /// Too many of something.
    #[error("{count} {what} returned, at most {max} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// Too large.
    #[error("{what} has {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// What.
        what: String,
        /// How large.
        bytes: usize,
        /// How large it may be.
        max: usize,
    },
    /// A field is wrong.
    #[error("{path}: {problem}")]
    Field {
        /// Where, for example `objects[3].metadata.name`.
        path: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// The plugin was not granted what it uses.
    #[error("{what} is not granted: {fix}")]
    NotGranted {
        /// Which power.
        what: String,
        /// How to grant it.
        fix: String,
    },
}
