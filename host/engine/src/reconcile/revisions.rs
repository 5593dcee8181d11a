//! What flow 1 asks of whoever decides which revision of a plugin acts. It knows nothing else of that.

use std::sync::Arc;

use futures::future::BoxFuture;
use host_core::queue::{Done, ParentKey};

use crate::error::Error;
use crate::loaded_plugin::LoadedPlugin;

/// How a run has ended. None: the parent is gone.
pub(crate) type Ended = Result<Option<Done>, Error>;

/// Which revision runs a parent, and who is told how that went.
pub(crate) trait Revisions: Send + Sync {
    /// The revision that runs a parent; None: nobody does any more.
    fn of(&self, parent: &ParentKey) -> Option<Arc<LoadedPlugin>>;

    /// Tells how a run has ended.
    fn ended<'a>(
        &'a self,
        plugin: &'a Arc<LoadedPlugin>,
        parent: &'a ParentKey,
        ended: &'a Ended,
    ) -> BoxFuture<'a, ()>;
}
