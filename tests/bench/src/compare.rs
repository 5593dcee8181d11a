//! `cargo bench-host`: the host beside controller-runtime, with the same logic, on the same control plane, in one run.
//!
//! Builds both, starts a control plane without nodes, and lets the two take turns on fresh namespaces: create, settle,
//! a minute of nothing, single changes, a burst of changes, a restart. A third turn of the host has a plugin beside it
//! that cannot work. What it says goes to standard error; the last line on standard output is one JSON object.
//!
//! **Invariant:** every figure is measured in this run, and both candidates are measured from outside and alike: `/proc`
//! for CPU and memory, the API server's own counters for requests, watches of this process for times.

use anyhow::Context as _;
use clap::Parser;
use devcluster::{DevCluster, Options};

use crate::operator::Candidate;
use crate::report::{self, Rounds};
use crate::{build, micro, round, say};

/// Compares the host with the same logic on controller-runtime.
#[derive(Debug, Parser)]
#[command(name = "cargo bench-host", bin_name = "cargo bench-host")]
struct Arguments {
    /// How many parents are created
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    parents: u32,
    /// How often each candidate takes its turn
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// 100 parents, one round: a look, not a result
    #[arg(long, conflicts_with_all = ["parents", "rounds"])]
    quick: bool,
}

/// The command.
pub async fn run() -> anyhow::Result<()> {
    let Arguments { parents, rounds, quick } = Arguments::parse();
    let (parents, rounds) = if quick { (100, 1) } else { (parents, rounds) };
    say::step("Building the host, the plugins and the peer");
    let built =
        tokio::task::spawn_blocking(build::all).await.context("building has panicked")??;
    let parts = if quick {
        serde_json::Value::Null
    } else {
        say::step("Measuring the queue and the cache alone");
        let built = built.clone();
        tokio::task::spawn_blocking(move || micro::all(&built))
            .await
            .context("it has panicked")??
    };
    say::step("Starting etcd, kube-apiserver and kube-controller-manager, without nodes");
    let cluster =
        DevCluster::start(Options { nodes: 0, quiet: true, ..Options::default() }).await?;
    let measured = tokio::select! {
        measured = compare(&cluster, &built, parents, rounds) => measured,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Err(anyhow::anyhow!("interrupted"))
        }
    };
    cluster.shutdown().await?;
    report::print(&measured?, parents, &parts)
}

/// All turns, the order reversed from round to round.
async fn compare(
    cluster: &DevCluster,
    built: &build::Built,
    parents: u32,
    rounds: u32,
) -> anyhow::Result<Rounds> {
    let stage = round::Stage::prepare(cluster, built).await?;
    let mut measured = Rounds::default();
    for number in 0..rounds {
        let mut turns = vec![Candidate::Peer, Candidate::Host, Candidate::HostBesideFailing];
        if number % 2 == 1 {
            turns.reverse();
        }
        for candidate in turns {
            say::step(&format!("Round {} of {rounds}: {}", number + 1, candidate.title()));
            let turn = stage.turn(candidate, number, parents).await?;
            measured.add(candidate, turn);
        }
    }
    Ok(measured)
}
