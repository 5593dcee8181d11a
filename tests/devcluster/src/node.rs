//! The process node: a small kubelet and scheduler that runs pods as processes.
//!
//! | file | what it does |
//! |---|---|
//! | `heartbeat` | Node objects, Ready condition, Lease |
//! | `dispatch` | watches pods, one task per pod of ours |
//! | `schedule`, `placement` | binds pods to nodes; which node it is |
//! | `provision` | directories as persistent volumes |
//! | `pod`, `container`, `probe` | the life of a pod, of a container, its probes |
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
mod payload;
mod placement;
mod pod;
mod probe;
mod provision;
mod publish;
mod sandbox;
mod schedule;
mod status;
mod volume;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::runtime::watcher;
use rustix::process::Signal;
use tokio::sync::{Notify, broadcast, watch};

use crate::block::AddressBlock;
use crate::process::{self, Spawner};
use pod::{Fate, PodRuntime, Update};

/// A watch that failed is tried again after this.
const WATCH_RETRY: Duration = Duration::from_millis(300);

/// Changes that a busy pod may be behind; if more, it compares everything anyway.
const CHANGES_MAX: usize = 256;

/// One node.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    /// False once killed: no heartbeats, no pods, no API writes on its behalf.
    alive: watch::Sender<bool>,
}

impl NodeInfo {
    pub(crate) fn is_alive(&self) -> bool {
        *self.alive.borrow()
    }
}

/// A pod that has a task here.
struct PodHandle {
    updates: watch::Sender<Update>,
    runtime: Arc<PodRuntime>,
}

/// What all parts of the process node share.
pub(crate) struct Site {
    client: Client,
    spawner: Arc<Spawner>,
    block: Arc<AddressBlock>,
    state: PathBuf,
    images: image::Images,
    nodes: Vec<Arc<NodeInfo>>,
    /// Every pod of the cluster as last seen, by uid.
    mirror: Mutex<HashMap<String, Arc<Pod>>>,
    /// Pods with a task, by uid; an entry outlives its task until the API object is gone.
    handles: Mutex<HashMap<String, PodHandle>>,
    /// Wakes the scheduler.
    unscheduled: Notify,
    /// Namespaces in which a ConfigMap or Secret changed: their pods' volumes are compared.
    config_changes: broadcast::Sender<String>,
}

/// What is needed to make a [`Site`].
pub(crate) struct SiteParts {
    pub(crate) client: Client,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) block: Arc<AddressBlock>,
    pub(crate) state: PathBuf,
    pub(crate) operator_host_binary: Option<PathBuf>,
    pub(crate) nodes: u8,
}

impl Site {
    pub(crate) fn new(parts: SiteParts) -> Result<Self> {
        let nodes = (0..parts.nodes)
            .map(|index| {
                Arc::new(NodeInfo {
                    name: format!("node-{index}"),
                    address: parts.block.node_address(index),
                    alive: watch::Sender::new(true),
                })
            })
            .collect();
        Ok(Self {
            client: parts.client,
            spawner: parts.spawner,
            block: parts.block,
            state: parts.state,
            images: image::Images::find(parts.operator_host_binary)?,
            nodes,
            mirror: Mutex::default(),
            handles: Mutex::default(),
            unscheduled: Notify::new(),
            config_changes: broadcast::Sender::new(CHANGES_MAX),
        })
    }

    /// Creates the nodes and starts the background tasks on the current runtime.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<()> {
        provision::create_storage_class(&self.client).await?;
        for node in &self.nodes {
            heartbeat::register(self, node).await?;
            tokio::spawn(heartbeat::run(Arc::clone(self), Arc::clone(node)));
        }
        tokio::spawn(dispatch::watch_pods(Arc::clone(self)));
        tokio::spawn(dispatch::watch_configuration(Arc::clone(self)));
        tokio::spawn(schedule::run(Arc::clone(self)));
        tokio::spawn(provision::run(Arc::clone(self)));
        Ok(())
    }

    fn node(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.nodes.iter().find(|node| node.name == name)
    }

    fn mirror(&self) -> MutexGuard<'_, HashMap<String, Arc<Pod>>> {
        self.mirror.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<String, PodHandle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Host process id of a running container.
    pub(crate) fn container_pid(&self, ns: &str, pod: &str, container: &str) -> Option<u32> {
        let handles = self.handles();
        let mut found = handles.values().filter(|handle| handle.runtime.is(ns, pod));
        found.find_map(|handle| handle.runtime.pid_of(container))
    }

    /// Signals one container, or (without a name) every running container of the pod.
    pub(crate) fn signal(
        &self,
        ns: &str,
        pod: &str,
        container: Option<&str>,
        signal: Signal,
    ) -> Result<()> {
        let pids: Vec<u32> = {
            let handles = self.handles();
            let found = handles.values().filter(|handle| handle.runtime.is(ns, pod));
            found.flat_map(|handle| handle.runtime.pids(container)).collect()
        };
        if pids.is_empty() {
            bail!("{ns}/{pod} has no running container {}", container.unwrap_or("at all"));
        }
        for pid in pids {
            process::signal(Some(pid), signal);
        }
        Ok(())
    }

    /// Stops a node's heartbeats and kills its pods, without a word to the API.
    pub(crate) async fn kill_node(&self, name: &str) -> Result<()> {
        let node = self.node(name).with_context(|| format!("there is no node {name}"))?;
        node.alive.send_replace(false);
        let runtimes: Vec<Arc<PodRuntime>> = {
            let handles = self.handles();
            let on_node = handles.values().filter(|handle| handle.runtime.node.name == name);
            on_node
                .map(|handle| {
                    handle.updates.send_modify(|update| update.fate = Fate::NodeDead);
                    Arc::clone(&handle.runtime)
                })
                .collect()
        };
        for runtime in runtimes {
            runtime.finished().await;
        }
        Ok(())
    }

    /// Lets go of everything, which breaks the cycle between a site and its pods.
    pub(crate) fn forget(&self) {
        self.handles().clear();
        self.mirror().clear();
    }

    /// A killed node comes back: heartbeats, and its pods anew, with other addresses.
    pub(crate) fn start_node(self: &Arc<Self>, name: &str) -> Result<()> {
        let node = self.node(name).with_context(|| format!("there is no node {name}"))?;
        if node.is_alive() {
            bail!("node {name} is running");
        }
        self.handles().retain(|_, handle| handle.runtime.node.name != name);
        node.alive.send_replace(true);
        let on_node = |pod: &Arc<Pod>| {
            let spec = pod.spec.as_ref();
            spec.and_then(|spec| spec.node_name.as_deref()) == Some(name)
        };
        let pods: Vec<Arc<Pod>> =
            self.mirror().values().filter(|pod| on_node(pod)).cloned().collect();
        for pod in pods {
            dispatch::seen(self, pod);
        }
        Ok(())
    }

    /// Kills every pod's processes; the cluster is going away.
    pub(crate) async fn stop(&self) -> Result<()> {
        for node in &self.nodes {
            self.kill_node(&node.name).await?;
        }
        Ok(())
    }
}

/// A watch of all objects of a kind that never ends: errors are retried.
fn watch_all<K>(api: kube::Api<K>) -> impl Stream<Item = watcher::Event<K>> + Send
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher(api, watcher::Config::default()).filter_map(|event| async {
        if let Ok(event) = event {
            return Some(event);
        }
        tokio::time::sleep(WATCH_RETRY).await;
        None
    })
}
