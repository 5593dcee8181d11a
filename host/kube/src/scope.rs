//! What an informer looks at: which part of a kind, and how much of each object.

/// Which part of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All namespaces, or a cluster-scoped kind.
    All,
    /// One namespace.
    Namespace(String),
}

/// How much of each object is asked for and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// All of it.
    Whole,
    /// That it exists, in which version: its text is not kept.
    Existence,
}

impl Form {
    /// As metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Existence => "existence",
        }
    }
}
