//! Kinds of objects as constants.

use crate::KindRef;

/// A kind of Kubernetes object, cheap enough to be a constant: `const POD: Kind = Kind::new("v1", "Pod");`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// `v1`, `apps/v1`.
    pub api_version: &'static str,
    /// `Pod`, `StatefulSet`.
    pub kind: &'static str,
}

impl Kind {
    /// A kind from its two parts.
    pub const fn new(api_version: &'static str, kind: &'static str) -> Self {
        Self { api_version, kind }
    }

    /// Whether a contract value names this kind.
    pub fn is(self, kind: &KindRef) -> bool {
        self.api_version == kind.api_version && self.kind == kind.kind
    }
}

impl From<Kind> for KindRef {
    fn from(kind: Kind) -> Self {
        Self { api_version: kind.api_version.to_owned(), kind: kind.kind.to_owned() }
    }
}
