//! The informers that run, as those who subscribe and those who follow definitions share them.
//!
//! **Invariant:** an informer that panics starts over: no kind is left unwatched and looking fine.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use host_core::ident::Kind;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

use crate::backoff;
use crate::change::OnChange;
use crate::client::Client;
use crate::informer::Informer;
use crate::scope::{Form, Scope};
use crate::store::Store;

/// Lists at once. Each costs the API server the whole kind, and an etcd compaction asks every informer for one.
const LISTS_MAX: usize = 4;

/// The informers that run, and what they are made with.
pub(super) struct Shared {
    pub(super) client: Client,
    seed: u64,
    on_change: OnChange,
    turns: Arc<Semaphore>,
    running: Mutex<BTreeMap<Key, Running>>,
    /// Those that follow the definitions of kinds; none, or two.
    definitions: Mutex<Vec<AbortHandle>>,
}

/// What an informer is found by.
pub(super) type Key = (Kind, Scope, Form);

/// One informer that runs.
pub(super) struct Running {
    pub(super) store: Arc<Store>,
    pub(super) nudge: Arc<Notify>,
    pub(super) subscriptions: usize,
    /// Counts how often it had none left: a lingering timer acts only if its own time is the last.
    pub(super) left: u64,
    task: AbortHandle,
}

impl Shared {
    pub(super) fn new(client: Client, seed: u64, on_change: OnChange) -> Self {
        Self {
            client,
            seed,
            on_change,
            turns: Arc::new(Semaphore::new(LISTS_MAX)),
            running: Mutex::default(),
            definitions: Mutex::default(),
        }
    }

    pub(super) fn running(&self) -> MutexGuard<'_, BTreeMap<Key, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn definitions(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an informer that nobody subscribes to yet.
    pub(super) fn start(&self, key: &Key) -> Running {
        let store = Arc::new(Store::new(Arc::new(key.0.clone())));
        let on_change = Arc::clone(&self.on_change);
        let (nudge, task) = self.spawn(&key.1, key.2, Arc::clone(&store), on_change);
        Running { store, nudge, subscriptions: 0, left: 0, task }
    }

    /// Starts an informer into a store; its nudge and its task.
    pub(super) fn spawn(
        &self,
        scope: &Scope,
        form: Form,
        store: Arc<Store>,
        on_change: OnChange,
    ) -> (Arc<Notify>, AbortHandle) {
        let mut hasher = DefaultHasher::new();
        (self.seed, store.kind(), scope).hash(&mut hasher);
        let (client, turns) = (self.client.clone(), Arc::clone(&self.turns));
        let seed = hasher.finish();
        let mut informer =
            Informer::new(client, scope.clone(), form, store, on_change, turns, seed);
        let nudge = informer.nudge();
        let task = tokio::spawn(async move {
            // A panic, ours or of `on_change`, must not leave a kind unwatched and looking fine.
            while AssertUnwindSafe(informer.run()).catch_unwind().await.is_err() {
                informer.start_over("the informer panicked; it lists again");
                tokio::time::sleep(backoff::MAX_MISSING).await;
            }
        });
        (nudge, task.abort_handle())
    }

    /// Ends an informer that was left for the `left`th time and not taken up since.
    pub(super) fn end(&self, key: &Key, left: u64) {
        let mut running = self.running();
        let idle = |entry: &Running| entry.subscriptions == 0 && entry.left == left;
        if running.get(key).is_some_and(idle)
            && let Some(entry) = running.remove(key)
        {
            entry.task.abort();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for running in self.running().values() {
            running.task.abort();
        }
        for task in self.definitions().iter() {
            task.abort();
        }
    }
}
