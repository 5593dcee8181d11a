//! Telling the API about a pod: status writes, and the delete that ends it.
//!
//! **Invariant:** every write and the delete carry the pod's uid, so a successor of the same name is
//! never touched; a pod on a dead node writes nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::machine::MANAGER;
use super::runtime::{Fate, PodRuntime, Update};
use super::status;

/// Calls that failed are tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// Writes the status whenever it differs from what was last written; never returns.
pub(crate) async fn report(pod: Arc<PodRuntime>) {
    let mut written: Option<Value> = None;
    loop {
        if let Ok(status) = write_status(&pod, written.as_ref()).await {
            written = Some(status);
        } else {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        pod.changed().await;
    }
}

async fn write_status(pod: &PodRuntime, previous: Option<&Value>) -> Result<Value> {
    let object = pod.object();
    let status = pod.status(&object);
    let status = status::with_times(status, previous);
    if previous == Some(&status) || !pod.node.is_alive() {
        return Ok(status);
    }
    let pods: Api<Pod> = Api::namespaced(pod.machine.client.clone(), pod.namespace());
    let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match pods.patch_status(pod.name(), &params, &Patch::Strategic(&patch)).await {
        Ok(_) => Ok(status),
        // Gone or replaced: nothing left to say.
        Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => Ok(status),
        Err(error) => Err(error.into()),
    }
}

/// The last status, then the delete that lets the API object go.
pub(crate) async fn finish(pod: &PodRuntime, updates: &mut watch::Receiver<Update>) {
    pod.set_stopped();
    let pods: Api<Pod> = Api::namespaced(pod.machine.client.clone(), pod.namespace());
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    let attempts = async {
        loop {
            drop(write_status(pod, None).await);
            match pods.delete(pod.name(), &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => return,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    };
    tokio::select! {
        () = attempts => {}
        // Gone by other hands.
        _ = updates.wait_for(|update| update.fate != Fate::Present) => {}
    }
}
