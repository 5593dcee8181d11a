//! What the API says of pods and their configuration, for those whom it concerns.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;

use super::machine::Machine;
use super::site::Site;
use super::watching::watch_all;

/// Watches all pods until the runtime ends.
pub(crate) async fn watch_pods(site: Arc<Site>) {
    let mut events = std::pin::pin!(watch_all::<Pod>(Api::all(site.machine.client.clone())));
    let mut listed: HashSet<String> = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.extend(pod.metadata.uid.clone());
                site.seen(Arc::new(pod));
            }
            Event::InitDone => {
                let known: Vec<String> = site.known();
                for uid in known.into_iter().filter(|uid| !listed.contains(uid)) {
                    site.gone(&uid);
                }
            }
            Event::Apply(pod) => site.seen(Arc::new(pod)),
            Event::Delete(pod) => site.gone(pod.metadata.uid.as_deref().unwrap_or_default()),
        }
    }
}

/// Tells pods of every change of a ConfigMap or Secret until the runtime ends.
pub(crate) async fn watch_configuration(machine: Arc<Machine>) {
    let maps = watch_all::<PartialObjectMeta<ConfigMap>>(Api::all(machine.client.clone()));
    let secrets = watch_all::<PartialObjectMeta<Secret>>(Api::all(machine.client.clone()));
    let changes = stream::select(maps.map(namespace_of), secrets.map(namespace_of));
    let mut changes = std::pin::pin!(changes);
    while let Some(namespace) = changes.next().await {
        if let Some(namespace) = namespace {
            // No pod listening is no error.
            drop(machine.config_changes.send(namespace));
        }
    }
}

fn namespace_of<K>(event: Event<PartialObjectMeta<K>>) -> Option<String> {
    match event {
        Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => {
            object.metadata.namespace
        }
        Event::Init | Event::InitDone => None,
    }
}
