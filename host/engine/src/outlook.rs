//! What observing and deciding have to hand, for a run and for a shadow run alike.
//!
//! **Invariant:** no writer among it, so what needs only this cannot change anything in the cluster.

use std::sync::Arc;

use crate::calls::Calls;
use crate::clock::Clock;
use crate::dispatch::Dispatch;
use crate::recordings::Recordings;

/// Turns to ask plugins, the time, and what is remembered of the last runs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outlook {
    pub(crate) calls: Calls,
    pub(crate) clock: Clock,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) recordings: Arc<Recordings>,
}
