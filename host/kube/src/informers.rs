//! Who watches what: one informer for each kind and scope, shared by everybody who needs it.
//!
//! **Invariant:** a kind and scope is watched once in each form, however many subscribe.
//! **Invariant:** an informer outlives its last subscription by a minute, so that exchanging a plugin lists nothing
//! again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use host_core::ident::Kind;
use tokio::runtime::Handle;

use crate::change::OnChange;
use crate::client::Client;
use crate::scope::{Form, Scope};
use crate::store::{Status, Store};

mod definitions;
mod shared;

use shared::{Key, Shared};

/// How long an informer goes on without subscribers.
const LINGER: Duration = Duration::from_mins(1);

/// All informers of one host.
#[derive(Clone)]
pub struct Informers(Arc<Shared>);

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
        Self(Arc::new(Shared::new(client, seed, on_change)))
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

    /// Begins to follow CRDs and `APIServices`, once. Needs the right to list and watch them; without it
    /// informers notice changes later. Must be called within a tokio runtime.
    pub fn follow_definitions(&self) {
        definitions::follow(&self.0);
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
