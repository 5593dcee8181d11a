//! The life of one container: start, probe, wait, back off, start again.
//!
//! Back-off differs from a real kubelet on purpose: 1 s doubling to 10 s (there 10 s to 5 min),
//! forgotten after a run of 30 s (there 10 min).

use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::Instant;

use super::env::{self, Lookup};
use super::events;
use super::probe::{self, Target};
use super::runtime::PodRuntime;
use super::sandbox::{Running, Sandbox};
use super::status::{self, Ending, Phase};
use crate::process;

const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// When a pod has to be gone; a later value may only shorten it.
pub(crate) type StopAt = Option<Instant>;

/// How supervision ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Exit code 0 and no restart wanted.
    Completed,
    /// Another exit code and no restart wanted.
    Failed,
    /// The pod is being stopped.
    Stopped,
}

/// Whether an ended container is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// Keeps container `index` of the pod running until it is done or the pod stops.
pub(crate) async fn supervise(
    pod: &PodRuntime,
    index: usize,
    container: &Arc<Container>,
    restart: Restart,
    mut stop: watch::Receiver<StopAt>,
) -> Ended {
    let mut backoff = BACKOFF_FIRST;
    loop {
        if stop.borrow().is_some() {
            return Ended::Stopped;
        }
        let started = Instant::now();
        match launch(pod, index, container).await {
            Ok(running) => {
                let code = run(pod, index, container, running, &mut stop).await;
                if stop.borrow().is_some() {
                    return Ended::Stopped;
                }
                match (restart, code) {
                    (Restart::Never | Restart::OnFailure, 0) => return Ended::Completed,
                    (Restart::Never, _) => return Ended::Failed,
                    (Restart::Always | Restart::OnFailure, _) => {}
                }
                if started.elapsed() > FORGET_AFTER {
                    backoff = BACKOFF_FIRST;
                }
                back_off(pod, index, container, backoff);
            }
            Err((reason, error)) => refused(pod, index, reason, &format!("{error:#}")),
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => backoff = (backoff * 2).min(BACKOFF_MAX),
            _ = stop.wait_for(Option::is_some) => return Ended::Stopped,
        }
    }
}

fn back_off(pod: &PodRuntime, index: usize, container: &Container, wait: Duration) {
    let seconds = wait.as_secs();
    let message = format!("back-off {seconds}s restarting failed container={}", container.name);
    events::record(&pod.machine, &pod.object(), "Warning", "BackOff", &message);
    pod.change(index, |view| {
        if let Phase::Terminated(ending) = &view.phase {
            view.last = Some(ending.clone());
        }
        view.phase = Phase::Waiting { reason: "CrashLoopBackOff".to_owned(), message };
    });
}

/// Says in status and Event why a container does not start.
pub(crate) fn refused(pod: &PodRuntime, index: usize, reason: &'static str, message: &str) {
    events::record(&pod.machine, &pod.object(), "Warning", "Failed", message);
    pod.change(index, |view| {
        view.phase = Phase::Waiting { reason: reason.to_owned(), message: message.to_owned() };
    });
}

/// Starts the process, or says why it cannot be: the waiting reason and the error.
async fn launch(
    pod: &PodRuntime,
    index: usize,
    container: &Container,
) -> Result<Running, (&'static str, anyhow::Error)> {
    let config_error = |error| ("CreateContainerConfigError", error);
    let object = pod.object();
    let command = container.command.as_deref().unwrap_or_default();
    let arguments = container.args.as_deref().unwrap_or_default();
    let name = container.image.as_deref().unwrap_or_default();
    let image = pod
        .machine
        .images
        .resolve(name, command, arguments)
        .map_err(|why| ("ErrImagePull", anyhow::Error::msg(why)))?;
    let lookup = Lookup {
        client: &pod.machine.client,
        pod: &object,
        placement: &pod.placement,
        apiserver_port: pod.machine.block.apiserver_port(),
    };
    let environment = lookup.environment(container, &image.path).await.map_err(config_error)?;
    let sandbox = sandbox(pod, container, image, environment).await.map_err(config_error)?;
    let log = pod.log(&container.name);
    let running =
        start(pod, sandbox, &log, index).await.map_err(|error| ("RunContainerError", error))?;
    let pid = running.pid;
    pod.change(index, |view| {
        if let Phase::Terminated(ending) = &view.phase {
            view.last = Some(ending.clone());
        }
        view.restarts += i32::from(view.last.is_some());
        view.phase = Phase::Running { since: status::now() };
        view.pid = Some(pid);
    });
    let note = format!("Started container {} (pid {pid})", container.name);
    events::record(&pod.machine, &object, "Normal", "Started", &note);
    Ok(running)
}

