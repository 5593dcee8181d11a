//! What an event is about, and who says it.

use host_core::ident::{Kind, ObjectKey};

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regarding {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Box<str>,
}

/// Who says so.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// A qualified name: `operator-host.dev/redis`.
    pub controller: String,
    /// Which replica: the pod's name.
    pub instance: String,
}
