//! Who watches what: one informer for each kind and scope, shared by everybody who needs it.
//!
//! **Invariant:** a kind and scope is watched once in each form, however many subscribe.
//! **Invariant:** an informer outlives its last subscription by a minute, so that exchanging a plugin lists nothing
//! again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt;
use host_core::ident::Kind;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

use crate::backoff;
use crate::client::Client;
use crate::informer::{Form, Informer};
use crate::store::{Change, Status, Store};

mod definitions;

/// Lists at once. Each costs the API server the whole kind, and an etcd compaction asks every informer for one.
const LISTS_MAX: usize = 4;

/// How long an informer goes on without subscribers.
const LINGER: Duration = Duration::from_mins(1);

/// Is told of every change, in order for each object, from the informer's task: must be quick.
pub type OnChange = Arc<dyn Fn(Change) + Send + Sync>;

/// Which part of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All namespaces, or a cluster-scoped kind.
    All,
    /// One namespace.
    Namespace(String),
}

/// All informers of one host.
#[derive(Clone)]
pub struct Informers(Arc<Shared>);

struct Shared {
    client: Client,
    seed: u64,
    on_change: OnChange,
    turns: Arc<Semaphore>,
    running: Mutex<BTreeMap<Key, Running>>,
    /// Those that follow the definitions of kinds; none, or two.
    definitions: Mutex<Vec<AbortHandle>>,
}

/// What an informer is found by.
type Key = (Kind, Scope, Form);

struct Running {
    store: Arc<Store>,
    nudge: Arc<Notify>,
    subscriptions: usize,
    /// Counts how often it had none left: a lingering timer acts only if its own time is the last.
    left: u64,
    task: AbortHandle,
}

/// Keeps an informer alive until it is dropped.
pub struct Subscription {
    store: Arc<Store>,
    key: Key,
    shared: Arc<Shared>,
}

/// How one informer is doing, for metrics and status pages.
#[derive(Clone, Debug)]
pub struct InformerReport {
    /// What it watches.
    pub kind: Kind,
    /// Which part of it.
    pub scope: Scope,
    /// How much of each object.
    pub form: Form,
    /// How it is doing.
    pub status: Status,
    /// Whether its store can be read.
    pub synced: bool,
    /// How many objects it holds.
    pub objects: usize,
    /// Bytes of JSON text that it holds.
    pub bytes: usize,
    /// How often it has listed again.
    pub relists: u64,
    /// How long ago the server was heard of; None: never.
    pub staleness: Option<Duration>,
    /// How many subscriptions it has; none: it lingers.
    pub subscriptions: usize,
}

impl Informers {
    /// No informers yet. `seed` is for the jitter of their waits.
    pub fn new(client: Client, seed: u64, on_change: OnChange) -> Self {
        Self(Arc::new(Shared {
            client,
            seed,
            on_change,
            turns: Arc::new(Semaphore::new(LISTS_MAX)),
            running: Mutex::default(),
            definitions: Mutex::default(),
        }))
    }

    /// Sees to it that a kind is watched. Must be called within a tokio runtime.
    ///
    /// A late subscriber reads the [`Store`] after this call: changes since then are told to `on_change`.
    pub fn subscribe(&self, kind: Kind, scope: Scope) -> Subscription {
        self.join((kind, scope, Form::Whole))
    }

    /// The same for who needs names, labels and versions only: of the objects themselves nothing is sent or kept, and
    /// their JSON is empty.
    pub fn subscribe_to_existence(&self, kind: Kind, scope: Scope) -> Subscription {
        self.join((kind, scope, Form::Existence))
    }

    fn join(&self, key: Key) -> Subscription {
        let mut running = self.0.running();
        let entry = running.entry(key.clone()).or_insert_with(|| self.0.start(&key));
        entry.subscriptions += 1;
        Subscription { store: Arc::clone(&entry.store), key, shared: Arc::clone(&self.0) }
    }

    /// All informers, in order of kind and scope.
    pub fn report(&self) -> Vec<InformerReport> {
        let running = self.0.running();
        running
            .iter()
            .map(|((kind, scope, form), running)| InformerReport {
                kind: kind.clone(),
                scope: scope.clone(),
                form: *form,
                status: running.store.status(),
                synced: running.store.is_synced(),
                objects: running.store.len(),
                bytes: running.store.bytes(),
                relists: running.store.relists(),
                staleness: running.store.last_contact().map(|contact| contact.elapsed()),
                subscriptions: running.subscriptions,
            })
            .collect()
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, BTreeMap<Key, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, key: &Key) -> Running {
        let store = Arc::new(Store::new(Arc::new(key.0.clone())));
        let on_change = Arc::clone(&self.on_change);
        let (nudge, task) = self.spawn(&key.1, key.2, Arc::clone(&store), on_change);
        Running { store, nudge, subscriptions: 0, left: 0, task }
    }

    fn spawn(
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
    fn end(&self, key: &Key, left: u64) {
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

impl Subscription {
    /// What is known about the kind.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut running = self.shared.running();
        let Some(entry) = running.get_mut(&self.key) else {
            return;
        };
        entry.subscriptions = entry.subscriptions.saturating_sub(1);
        if entry.subscriptions > 0 {
            return;
        }
        entry.left += 1;
        let (left, key) = (entry.left, self.key.clone());
        drop(running);
        let shared: Weak<Shared> = Arc::downgrade(&self.shared);
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    tokio::time::sleep(LINGER).await;
                    if let Some(shared) = shared.upgrade() {
                        shared.end(&key, left);
                    }
                });
            }
            Err(_) => self.shared.end(&key, left),
        }
    }
}
