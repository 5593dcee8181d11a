//! What happened to one object, and who is told.

use std::sync::Arc;

use host_core::ident::{Kind, ObjectKey};
use host_core::object::StoredObject;

/// One object appeared, changed or went away.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its kind.
    pub kind: Arc<Kind>,
    /// Its namespace and name.
    pub key: ObjectKey,
    /// What was known before; None for a new object.
    pub old: Option<Arc<StoredObject>>,
    /// What is known now; None for an object that is gone.
    pub new: Option<Arc<StoredObject>>,
    /// Part of the first list ever taken: nothing has happened, it only was not known.
    pub initial: bool,
}

/// Is told of every change, in order for each object, from the informer's task: must be quick.
pub type OnChange = Arc<dyn Fn(Change) + Send + Sync>;
