//! The process node: a small kubelet and scheduler that runs pods as processes.
//!
//! | file | what it does |
//! |---|---|
//! | `site`, `info`, `machine` | all nodes, one node, what every part stands on |
//! | `heartbeat` | Node objects, Ready condition, Lease |
//! | `dispatch`, `watching` | tells the site of pods; it has one task per pod of ours |
//! | `schedule`, `placement` | binds pods to nodes; which node it is |
//! | `provision` | directories as persistent volumes |
//! | `pod`, `container`, `probe` | the life of a pod, of a container, its probes |
//! | `runtime` | what is known of a pod while it lives |
//! | `sandbox`, `image` | bubblewrap command lines, image names |
//! | `volume`, `payload`, `env`, `fields` | what a container sees |
//! | `status`, `publish`, `events` | what the API sees |
//!
//! One [`Site`] serves all nodes of a cluster: nodes differ in name, address and whether they live.
//!
//! **Invariant:** nothing here panics the cluster; what a pod asks for and cannot get is said in its
//! status and as an Event.

mod container;
mod dispatch;
mod env;
mod events;
mod fields;
mod heartbeat;
mod image;
mod info;
mod machine;
mod payload;
mod placement;
mod pod;
mod probe;
mod provision;
mod publish;
mod runtime;
mod sandbox;
mod schedule;
mod site;
mod status;
mod volume;
mod watching;

use std::sync::Arc;

use anyhow::Result;

pub(crate) use machine::Machine;
pub(crate) use site::Site;

/// Creates the nodes and starts the background tasks on the current runtime.
pub(crate) async fn start(site: &Arc<Site>) -> Result<()> {
    let machine = &site.machine;
    provision::create_storage_class(&machine.client).await?;
    for node in &site.nodes {
        heartbeat::register(machine, node).await?;
        tokio::spawn(heartbeat::run(Arc::clone(machine), Arc::clone(node)));
    }
    tokio::spawn(dispatch::watch_pods(Arc::clone(site)));
    tokio::spawn(dispatch::watch_configuration(Arc::clone(machine)));
    tokio::spawn(schedule::run(Arc::clone(site)));
    tokio::spawn(provision::run(Arc::clone(machine)));
    Ok(())
}
