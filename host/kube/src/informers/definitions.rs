//! Which kinds the server has, followed instead of guessed: a CRD or an `APIService` that changes makes those
//! look again who watch its group, and nobody else.
//!
//! Without the right to watch definitions nothing is lost but time: a missing kind is asked for every few seconds.
//!
//! **Invariant:** of a definition only its existence and version are kept: a CRD has up to a megabyte.

use std::sync::{Arc, Weak};

use host_core::ident::Kind;

use super::shared::Shared;
use crate::change::{Change, OnChange};
use crate::scope::{Form, Scope};
use crate::store::Store;

/// Their names end in the group they are about: `demos.demo.dev`, `v1.demo.dev`.
const DEFINITIONS: [(&str, &str); 2] = [
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1", "APIService"),
];

/// Begins to follow them, once.
pub(super) fn follow(shared: &Arc<Shared>) {
    let mut following = shared.definitions();
    if !following.is_empty() {
        return;
    }
    for (api_version, kind) in DEFINITIONS {
        let weak = Arc::downgrade(shared);
        let on_change: OnChange = Arc::new(move |change| defined(&weak, &change));
        let store = Arc::new(Store::new(Arc::new(Kind::new(api_version, kind))));
        let (_, task) = shared.spawn(&Scope::All, Form::Existence, store, on_change);
        following.push(task);
    }
}

fn defined(shared: &Weak<Shared>, change: &Change) {
    let Some(shared) = shared.upgrade().filter(|_| !change.initial) else { return };
    let Some((_, group)) = change.key.name.split_once('.') else { return };
    tracing::debug!(definition = %change.key, group, "a definition has changed");
    shared.client.discovered.forget_group(group);
    for ((kind, ..), running) in shared.running().iter() {
        if kind.group() == group {
            running.nudge.notify_one();
        }
    }
}
