//! A pod on a node: what is known of it, and what its parts tell each other.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::fields::Placement;
use super::info::NodeInfo;
use super::machine::Machine;
use super::status::{self, ContainerView, PodView};
use super::volume::Volumes;

/// What is to become of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Present,
    /// The API object is gone: kill at once, nothing to report.
    Gone,
    /// The node died: kill at once, report nothing.
    NodeDead,
}

/// The latest word on a pod.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    pub(crate) pod: Arc<Pod>,
    pub(crate) fate: Fate,
}

/// A pod on a node.
pub(crate) struct PodRuntime {
    pub(crate) machine: Arc<Machine>,
    pub(crate) node: Arc<NodeInfo>,
    pub(crate) uid: String,
    pub(crate) placement: Placement,
    pub(crate) hostname: String,
    namespace: String,
    name: String,
    pub(crate) directory: PathBuf,
    pub(crate) latest: watch::Receiver<Update>,
    view: Mutex<PodView>,
    volumes: tokio::sync::Mutex<Volumes>,
    changed: Notify,
    finished: watch::Sender<bool>,
}

impl PodRuntime {
    pub(crate) fn new(
        machine: Arc<Machine>,
        node: Arc<NodeInfo>,
        uid: &str,
        latest: watch::Receiver<Update>,
    ) -> Self {
        let pod = Arc::clone(&latest.borrow().pod);
        let spec = pod.spec.clone().unwrap_or_default();
        let pod_ip: Ipv4Addr = machine.block.next_pod_address();
        let placement = Placement { pod_ip, host_ip: node.address, node: node.name.clone() };
        let views = |containers: &[Container]| -> Vec<ContainerView> {
            let new = |one: &Container| {
                ContainerView::new(
                    &one.name,
                    one.image.as_deref().unwrap_or_default(),
                    "PodInitializing",
                )
            };
            containers.iter().map(new).collect()
        };
        let inits = views(spec.init_containers.as_deref().unwrap_or_default());
        let view = PodView {
            pod_ip: pod_ip.to_string(),
            host_ip: node.address.to_string(),
            start_time: status::now(),
            initialized: inits.is_empty(),
            inits,
            mains: views(&spec.containers),
            init_failed: false,
            stopped: false,
        };
        let name = pod.metadata.name.clone().unwrap_or_default();
        Self {
            directory: machine.state.join("pods").join(uid),
            machine,
            node,
            uid: uid.to_owned(),
            placement,
            hostname: spec.hostname.unwrap_or_else(|| name.chars().take(63).collect()),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name,
            latest,
            view: Mutex::new(view),
            volumes: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            finished: watch::Sender::new(false),
        }
    }

    pub(crate) fn is(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The status of `object` by the present view, without transition times.
    pub(crate) fn status(&self, object: &Pod) -> Value {
        self.view().status(object)
    }

    /// Nothing of the pod runs, or ever will again.
    pub(crate) fn set_stopped(&self) {
        self.view().stopped = true;
    }

    /// Its init containers are done.
    pub(crate) fn set_initialized(&self) {
        self.view().initialized = true;
        self.touch();
    }

    /// An init container failed for good.
    pub(crate) fn set_init_failed(&self) {
        self.view().init_failed = true;
        self.touch();
    }

    /// Nothing of it runs any more: the end of [`PodRuntime::finished`].
    pub(crate) fn set_finished(&self) {
        self.finished.send_replace(true);
    }

    /// What is reported may be another by now.
    pub(crate) fn touch(&self) {
        self.changed.notify_one();
    }

    /// Resolves after a change of what is reported.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The API object as last seen.
    pub(crate) fn object(&self) -> Arc<Pod> {
        Arc::clone(&self.latest.borrow().pod)
    }

    fn view(&self) -> MutexGuard<'_, PodView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a container's view; init containers are counted first.
    pub(crate) fn change(&self, index: usize, change: impl FnOnce(&mut ContainerView)) {
        let mut view = self.view();
        let PodView { inits, mains, .. } = &mut *view;
        if let Some(container) = inits.iter_mut().chain(mains).nth(index) {
            change(container);
        }
        drop(view);
        self.touch();
    }

    /// The restart count that the next start of a container will have.
    pub(crate) fn restarts_next(&self, index: usize) -> i32 {
        let view = self.view();
        let next = |view: &ContainerView| view.restarts + i32::from(view.last.is_some());
        view.inits.iter().chain(&view.mains).nth(index).map_or(0, next)
    }

    pub(crate) fn pid_of(&self, container: &str) -> Option<u32> {
        self.pids(Some(container)).first().copied()
    }

    /// Host pids of the running containers, or of the one named.
    pub(crate) fn pids(&self, container: Option<&str>) -> Vec<u32> {
        let view = self.view();
        let all = view.inits.iter().chain(&view.mains);
        all.filter(|view| container.is_none_or(|name| name == view.name))
            .filter_map(|view| view.pid)
            .collect()
    }

    pub(crate) async fn volumes(&self) -> tokio::sync::MutexGuard<'_, Volumes> {
        self.volumes.lock().await
    }

    pub(crate) fn hosts_file(&self) -> PathBuf {
        self.directory.join("hosts")
    }

    pub(crate) fn log(&self, container: &str) -> PathBuf {
        crate::logs::container_log(&self.machine.state, &self.namespace, &self.name, container)
    }

    /// The pod's grace period when a container is stopped by itself.
    pub(crate) fn grace(&self) -> Duration {
        let pod = self.object();
        let seconds = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        Duration::from_secs(seconds.and_then(|value| u64::try_from(value).ok()).unwrap_or(30))
    }

    /// Resolves when nothing of the pod runs any more.
    pub(crate) async fn finished(&self) {
        // The sender lives in self, so this cannot fail.
        drop(self.finished.subscribe().wait_for(|finished| *finished).await);
    }
}
