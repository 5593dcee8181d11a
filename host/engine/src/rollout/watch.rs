//! Says when a kind that a plugin needs cannot be observed, and when it can be again.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use host_core::ident::Kind;
use host_kube::{Scope, Status};

use crate::logic::Logic;

/// How often the informers of a plugin are looked at. A list takes well under a second; whatever takes longer is
/// worth a line.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Watches the informers of one version, until it is no longer the active one.
async fn watch(plugin: Weak<Logic>) {
    let mut said: BTreeMap<(Scope, Kind), Status> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(plugin) = plugin.upgrade() else { return };
        for (scope, subscription) in &plugin.subscriptions {
            let store = subscription.store();
            let (kind, status) = (Kind::clone(store.kind()), store.status());
            let informer = (scope.clone(), kind.clone());
            if said.get(&informer) == Some(&status) {
                continue;
            }
            match &status {
                Status::Synced if said.contains_key(&informer) => {
                    tracing::info!(plugin = plugin.name(), %kind, "can be observed again");
                }
                Status::Synced => {}
                Status::Missing if kind == plugin.plugin.descriptor().parent => tracing::warn!(
                    plugin = plugin.name(),
                    %kind,
                    "cannot be observed: {status} (`operator-host crds PLUGIN | kubectl apply --server-side -f -`)"
                ),
                Status::Syncing | Status::Missing | Status::Forbidden(_) | Status::Failing(_) => {
                    tracing::warn!(plugin = plugin.name(), %kind, "cannot be observed: {status}");
                }
            }
            said.insert(informer, status);
        }
    }
}

/// Starts watching a version.
pub(super) fn start(plugin: &Arc<Logic>) {
    tokio::spawn(watch(Arc::downgrade(plugin)));
}
