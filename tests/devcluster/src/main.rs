//! The `devcluster` command: a cluster in the foreground, and the tools to look at it and hurt it.

#![allow(clippy::print_stdout, reason = "a command talks on stdout")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use devcluster::control::{self, Request};
use devcluster::{DevCluster, Options, Signal, wait_for};

/// A Kubernetes cluster on this machine: a real control plane, pods as processes.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Where the cluster keeps its state [default: a directory in the temporary directory]
    #[arg(long, global = true, env = "DEVCLUSTER_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster in the foreground; ctrl-c tears it down
    ///
    /// The first start builds the control plane from Go modules, which takes minutes.
    Up {
        /// Number of nodes
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=100))]
        nodes: u8,
        /// What `operator-host:*` images run
        #[arg(long, value_name = "FILE")]
        host_binary: Option<PathBuf>,
    },
    /// Build or find the control plane and the needed programs, without starting anything
    Prepare,
    /// Tear down the running cluster
    Down,
    /// Print the path of the running cluster's kubeconfig
    Kubeconfig,
    /// Print what a pod's containers have written (`kubectl logs` does not work here)
    Logs {
        /// NAMESPACE/POD
        pod: String,
        /// Only this container
        #[arg(short, long)]
        container: Option<String>,
    },
    /// Signal a pod's processes; killed ones are restarted in the same pod
    KillPod {
        /// NAMESPACE/POD
        pod: String,
        /// Only this container
        #[arg(short, long)]
        container: Option<String>,
        /// KILL, TERM, STOP, CONT, INT or HUP
        #[arg(long, default_value = "KILL", value_parser = parse_signal)]
        signal: Signal,
    },
    /// Kill a node: no more heartbeats, its processes are gone, the API is not told
    KillNode {
        /// Name of the node
        name: String,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { state_dir, command } = Arguments::parse();
    let state = state_dir.unwrap_or_else(control::default_state_dir);
    match command {
        Command::Up { nodes, host_binary } => {
            up(Options {
                nodes,
                operator_host_binary: host_binary,
                state_dir: Some(state),
                node_grace: Options::SHORT_NODE_GRACE,
                ..Options::default()
            })
            .await
        }
        Command::Prepare => prepare().await,
        Command::Down => down(&state).await,
        Command::Kubeconfig => {
            let path = state.join("kubeconfig");
            if !state.join("control.sock").exists() {
                bail!("no cluster runs in {}", state.display());
            }
            println!("{}", path.display());
            Ok(())
        }
        Command::Logs { pod, container } => print_logs(&state, &pod, container),
        Command::KillPod { pod, container, signal } => {
            let (namespace, pod) = split(&pod)?;
            let signal = signal.as_raw();
            control::ask(&state, &Request::KillPod { namespace, pod, container, signal }).await
        }
        Command::KillNode { name } => control::ask(&state, &Request::KillNode { name }).await,
    }
}

async fn up(options: Options) -> Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .context("listening for SIGTERM")?;
    let interrupted = tokio::signal::ctrl_c();
    let mut interrupted = std::pin::pin!(interrupted);
    let started = std::time::Instant::now();
    let cluster = tokio::select! {
        cluster = DevCluster::start(options) => cluster?,
        _ = &mut interrupted => bail!("interrupted while starting"),
        _ = terminate.recv() => bail!("terminated while starting"),
    };
    println!(
        "ready in {:.1} s, pods get addresses in {}",
        started.elapsed().as_secs_f32(),
        cluster.pod_cidr()
    );
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("ctrl-c tears it down");
    let served = tokio::select! {
        served = control::serve(&cluster) => served,
        _ = &mut interrupted => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    println!("shutting down");
    let socket = cluster.state_dir().join("control.sock");
    cluster.shutdown().await?;
    std::fs::remove_file(socket).context("removing the control socket")?;
    served
}

async fn prepare() -> Result<()> {
    let plane = tokio::task::spawn_blocking(|| {
        devcluster::ensure_requirements(false)?;
        devcluster::ControlPlane::ensure_built(false)
    })
    .await
    .context("preparing")??;
    for path in [&plane.etcd, &plane.apiserver, &plane.controller_manager, &plane.kubectl] {
        println!("{}", path.display());
    }
    Ok(())
}

async fn down(state: &std::path::Path) -> Result<()> {
    control::ask(state, &Request::Down).await?;
    let socket = state.join("control.sock");
    wait_for("the cluster to be gone", Duration::from_mins(1), || async {
        Ok((!socket.exists()).then_some(()))
    })
    .await
}

fn print_logs(state: &std::path::Path, pod: &str, container: Option<String>) -> Result<()> {
    let (namespace, pod) = split(pod)?;
    let containers = match container {
        Some(container) => vec![container],
        None => devcluster::logs::containers(state, &namespace, &pod)?,
    };
    let many = containers.len() > 1;
    for container in containers {
        if many {
            println!("==> {container} <==");
        }
        print!("{}", devcluster::logs::read(state, &namespace, &pod, &container)?);
    }
    Ok(())
}

fn split(pod: &str) -> Result<(String, String)> {
    let (namespace, name) = pod.split_once('/').context("write it as NAMESPACE/POD")?;
    Ok((namespace.to_owned(), name.to_owned()))
}

fn parse_signal(name: &str) -> Result<Signal, String> {
    match name.trim_start_matches("SIG") {
        "KILL" => Ok(Signal::KILL),
        "TERM" => Ok(Signal::TERM),
        "STOP" => Ok(Signal::STOP),
        "CONT" => Ok(Signal::CONT),
        "INT" => Ok(Signal::INT),
        "HUP" => Ok(Signal::HUP),
        _ => Err("one of KILL, TERM, STOP, CONT, INT, HUP".to_owned()),
    }
}
