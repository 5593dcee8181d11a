//! Binding pods to nodes: a stand-in for kube-scheduler.
//!
//! Honoured: readiness, `unschedulable`, taints, nodeSelector, required node affinity by labels,
//! required and preferred pod anti-affinity, hard topology spread, claims that are bound; then the
//! node with the fewest pods. Not honoured: resources, pod affinity, priorities, preemption.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::site::Site;
use super::{events, placement, status, volume};

/// What could not be placed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// Places pods until the runtime ends.
pub(crate) async fn run(site: Arc<Site>) {
    let mut told: HashMap<String, String> = HashMap::new();
    let mut assumed: HashMap<String, String> = HashMap::new();
    loop {
        let pending = pending(&site, &mut assumed);
        told.retain(|uid, _| pending.iter().any(|pod| pod.metadata.uid.as_ref() == Some(uid)));
        for pod in &pending {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            match place_and_bind(&site, pod, &assumed).await {
                Ok(Ok(node)) => {
                    assumed.insert(uid, node);
                }
                Ok(Err(why)) if told.get(&uid) != Some(&why) => {
                    report_unschedulable(&site, pod, &why).await;
                    told.insert(uid, why);
                }
                // Said already, or the API is away: the next round tries again.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        let retry = async {
            if pending.is_empty() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(RETRY).await;
        };
        tokio::select! {
            () = site.unscheduled.notified() => {}
            () = retry => {}
        }
    }
}

/// Pods without a node, oldest first; forgets assumptions that the mirror has caught up with.
fn pending(site: &Site, assumed: &mut HashMap<String, String>) -> Vec<Arc<Pod>> {
    let mirror = site.mirror();
    assumed.retain(|uid, _| mirror.get(uid).is_some_and(|pod| node_of(pod).is_none()));
    let mut pending: Vec<Arc<Pod>> = mirror
        .iter()
        .filter(|(uid, pod)| {
            let gated = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.scheduling_gates.as_ref())
                .is_some_and(|gates| !gates.is_empty());
            node_of(pod).is_none()
                && !assumed.contains_key(*uid)
                && pod.metadata.deletion_timestamp.is_none()
                && !gated
        })
        .map(|(_, pod)| Arc::clone(pod))
        .collect();
    pending.sort_by_key(|pod| {
        (pod.metadata.creation_timestamp.clone().map(|time| time.0), pod.metadata.name.clone())
    });
    pending
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// The inner error is why the pod fits nowhere.
async fn place_and_bind(
    site: &Site,
    pod: &Pod,
    assumed: &HashMap<String, String>,
) -> Result<Result<String, String>> {
    let spec = pod.spec.as_ref().context("pod without spec")?;
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    if let Err(why) = claims_bound(site, pod, &namespace).await? {
        return Ok(Err(why));
    }
    let nodes: Api<Node> = Api::all(site.machine.client.clone());
    let mut nodes = nodes.list(&ListParams::default()).await?.items;
    nodes.retain(|node| {
        let ours = node.metadata.name.as_deref().and_then(|name| site.node(name));
        ours.is_some_and(|info| info.is_alive())
    });
    let placed = placed(site, assumed);
    let node = match placement::choose(pod, spec, &nodes, &placed) {
        Ok(node) => node,
        Err(why) => return Ok(Err(why)),
    };
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let pods: Api<Pod> = Api::namespaced(site.machine.client.clone(), &namespace);
    let _: Value =
        pods.create_subresource("binding", &name, &PostParams::default(), &binding).await?;
    let note = format!("assigned {namespace}/{name} to {node}");
    events::record(&site.machine, pod, "Normal", "Scheduled", &note);
    Ok(Ok(node))
}

/// Every live pod that has a node, with the node's name.
fn placed(site: &Site, assumed: &HashMap<String, String>) -> Vec<(Arc<Pod>, String)> {
    let mirror = site.mirror();
    mirror
        .iter()
        .filter(|(_, pod)| !status::is_terminal(pod))
        .filter_map(|(uid, pod)| {
            let node = node_of(pod).map(str::to_owned).or_else(|| assumed.get(uid).cloned());
            node.map(|node| (Arc::clone(pod), node))
        })
        .collect()
}

async fn claims_bound(site: &Site, pod: &Pod, namespace: &str) -> Result<Result<(), String>> {
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(site.machine.client.clone(), namespace);
    for claim in volume::claims(pod) {
        let Some(found) = claims.get_opt(&claim).await? else {
            return Ok(Err(format!("persistentvolumeclaim {claim:?} not found")));
        };
        let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase != Some("Bound") || found.metadata.deletion_timestamp.is_some() {
            return Ok(Err(format!(
                "persistentvolumeclaim {claim:?} is not bound or being deleted"
            )));
        }
    }
    Ok(Ok(()))
}

async fn report_unschedulable(site: &Site, pod: &Pod, why: &str) {
    events::record(&site.machine, pod, "Warning", "FailedScheduling", why);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(site.machine.client.clone(), namespace);
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastTransitionTime": status::now(),
    }]}});
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    // The condition is for people; the next round places the pod whether it was written or not.
    drop(pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await);
}
