//! What looks like chance and is none: a number that follows from a seed and from what it is for.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// A number below `bound` (at least 1), the same for equal causes. `cause` holds the seed and whatever tells one draw
/// from the next.
pub fn below(cause: impl Hash, bound: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    cause.hash(&mut hasher);
    hasher.finish() % bound.max(1)
}
