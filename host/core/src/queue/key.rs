//! What stands in the queue: a parent of a plugin, and why.

use crate::ident::ObjectKey;

/// A plugin's share of the queue.
pub type Lane = u32;

/// A parent of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParentKey {
    /// Whose parent.
    pub lane: Lane,
    /// Which parent.
    pub key: ObjectKey,
}

/// Why a key is in the queue; higher runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Everything again: the initial list, a swapped plugin.
    Sweep,
    /// A timer ran out: requeue-after, retry.
    Timer,
    /// Something the parent owns or reads has changed.
    Child,
    /// The parent itself was changed.
    User,
}

impl Priority {
    /// Every priority, lowest first.
    pub const ALL: [Self; 4] = [Self::Sweep, Self::Timer, Self::Child, Self::User];

    /// For metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Timer => "timer",
            Self::Child => "child",
            Self::User => "user",
        }
    }
}
