//! Startup, readiness and liveness probes, and the handlers that hooks share with them.
//!
//! An HTTPS probe only checks that the port accepts; gRPC probes always fail.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::runtime::PodRuntime;
use super::{env, events, sandbox};

/// Of a status line nothing more is needed.
const HTTP_BYTES_MAX: usize = 1_024;
/// Output of a failed exec probe that reaches the Event.
const OUTPUT_BYTES_MAX: usize = 300;

/// What handlers run against.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) pid: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) environment: env::Environment,
    pub(crate) container: Arc<Container>,
}

/// Runs a container's probes; returns, with the reason, only when the container must be killed.
pub(crate) async fn run(pod: &PodRuntime, index: usize, target: &Target) -> String {
    if let Some(probe) = &target.container.startup_probe
        && let Err(reason) = until_decided(pod, probe, target, "Startup").await
    {
        return reason;
    }
    pod.change(index, |view| {
        view.started = true;
        view.ready = target.container.readiness_probe.is_none();
    });
    let readiness = async {
        if let Some(probe) = &target.container.readiness_probe {
            readiness(pod, index, probe, target).await;
        }
        std::future::pending::<String>().await
    };
    let liveness = async {
        if let Some(probe) = &target.container.liveness_probe {
            return liveness(pod, probe, target).await;
        }
        std::future::pending::<String>().await
    };
    tokio::select! {
        reason = readiness => reason,
        reason = liveness => reason,
    }
}

/// Startup: success once, or the reason of the last of too many failures.
async fn until_decided(
    pod: &PodRuntime,
    probe: &Probe,
    target: &Target,
    kind: &str,
) -> Result<(), String> {
    let mut failures = 0;
    delay(probe).await;
    loop {
        match attempt(probe, target).await {
            Ok(()) => return Ok(()),
            Err(error) => {
                failures += 1;
                unhealthy(pod, kind, &error);
                if failures >= probe.failure_threshold.unwrap_or(3) {
                    return Err(format!("{kind} probe failed: {error:#}"));
                }
            }
        }
        tokio::time::sleep(period(probe)).await;
    }
}

async fn readiness(pod: &PodRuntime, index: usize, probe: &Probe, target: &Target) {
    let (mut successes, mut failures) = (0, 0);
    delay(probe).await;
    loop {
        match attempt(probe, target).await {
            Ok(()) => (successes, failures) = (successes + 1, 0),
            Err(error) => {
                (successes, failures) = (0, failures + 1);
                if failures == 1 {
                    unhealthy(pod, "Readiness", &error);
                }
            }
        }
        if successes >= probe.success_threshold.unwrap_or(1) {
            pod.change(index, |view| view.ready = true);
        } else if failures >= probe.failure_threshold.unwrap_or(3) {
            pod.change(index, |view| view.ready = false);
        }
        tokio::time::sleep(period(probe)).await;
    }
}

async fn liveness(pod: &PodRuntime, probe: &Probe, target: &Target) -> String {
    let mut failures = 0;
    delay(probe).await;
    loop {
        match attempt(probe, target).await {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                unhealthy(pod, "Liveness", &error);
                if failures >= probe.failure_threshold.unwrap_or(3) {
                    return format!("Liveness probe failed: {error:#}");
                }
            }
        }
        tokio::time::sleep(period(probe)).await;
    }
}

fn unhealthy(pod: &PodRuntime, kind: &str, error: &anyhow::Error) {
    let note = format!("{kind} probe failed: {error:#}");
    events::record(&pod.machine, &pod.object(), "Warning", "Unhealthy", &note);
}

async fn delay(probe: &Probe) {
    tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
}

fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds, 10)
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
}

async fn attempt(probe: &Probe, target: &Target) -> Result<()> {
    let limit = seconds(probe.timeout_seconds, 1);
    let work = async {
        if let Some(action) = &probe.exec {
            exec(action, target).await
        } else if let Some(action) = &probe.http_get {
            http_get(action, target).await
        } else if let Some(action) = &probe.tcp_socket {
            let host = action.host.clone().unwrap_or_else(|| target.address.to_string());
            let port = port(&action.port, &target.container)?;
            TcpStream::connect((host.as_str(), port))
                .await
                .with_context(|| format!("connecting to {host}:{port}"))?;
            Ok(())
        } else {
            bail!("this kind of probe is not supported")
        }
    };
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => bail!("timed out after {} s", limit.as_secs()),
    }
}

/// Runs a command inside the container; anything but exit code 0 is an error.
pub(crate) async fn exec(action: &ExecAction, target: &Target) -> Result<()> {
    let argv = action.command.as_deref().unwrap_or_default();
    let mut command = sandbox::enter(target.pid, &target.environment, argv)?;
    let output = command.kill_on_drop(true).output().await.context("running nsenter")?;
    if output.status.success() {
        return Ok(());
    }
    let mut bytes = output.stdout;
    bytes.extend(output.stderr);
    bytes.truncate(OUTPUT_BYTES_MAX);
    bail!("command ended with {}: {}", output.status, String::from_utf8_lossy(&bytes).trim())
}

/// A GET whose status is below 400.
pub(crate) async fn http_get(action: &HTTPGetAction, target: &Target) -> Result<()> {
    let host = action.host.clone().unwrap_or_else(|| target.address.to_string());
    let port = port(&action.port, &target.container)?;
    let mut stream = TcpStream::connect((host.as_str(), port))
        .await
        .with_context(|| format!("connecting to {host}:{port}"))?;
    if action.scheme.as_deref() == Some("HTTPS") {
        return Ok(());
    }
    let path = action.path.as_deref().unwrap_or("/");
    let mut request =
        format!("GET {path} HTTP/1.1\r\nConnection: close\r\nUser-Agent: kube-probe\r\n");
    let headers = action.http_headers.as_deref().unwrap_or_default();
    if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("host")) {
        request.extend(["Host: ", &host, ":", &port.to_string(), "\r\n"]);
    }
    for header in headers {
        request.extend([header.name.as_str(), ": ", &header.value, "\r\n"]);
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.context("sending the request")?;
    let mut answer = Vec::new();
    while answer.len() < HTTP_BYTES_MAX && !answer.contains(&b'\n') {
        if stream.read_buf(&mut answer).await.context("reading the answer")? == 0 {
            break;
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().next().unwrap_or_default();
    let code: u16 = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    if !(200..400).contains(&code) {
        bail!("{path} answered {line:?}");
    }
    Ok(())
}

fn port(port: &IntOrString, container: &Container) -> Result<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_ref() == Some(name))
            .map(|port| port.container_port)
            .or_else(|| name.parse().ok())
            .with_context(|| format!("the container has no port named {name:?}"))?,
    };
    u16::try_from(number).with_context(|| format!("{number} is not a port"))
}
