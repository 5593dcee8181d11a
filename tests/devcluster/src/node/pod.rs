//! The life of one pod on a node: volumes, init containers, containers, termination.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::container::{self, Ended, Restart, StopAt};
use super::payload::{Source, TokenCache};
use super::runtime::{Fate, PodRuntime, Update};
use super::{events, publish, sandbox};

/// Volumes that cannot be had yet are tried again after this.
const RETRY: Duration = Duration::from_millis(500);
/// Tokens are looked at this often; their life is at least 10 minutes.
const TOKEN_CHECK: Duration = Duration::from_mins(1);

/// Runs a pod until it is gone.
pub(crate) async fn run(pod: Arc<PodRuntime>, mut updates: watch::Receiver<Update>) {
    let (stop, stopping) = watch::channel::<StopAt>(None);
    let reporter = tokio::spawn(publish::report(Arc::clone(&pod)));
    let mut life = tokio::spawn(live(Arc::clone(&pod), stopping));
    let mut alive = true;
    let mut fate = Fate::Present;
    while alive || (fate == Fate::Present && !is_deleted(&updates)) {
        stop.send_if_modified(|stop| shorten(stop, &updates.borrow_and_update()));
        pod.touch();
        tokio::select! {
            _ = &mut life, if alive => alive = false,
            changed = updates.changed() => if changed.is_err() {
                break;
            }
        }
        fate = updates.borrow().fate;
    }
    reporter.abort();
    pod.set_finished();
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
                    pod.set_init_failed();
                    return;
                }
                Ended::Stopped => return,
            }
        }
        pod.set_initialized();
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
            events::record(&pod.machine, &pod.object(), "Warning", "FailedMount", &text);
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
        Source { client: &pod.machine.client, pod: &object, placement: &pod.placement, tokens };
    pod.volumes().await.prepare(&volumes, &mut source).await
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
    let mut configuration = pod.machine.config_changes.subscribe();
    let mut latest = pod.latest.clone();
    // Labels and annotations reach downward API volumes.
    let facts = |pod: &Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
    loop {
        let before = facts(&pod.object());
        tokio::select! {
            () = change_in(&mut configuration, pod.namespace()) => {}
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
