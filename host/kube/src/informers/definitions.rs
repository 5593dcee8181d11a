//! Which kinds the server has, followed instead of guessed: a CRD or an `APIService` that changes makes those
//! look again who watch its group, and nobody else.
//!
//! Without the right to watch definitions nothing is lost but time: a missing kind is asked for every few seconds.
//!
//! **Invariant:** of a definition only its existence and version are kept: a CRD has up to a megabyte.

use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use host_core::ident::Kind;
use tokio::task::AbortHandle;

use super::{Informers, OnChange, Scope, Shared};
use crate::informer::Form;
use crate::store::{Change, Store};

/// Their names end in the group they are about: `demos.demo.dev`, `v1.demo.dev`.
const DEFINITIONS: [(&str, &str); 2] = [
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1", "APIService"),
];

impl Informers {
    /// Begins to follow CRDs and `APIServices`, once. Needs the right to list and watch them; without it
    /// informers notice changes later. Must be called within a tokio runtime.
    pub fn follow_definitions(&self) {
        let mut following = self.0.definitions();
        if !following.is_empty() {
            return;
        }
        for (api_version, kind) in DEFINITIONS {
            let shared = Arc::downgrade(&self.0);
            let on_change: OnChange = Arc::new(move |change| defined(&shared, &change));
            let store = Arc::new(Store::new(Arc::new(Kind::new(api_version, kind))));
            let (_, task) = self.0.spawn(&Scope::All, Form::Existence, store, on_change);
            following.push(task);
        }
    }
}

fn defined(shared: &Weak<Shared>, change: &Change) {
    let Some(shared) = shared.upgrade().filter(|_| !change.initial) else { return };
    let Some((_, group)) = change.key.name.split_once('.') else { return };
    tracing::debug!(definition = %change.key, group, "a definition has changed");
    shared.client.discovery.forget_group(group);
    for ((kind, ..), running) in shared.running().iter() {
        if kind.group() == group {
            running.nudge.notify_one();
        }
    }
}

impl Shared {
    pub(super) fn definitions(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
