//! The life of one pod on a node: volumes, init containers, containers, termination.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::Value;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;

use super::container::{self, Ended, Restart, StopAt};
use super::fields::Placement;
use super::payload::{Source, TokenCache};
use super::status::{self, ContainerView, PodView};
use super::volume::Volumes;
use super::{NodeInfo, Site, events, publish, sandbox};

/// Volumes that cannot be had yet are tried again after this.
const RETRY: Duration = Duration::from_millis(500);
/// Tokens are looked at this often; their life is at least 10 minutes.
const TOKEN_CHECK: Duration = Duration::from_mins(1);

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
    pub(crate) site: Arc<Site>,
    pub(crate) node: Arc<NodeInfo>,
    pub(crate) uid: String,
    pub(crate) placement: Placement,
    pub(crate) hostname: String,
    namespace: String,
    name: String,
    directory: PathBuf,
    latest: watch::Receiver<Update>,
    view: Mutex<PodView>,
    volumes: tokio::sync::Mutex<Volumes>,
    changed: Notify,
    finished: watch::Sender<bool>,
}

impl PodRuntime {
    pub(crate) fn new(
        site: Arc<Site>,
        node: Arc<NodeInfo>,
        uid: &str,
        latest: watch::Receiver<Update>,
    ) -> Self {
        let pod = Arc::clone(&latest.borrow().pod);
        let spec = pod.spec.clone().unwrap_or_default();
        let pod_ip: Ipv4Addr = site.block.next_pod_address();
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
            directory: site.state.join("pods").join(uid),
            site,
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

    /// Resolves after a change of the view.
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
        self.changed.notify_one();
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
        crate::logs::container_log(&self.site.state, &self.namespace, &self.name, container)
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

/// Runs a pod until it is gone.
pub(crate) async fn run(pod: Arc<PodRuntime>, mut updates: watch::Receiver<Update>) {
    let (stop, stopping) = watch::channel::<StopAt>(None);
    let reporter = tokio::spawn(publish::report(Arc::clone(&pod)));
    let mut life = tokio::spawn(live(Arc::clone(&pod), stopping));
    let mut alive = true;
    let mut fate = Fate::Present;
    while alive || (fate == Fate::Present && !is_deleted(&updates)) {
        stop.send_if_modified(|stop| shorten(stop, &updates.borrow_and_update()));
        pod.changed.notify_one();
        tokio::select! {
            _ = &mut life, if alive => alive = false,
            changed = updates.changed() => if changed.is_err() {
                break;
            }
        }
        fate = updates.borrow().fate;
    }
    reporter.abort();
    pod.finished.send_replace(true);
    if updates.borrow().fate == Fate::Present {
        publish::finish(&pod, &mut updates).await;
    }
    drop(tokio::fs::remove_dir_all(&pod.directory).await);
}

fn is_deleted(updates: &watch::Receiver<Update>) -> bool {
    updates.borrow().pod.metadata.deletion_timestamp.is_some()
}

/// Sets or shortens the deadline by what the latest update says.
fn shorten(stop: &mut StopAt, update: &Update) -> bool {
    let meta = &update.pod.metadata;
    let grace = match update.fate {
        Fate::Gone | Fate::NodeDead => Some(0),
        Fate::Present if meta.deletion_timestamp.is_some() => {
            Some(meta.deletion_grace_period_seconds.unwrap_or(30))
        }
        Fate::Present => None,
    };
    let Some(grace) = grace else { return false };
    let deadline = Instant::now() + Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    if stop.is_some_and(|stop| stop <= deadline) {
        return false;
    }
    *stop = Some(deadline);
    true
}

/// From volumes to the end of the last container; returns early when the pod is stopped.
async fn live(pod: Arc<PodRuntime>, stop: watch::Receiver<StopAt>) {
    let mut tokens = TokenCache::default();
    let mut stopped = stop.clone();
    tokio::select! {
        () = prepare(&pod, &mut tokens) => {}
        _ = stopped.wait_for(Option::is_some) => return,
    }
    let spec = pod.object().spec.clone().unwrap_or_default();
    let restart = match spec.restart_policy.as_deref() {
        Some("Never") => Restart::Never,
        Some("OnFailure") => Restart::OnFailure,
        _ => Restart::Always,
    };
    let inits = spec.init_containers.unwrap_or_default();
    let init_restart = if restart == Restart::Never { Restart::Never } else { Restart::OnFailure };
    let containers: Vec<Arc<Container>> = spec.containers.into_iter().map(Arc::new).collect();
    let offset = inits.len();
    let work = async {
        for (index, init) in inits.into_iter().map(Arc::new).enumerate() {
            if init.restart_policy.is_some() {
                let why = "init containers with a restartPolicy are not supported";
                container::refused(&pod, index, "Unsupported", why);
                std::future::pending::<()>().await;
            }
            let ended = container::supervise(&pod, index, &init, init_restart, stop.clone()).await;
            match ended {
                Ended::Completed => pod.change(index, |view| view.ready = true),
                Ended::Failed => {
                    pod.view().init_failed = true;
                    pod.changed.notify_one();
                    return;
                }
                Ended::Stopped => return,
            }
        }
        pod.view().initialized = true;
        pod.changed.notify_one();
        join_all(containers.iter().enumerate().map(|(index, one)| {
            container::supervise(&pod, offset + index, one, restart, stop.clone())
        }))
        .await;
    };
    tokio::select! {
        () = work => {}
        () = refresh(&pod, &mut tokens) => {}
    }
}

/// Makes directory, hosts file and volumes, however long that takes.
async fn prepare(pod: &PodRuntime, tokens: &mut TokenCache) {
    let mut told = String::new();
    while let Err(error) = try_prepare(pod, tokens).await {
        let text = format!("{error:#}");
        if told != text {
            events::record(&pod.site, &pod.object(), "Warning", "FailedMount", &text);
            told = text;
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_prepare(pod: &PodRuntime, tokens: &mut TokenCache) -> Result<()> {
    let volumes = pod.directory.join("volumes");
    tokio::fs::create_dir_all(&volumes).await?;
    let object = pod.object();
    sandbox::write_hosts(
        &pod.hosts_file(),
        pod.placement.pod_ip,
        std::slice::from_ref(&pod.hostname),
    )?;
    let mut source =
        Source { client: &pod.site.client, pod: &object, placement: &pod.placement, tokens };
    pod.volumes.lock().await.prepare(&volumes, &mut source).await
}

/// Returns when something changed in `namespace`, or may have.
async fn change_in(changes: &mut broadcast::Receiver<String>, namespace: &str) {
    loop {
        match changes.recv().await {
            Ok(changed) if changed != namespace => {}
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
        }
    }
}

/// Keeps the files of ConfigMaps, Secrets and tokens up to date; never returns.
async fn refresh(pod: &PodRuntime, tokens: &mut TokenCache) {
    let mut configuration = pod.site.config_changes.subscribe();
    let mut latest = pod.latest.clone();
    // Labels and annotations reach downward API volumes.
    let facts = |pod: &Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
    loop {
        let before = facts(&pod.object());
        tokio::select! {
            () = change_in(&mut configuration, &pod.namespace) => {}
            _ = latest.wait_for(|update| facts(&update.pod) != before) => {}
            () = tokio::time::sleep(TOKEN_CHECK) => {}
        }
        if latest.has_changed().is_err() {
            // The pod's entry is gone; its task is about to end.
            return std::future::pending().await;
        }
        // A ConfigMap that is gone leaves the files as they were, as with the kubelet.
        drop(try_prepare(pod, tokens).await);
    }
}
