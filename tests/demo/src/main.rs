//! `cargo demo`: the product doing its job, on a real control plane with real Redis servers.
//!
//! Builds what it needs, starts a development cluster, deploys the host as a user would, and shows: a RedisCluster
//! becoming ready, a failover that keeps the data, a plugin swapped without a restart, a deletion with its cascade.
//! What it says goes to standard error; the last line on standard output is one JSON object with the figures.
//!
//! **Invariant:** every figure is measured in this run.

mod build;
mod figures;
mod say;
mod server;
mod story;

use anyhow::Context as _;
use clap::Parser;
use devcluster::{ControlPlane, DevCluster, Options, ensure_requirements};

/// Shows the operator host at work on a real control plane with real Redis servers.
#[derive(Debug, Parser)]
#[command(name = "cargo demo", bin_name = "cargo demo --")]
struct Arguments {
    /// Exit after the last step, instead of leaving the cluster up for you to try kubectl
    #[arg(long)]
    exit: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { exit } = Arguments::parse();
    say::step("Preparing: everything that has to be installed or built");
    tokio::task::spawn_blocking(|| -> anyhow::Result<()> {
        ensure_requirements(false)?;
        ControlPlane::ensure_built(false)?;
        Ok(())
    })
    .await
    .context("preparing has panicked")??;
    let built =
        tokio::task::spawn_blocking(build::all).await.context("building has panicked")??;
    say::step("Starting etcd, kube-apiserver, kube-controller-manager and two nodes");
    let options = Options { operator_host_binary: Some(built.host.clone()), ..Options::default() };
    let cluster = DevCluster::start(options).await?;
    let told = tokio::select! {
        told = story::tell(&cluster, &built) => told,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Err(anyhow::anyhow!("interrupted"))
        }
    };
    if told.is_err() {
        story::explain_failure(&cluster).await;
    }
    if let Ok(figures) = &told
        && !exit
    {
        say::stay(&cluster, figures);
        tokio::signal::ctrl_c().await?;
    }
    cluster.shutdown().await?;
    say::figures(&told?)
}
