//! Directories as persistent volumes: a default storage class and its provisioner.
//!
//! A volume is a directory in the cluster's state directory, reachable from every node, as network
//! storage is. Sizes are recorded, not enforced; a larger request is granted at once.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::Event;
use serde_json::json;

use super::machine::{MANAGER, Machine};
use super::watching::watch_all;
use crate::report;

const CLASS: &str = "standard";
const PROVISIONER: &str = "devcluster.operator-host.dev/directory";

/// Creates the default storage class.
pub(crate) async fn create_storage_class(client: &kube::Client) -> Result<()> {
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": {"name": CLASS, "annotations": {
            "storageclass.kubernetes.io/is-default-class": "true",
        }},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
    }))
    .context("building the storage class")?;
    let classes: Api<StorageClass> = Api::all(client.clone());
    classes.create(&PostParams::default(), &class).await.context("creating the storage class")?;
    Ok(())
}

/// Provisions and reclaims until the runtime ends.
pub(crate) async fn run(machine: Arc<Machine>) {
    let claims = watch_all::<PersistentVolumeClaim>(Api::all(machine.client.clone()));
    let volumes = watch_all::<PersistentVolume>(Api::all(machine.client.clone()));
    let (mut claims, mut volumes) = (std::pin::pin!(claims), std::pin::pin!(volumes));
    loop {
        let outcome = tokio::select! {
            Some(event) = claims.next() => match event {
                Event::Apply(claim) | Event::InitApply(claim) => on_claim(&machine, &claim).await,
                Event::Init | Event::InitDone | Event::Delete(_) => Ok(()),
            },
            Some(event) = volumes.next() => match event {
                Event::Apply(volume) | Event::InitApply(volume) => on_volume(&machine, &volume).await,
                Event::Init | Event::InitDone | Event::Delete(_) => Ok(()),
            },
            else => return,
        };
        if let Err(error) = outcome {
            report::warn(&format!("volumes: {error:#}"));
        }
    }
}

async fn on_claim(machine: &Machine, claim: &PersistentVolumeClaim) -> Result<()> {
    let spec = claim.spec.clone().unwrap_or_default();
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if spec.storage_class_name.as_deref() != Some(CLASS)
        || claim.metadata.deletion_timestamp.is_some()
    {
        return Ok(());
    }
    if phase == Some("Bound") {
        return grow(machine, claim).await;
    }
    if spec.volume_name.is_some() {
        return Ok(());
    }
    let uid = claim.metadata.uid.clone().context("claim without uid")?;
    let name = format!("pvc-{uid}");
    let directory = directory(machine, &name);
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("creating {}", directory.display()))?;
    let requests = spec.resources.and_then(|resources| resources.requests);
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": requests.and_then(|mut requests| requests.remove("storage"))},
            "accessModes": spec.access_modes, "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": directory, "type": "DirectoryOrCreate"},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid,
                "namespace": claim.metadata.namespace, "name": claim.metadata.name,
            },
        },
    }))
    .context("building a volume")?;
    let volumes: Api<PersistentVolume> = Api::all(machine.client.clone());
    match volumes.create(&PostParams::default(), &volume).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("creating volume {name}")),
    }
}

/// Grants a larger request: there is no disk to grow.
async fn grow(machine: &Machine, claim: &PersistentVolumeClaim) -> Result<()> {
    let wanted = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref())
        .and_then(|resources| resources.requests.as_ref())
        .and_then(|requests| requests.get("storage"));
    let status = claim.status.as_ref();
    let granted = status
        .and_then(|status| status.capacity.as_ref())
        .and_then(|capacity| capacity.get("storage"));
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let (Some(wanted), Some(volume)) = (wanted, volume) else {
        return Ok(());
    };
    if granted == Some(wanted) || granted.is_none() {
        return Ok(());
    }
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..Default::default() };
    let volumes: Api<PersistentVolume> = Api::all(machine.client.clone());
    let patch = json!({"spec": {"capacity": {"storage": wanted}}});
    volumes.patch(volume, &params, &Patch::Merge(&patch)).await.context("growing a volume")?;
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(machine.client.clone(), namespace);
    let patch = json!({"status": {"capacity": {"storage": wanted}}});
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    claims.patch_status(name, &params, &Patch::Merge(&patch)).await.context("growing a claim")?;
    Ok(())
}

/// A released volume of ours with reclaim policy Delete goes, with its directory.
async fn on_volume(machine: &Machine, volume: &PersistentVolume) -> Result<()> {
    let spec = volume.spec.clone().unwrap_or_default();
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let ours = volume.metadata.annotations.as_ref().is_some_and(|annotations| {
        annotations.get("pv.kubernetes.io/provisioned-by").is_some_and(|by| by == PROVISIONER)
    });
    let delete = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    if !ours || !delete || phase != Some("Released") || volume.metadata.deletion_timestamp.is_some()
    {
        return Ok(());
    }
    let name = volume.metadata.name.clone().context("volume without name")?;
    let volumes: Api<PersistentVolume> = Api::all(machine.client.clone());
    let params = DeleteParams::default()
        .preconditions(Preconditions { uid: volume.metadata.uid.clone(), resource_version: None });
    match volumes.delete(&name, &params).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
        Err(error) => return Err(error).with_context(|| format!("deleting volume {name}")),
    }
    let directory = directory(machine, &name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory)
            .with_context(|| format!("removing {}", directory.display()))?;
    }
    Ok(())
}

fn directory(machine: &Machine, name: &str) -> PathBuf {
    machine.state.join("volumes").join(name)
}