async fn sandbox(
    pod: &PodRuntime,
    container: &Container,
    image: super::image::Image,
    environment: env::Environment,
) -> Result<Sandbox> {
    let expand = |text: &str| env::expand(text, &environment);
    let argv: Vec<String> = image.argv.iter().map(|word| expand(word)).collect();
    let mut binds: Vec<_> = image
        .binds
        .into_iter()
        .map(|(source, target)| super::sandbox::Bind { source, target, read_only: true })
        .collect();
    binds.extend(pod.volumes().await.binds(container, expand)?);
    let security = container.security_context.as_ref();
    let dropped = security
        .and_then(|security| security.capabilities.as_ref())
        .and_then(|capabilities| capabilities.drop.as_ref());
    Ok(Sandbox {
        hostname: pod.hostname.clone(),
        hosts_file: pod.hosts_file(),
        binds,
        environment,
        workdir: container.working_dir.clone().unwrap_or_else(|| image.workdir.to_owned()),
        read_only_root: security.is_some_and(|one| one.read_only_root_filesystem == Some(true)),
        drop_capabilities: dropped.is_some_and(|list| list.iter().any(|name| name == "ALL")),
        argv,
    })
}

async fn start(pod: &PodRuntime, sandbox: Sandbox, log: &Path, index: usize) -> Result<Running> {
    use std::io::Write as _;
    let mut file = process::append(log)?;
    let restarts = pod.restarts_next(index);
    writeln!(file, "--- {} uid {} start {restarts} ---", status::now(), pod.uid)
        .context("writing to the container's log")?;
    sandbox
        .start(&pod.machine.spawner, file)
        .await
        .with_context(|| format!("starting the container:\n{}", process::tail(log, 3)))
}

/// Waits for the container's end, whatever the cause, and returns its exit code.
async fn run(
    pod: &PodRuntime,
    index: usize,
    container: &Arc<Container>,
    mut running: Running,
    stop: &mut watch::Receiver<StopAt>,
) -> i32 {
    let started_at = status::now();
    let target = Target {
        pid: running.pid,
        address: pod.placement.pod_ip,
        environment: running.environment.clone(),
        container: Arc::clone(container),
    };
    let mut message = String::new();
    post_start(pod, container, &target).await;
    let by_itself = tokio::select! {
        outcome = running.child.wait() => Some(outcome),
        reason = probe::run(pod, index, &target) => {
            message = reason;
            None
        }
        _ = stop.wait_for(Option::is_some) => None,
    };
    let outcome = if let Some(outcome) = by_itself {
        outcome
    } else {
        let note = format!("Stopping container {} {message}", container.name);
        events::record(&pod.machine, &pod.object(), "Normal", "Killing", note.trim());
        terminate(pod, container, &target, &mut running, stop).await
    };
    let exit_code = outcome.ok().map_or(137, exit_code);
    let reason = if exit_code == 0 { "Completed" } else { "Error" }.to_owned();
    let ending = Ending { exit_code, reason, message, started_at, finished_at: status::now() };
    pod.change(index, |view| {
        view.phase = Phase::Terminated(ending);
        view.pid = None;
        view.ready = false;
        view.started = false;
    });
    exit_code
}

async fn post_start(pod: &PodRuntime, container: &Container, target: &Target) {
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
    if let Some(hook) = hook
        && let Err(error) = handle(hook, target).await
    {
        let note = format!("PostStart hook failed: {error:#}");
        events::record(&pod.machine, &pod.object(), "Warning", "FailedPostStartHook", &note);
    }
}

/// preStop, SIGTERM, then SIGKILL at the deadline.
async fn terminate(
    pod: &PodRuntime,
    container: &Container,
    target: &Target,
    running: &mut Running,
    stop: &mut watch::Receiver<StopAt>,
) -> std::io::Result<ExitStatus> {
    let own = Instant::now() + pod.grace();
    let deadline = |stop: &watch::Receiver<StopAt>| (*stop.borrow()).unwrap_or(own);
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    if let Some(hook) = hook
        && deadline(stop) > Instant::now()
    {
        tokio::select! {
            outcome = handle(hook, target) => if let Err(error) = outcome {
                let note = format!("PreStop hook failed: {error:#}");
                events::record(&pod.machine, &pod.object(), "Warning", "FailedPreStopHook", &note);
            },
            () = expired(stop, own) => {}
            _ = running.child.wait() => {}
        }
    }
    if deadline(stop) > Instant::now() {
        process::signal(Some(running.pid), Signal::TERM);
        tokio::select! {
            outcome = running.child.wait() => return outcome,
            () = expired(stop, own) => {}
        }
    }
    process::signal(Some(running.pid), Signal::KILL);
    running.child.wait().await
}

/// Returns at the deadline, which a forced deletion may move closer while we wait.
async fn expired(stop: &mut watch::Receiver<StopAt>, own: Instant) {
    loop {
        let deadline = (*stop.borrow_and_update()).unwrap_or(own);
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => return,
            changed = stop.changed() => if changed.is_err() {
                return;
            }
        }
    }
}

async fn handle(hook: &LifecycleHandler, target: &Target) -> Result<()> {
    if let Some(action) = &hook.exec {
        probe::exec(action, target).await
    } else if let Some(action) = &hook.http_get {
        probe::http_get(action, target).await
    } else if let Some(action) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
        Ok(())
    } else {
        anyhow::bail!("this kind of hook is not supported")
    }
}

/// bwrap passes on the exit code, or 128 + signal; when bwrap itself was killed it is the same rule.
fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(137)
}
