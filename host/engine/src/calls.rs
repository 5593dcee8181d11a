//! Turns to call into plugins: how many calls there are at once, and where they are made.
//!
//! **Invariant:** a plugin that spins leaves a processor to the others.

use std::sync::Arc;

use host_wasm::Plugin;
use tokio::sync::Semaphore;

use crate::error::Error;
use crate::logic::Logic;

/// Slots for calls, for each processor: four plugins that spin leave room for the fifth.
const CALLS_PER_CORE: usize = 4;

/// Turns of all plugins together. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    /// More than there are processors: those of one plugin are bounded apart, and a few that spin must not keep out
    /// the others.
    slots: Arc<Semaphore>,
    cores: usize,
}

impl Calls {
    /// For a machine with so many processors.
    pub(crate) fn new(cores: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(Self::at_once(cores))), cores }
    }

    /// Calls that can be in progress on so many processors: what the sandbox has to have room for.
    pub(crate) fn at_once(cores: usize) -> usize {
        cores * CALLS_PER_CORE
    }

    /// Processors.
    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// Turns of one plugin: one processor fewer than there are.
    pub(crate) fn of_one_plugin(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.cores.saturating_sub(1).max(1)))
    }

    /// Does something with a plugin that takes a processor, off the async threads, when it is its turn.
    pub(crate) async fn make<R: Send + 'static>(
        &self,
        logic: &Arc<Logic>,
        work: impl FnOnce(&Plugin) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let turn = |turns: &Arc<Semaphore>| Arc::clone(turns).acquire_owned();
        // Its own turn first: a plugin that waits for itself takes no turn of the others.
        let own = turn(&logic.calls).await.map_err(|_| Error::ShuttingDown)?;
        let slot = turn(&self.slots).await.map_err(|_| Error::ShuttingDown)?;
        let callee = Arc::clone(logic);
        let joined = tokio::task::spawn_blocking(move || {
            let _held = (own, slot);
            work(&callee.plugin)
        });
        joined.await.map_err(|_| Error::ShuttingDown)
    }
}
