//! Node objects and their heartbeats.
//!
//! The node controller believes in a node whose Lease moves. When a busy machine made it doubt, the
//! next beat writes Ready again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::info::NodeInfo;
use super::machine::{MANAGER, Machine};
use super::status;

/// The node controller's grace is at least 8 s, see [`crate::Options::node_grace`].
const BEAT: Duration = Duration::from_secs(1);
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Creates the Node, Ready.
pub(crate) async fn register(machine: &Machine, info: &NodeInfo) -> Result<()> {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": info.name, "labels": {
            "kubernetes.io/hostname": info.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": std::env::consts::ARCH,
            "operator-host.dev/process-node": "true",
        }},
        "status": node_status(info, &status::now()),
    }))
    .context("building a Node")?;
    let nodes: Api<Node> = Api::all(machine.client.clone());
    nodes
        .create(&PostParams::default(), &node)
        .await
        .with_context(|| format!("creating node {}", info.name))?;
    Ok(())
}

fn node_status(info: &NodeInfo, now: &str) -> Value {
    let condition = |kind: &str, value: &str, reason: &str| {
        json!({"type": kind, "status": value, "reason": reason, "message": "processes on this machine",
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    // Nothing is enforced, so nothing is promised beyond what the API needs to accept pods.
    let resources =
        json!({"cpu": "64", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti"});
    json!({
        "capacity": resources, "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": info.address},
            {"type": "Hostname", "address": info.name},
        ],
        "conditions": [
            condition("Ready", "True", "ProcessNodeReady"),
            condition("MemoryPressure", "False", "NotMeasured"),
            condition("DiskPressure", "False", "NotMeasured"),
            condition("PIDPressure", "False", "NotMeasured"),
        ],
        "nodeInfo": {
            "kubeletVersion": "v1.36.0-process-node", "operatingSystem": "linux",
            "architecture": std::env::consts::ARCH, "osImage": "devcluster process node",
            "containerRuntimeVersion": "bubblewrap://0", "kernelVersion": "", "machineID": "",
            "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
        },
    })
}

/// Beats for as long as the node lives; errors are retried at the next beat.
pub(crate) async fn run(machine: Arc<Machine>, info: Arc<NodeInfo>) {
    let mut alive = info.alive.subscribe();
    loop {
        if alive.wait_for(|alive| *alive).await.is_err() {
            return;
        }
        // Outcome of one beat does not matter: the node controller's judgement is the point.
        drop(tokio::time::timeout(BEAT * 3, beat(&machine, &info)).await);
        tokio::time::sleep(BEAT).await;
    }
}

async fn beat(machine: &Machine, info: &NodeInfo) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(machine.client.clone(), LEASE_NAMESPACE);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": info.name},
        "spec": {
            "holderIdentity": info.name, "leaseDurationSeconds": 8,
            "renewTime": status::now_micros(),
        },
    });
    let apply = PatchParams::apply(MANAGER).force();
    leases.patch(&info.name, &apply, &Patch::Apply(&lease)).await?;
    let nodes: Api<Node> = Api::all(machine.client.clone());
    let node = nodes.get(&info.name).await?;
    if !is_ready(&node) {
        let patch = json!({"status": node_status(info, &status::now())});
        nodes.patch_status(&info.name, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
    }
    Ok(())
}

/// Whether the Ready condition is True.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}
