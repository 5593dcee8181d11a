//! All nodes of a cluster, and one task for each of their pods.
//!
//! **Invariant:** a pod uid gets at most one task per life of its node; its entry stays until the
//! API object is gone, so a finished pod is never started again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use rustix::process::Signal;
use tokio::sync::{Notify, watch};

use super::info::NodeInfo;
use super::machine::Machine;
use super::runtime::{Fate, PodRuntime, Update};
use super::{pod, status};
use crate::process;

/// A pod that has a task here.
struct PodHandle {
    updates: watch::Sender<Update>,
    runtime: Arc<PodRuntime>,
}

/// All nodes of a cluster, and their pods.
pub(crate) struct Site {
    pub(super) machine: Arc<Machine>,
    pub(super) nodes: Vec<Arc<NodeInfo>>,
    /// Every pod of the cluster as last seen, by uid.
    mirror: Mutex<HashMap<String, Arc<Pod>>>,
    /// Pods with a task, by uid; an entry outlives its task until the API object is gone.
    handles: Mutex<HashMap<String, PodHandle>>,
    /// Wakes the scheduler.
    pub(super) unscheduled: Notify,
}

impl Site {
    pub(crate) fn new(machine: Machine, nodes: u8) -> Self {
        let node = |index| NodeInfo {
            name: format!("node-{index}"),
            address: machine.block.node_address(index),
            alive: watch::Sender::new(true),
        };
        Self {
            nodes: (0..nodes).map(node).map(Arc::new).collect(),
            machine: Arc::new(machine),
            mirror: Mutex::default(),
            handles: Mutex::default(),
            unscheduled: Notify::new(),
        }
    }

    pub(super) fn node(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.nodes.iter().find(|node| node.name == name)
    }

    pub(super) fn mirror(&self) -> MutexGuard<'_, HashMap<String, Arc<Pod>>> {
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

    /// A killed node comes back: heartbeats, and its pods anew, with other addresses.
    pub(crate) fn start_node(&self, name: &str) -> Result<()> {
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
            self.seen(pod);
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

    /// The pods seen, by uid.
    pub(super) fn known(&self) -> Vec<String> {
        self.mirror().keys().cloned().collect()
    }

    /// Takes note of a pod, and starts its task if it is ours and new.
    pub(super) fn seen(&self, pod: Arc<Pod>) {
        let Some(uid) = pod.metadata.uid.clone() else {
            return;
        };
        // A recreated pod has the same name and another uid; watches may skip the delete in between.
        self.mirror().insert(uid.clone(), Arc::clone(&pod));
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let Some(node) = node else {
            self.unscheduled.notify_one();
            return;
        };
        let Some(node) = self.node(node) else { return };
        let mut handles = self.handles();
        if let Some(handle) = handles.get(&uid) {
            handle.updates.send_modify(|update| update.pod = pod);
            return;
        }
        let done = status::is_terminal(&pod) && pod.metadata.deletion_timestamp.is_none();
        if done || !node.is_alive() {
            return;
        }
        let (updates, receiver) =
            watch::channel(Update { pod: Arc::clone(&pod), fate: Fate::Present });
        let runtime = Arc::new(PodRuntime::new(
            Arc::clone(&self.machine),
            Arc::clone(node),
            &uid,
            receiver.clone(),
        ));
        handles.insert(uid, PodHandle { updates, runtime: Arc::clone(&runtime) });
        tokio::spawn(pod::run(runtime, receiver));
    }

    /// Takes note of the end of a pod.
    pub(super) fn gone(&self, uid: &str) {
        self.mirror().remove(uid);
        if let Some(handle) = self.handles().remove(uid) {
            handle.updates.send_modify(|update| update.fate = Fate::Gone);
        }
        // A claim or a node's room may have become free.
        self.unscheduled.notify_one();
    }
}
