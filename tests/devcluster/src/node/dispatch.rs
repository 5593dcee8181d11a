//! From the pod watch to one task per pod.
//!
//! **Invariant:** a pod uid gets at most one task per life of its node; its entry stays until the
//! API object is gone, so a finished pod is never started again.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use super::pod::{self, Fate, PodRuntime, Update};
use super::{PodHandle, Site, status, watch_all};

/// Watches all pods until the runtime ends.
pub(crate) async fn watch_pods(site: Arc<Site>) {
    let mut events = std::pin::pin!(watch_all::<Pod>(Api::all(site.client.clone())));
    let mut listed: HashSet<String> = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.extend(pod.metadata.uid.clone());
                seen(&site, Arc::new(pod));
            }
            Event::InitDone => {
                let known: Vec<String> = site.mirror().keys().cloned().collect();
                for uid in known.into_iter().filter(|uid| !listed.contains(uid)) {
                    gone(&site, &uid);
                }
            }
            Event::Apply(pod) => seen(&site, Arc::new(pod)),
            Event::Delete(pod) => gone(&site, pod.metadata.uid.as_deref().unwrap_or_default()),
        }
    }
}

/// Tells pods of every change of a ConfigMap or Secret until the runtime ends.
pub(crate) async fn watch_configuration(site: Arc<Site>) {
    let maps = watch_all::<PartialObjectMeta<ConfigMap>>(Api::all(site.client.clone()));
    let secrets = watch_all::<PartialObjectMeta<Secret>>(Api::all(site.client.clone()));
    let changes = stream::select(maps.map(namespace_of), secrets.map(namespace_of));
    let mut changes = std::pin::pin!(changes);
    while let Some(namespace) = changes.next().await {
        if let Some(namespace) = namespace {
            // No pod listening is no error.
            drop(site.config_changes.send(namespace));
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

/// Takes note of a pod, and starts its task if it is ours and new.
pub(crate) fn seen(site: &Arc<Site>, pod: Arc<Pod>) {
    let Some(uid) = pod.metadata.uid.clone() else {
        return;
    };
    // A recreated pod has the same name and another uid; watches may skip the delete in between.
    site.mirror().insert(uid.clone(), Arc::clone(&pod));
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let Some(node) = node else {
        site.unscheduled.notify_one();
        return;
    };
    let Some(node) = site.node(node) else { return };
    let mut handles = site.handles();
    if let Some(handle) = handles.get(&uid) {
        handle.updates.send_modify(|update| update.pod = pod);
        return;
    }
    let done = status::is_terminal(&pod) && pod.metadata.deletion_timestamp.is_none();
    if done || !node.is_alive() {
        return;
    }
    let (updates, receiver) = watch::channel(Update { pod: Arc::clone(&pod), fate: Fate::Present });
    let runtime =
        Arc::new(PodRuntime::new(Arc::clone(site), Arc::clone(node), &uid, receiver.clone()));
    handles.insert(uid, PodHandle { updates, runtime: Arc::clone(&runtime) });
    tokio::spawn(pod::run(runtime, receiver));
}

fn gone(site: &Site, uid: &str) {
    site.mirror().remove(uid);
    if let Some(handle) = site.handles().remove(uid) {
        handle.updates.send_modify(|update| update.fate = Fate::Gone);
    }
    // A claim or a node's room may have become free.
    site.unscheduled.notify_one();
}
