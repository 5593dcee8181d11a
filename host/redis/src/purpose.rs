//! What tells a probe from an action while a request is parsed.

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To look: every command is sent, errors are replies.
    Probe,
    /// To change: the first error ends it.
    Action,
}
