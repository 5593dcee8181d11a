//! `cargo bench-swap`: what a hot swap takes, and that nothing is lost by it.
//!
//! One host on a control plane without nodes, with the benchmark's plugin: a candidate that is held; then, under a steady
//! stream of changes of its parents, new bytes, known bytes, a further plugin that cannot be compiled, revisions that
//! panic, and many swaps from one setting to another; at last, a fresh host with further plugins that have nothing to do.
//!
//! **Invariant:** every figure is measured in this run; but for the plan, the cut-over and the rollback, which the host
//! times itself, from outside.

mod bomb;
mod follow;
mod idle;
mod log;
mod report;
mod sight;
mod stage;
mod stream;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser;
use devcluster::{DevCluster, Options, wait_for};
use serde_json::{Value, json};

use crate::account::{difference, writes};
use crate::build::{self, SwapBuilt};
use crate::operator::Operator;
use crate::{inside, say};
use follow::{PluginSight, active, acts, held};
use report::{Held, Measured, Swaps};
use sight::Sight;
use stage::{PARENTS, PLUGIN, PLUGINS, Stage, Version};
use stream::Stream;

/// Generous: a slow machine is not a failure.
const PATIENCE: Duration = Duration::from_mins(5);

/// How long the last changes may take to arrive.
const ARRIVAL: Duration = Duration::from_mins(1);

/// How long a held candidate is watched for writes.
const HELD_FOR: Duration = Duration::from_secs(5);

/// This long without a write of the host means that nothing goes on.
const QUIET: Duration = Duration::from_secs(3);

/// A parent outside the stream, for changes after a rollback.
const CANARY: &str = "canary";

/// How large a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    parents: u32,
    /// From one setting to another.
    swaps: u32,
    /// To new bytes, and as many to known ones.
    bytes: usize,
    rollbacks: u32,
    idle_plugins: u32,
}

/// Measures hot swaps of a plugin.
#[derive(Debug, Parser)]
#[command(name = "cargo bench-swap", bin_name = "cargo bench-swap")]
struct Arguments {
    /// How many parents there are
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    parents: u32,
    /// How often one setting replaces another
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    swaps: u32,
    /// How many further plugins have nothing to do; 0 leaves their figure out
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=999))]
    idle_plugins: u32,
    /// 100 parents, 50 swaps, 10 idle plugins: a look, not a result
    #[arg(long, conflicts_with_all = ["parents", "swaps", "idle_plugins"])]
    quick: bool,
}

impl Arguments {
    fn size(&self) -> Size {
        let Self { parents, swaps, idle_plugins, quick } = *self;
        if quick {
            return Size { parents: 100, swaps: 50, bytes: 2, rollbacks: 2, idle_plugins: 10 };
        }
        Size { parents, swaps, bytes: 3, rollbacks: 3, idle_plugins }
    }
}

/// The command.
pub async fn run() -> anyhow::Result<()> {
    let size = Arguments::parse().size();
    say::step("Building the host and the plugins");
    // The first, one for each swap to new bytes, and one that is held.
    let count = size.bytes + 2;
    let built = tokio::task::spawn_blocking(move || build::for_swaps(count)).await;
    let built = built.context("building has panicked")??;
    say::step("Starting etcd, kube-apiserver and kube-controller-manager, without nodes");
    let cluster =
        DevCluster::start(Options { nodes: 0, quiet: true, ..Options::default() }).await?;
    let measured = tokio::select! {
        measured = measure(&cluster, &built, size) => measured,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Err(anyhow::anyhow!("interrupted"))
        }
    };
    cluster.shutdown().await?;
    report::print(&measured?, size.parents)
}

async fn measure(cluster: &DevCluster, built: &SwapBuilt, size: Size) -> anyhow::Result<Measured> {
    let read = built.plugins.iter().map(|file| Version::read(file));
    let versions = read.collect::<anyhow::Result<Vec<_>>>()?;
    let [first, candidate, new @ ..] = &versions[..] else {
        anyhow::bail!("too few plugins were built");
    };
    let stage = Stage::prepare(cluster, built, first).await?;
    let plugin = PluginSight::start(&stage.api, PLUGINS, PLUGIN).await?;
    let sight = Sight::start(&stage.api, PARENTS).await?;
    let names = (0..size.parents).map(|number| format!("tutorial-{number:05}")).collect();
    let operator = stage.host("swap.log")?;
    let mut bench = Bench { stage, operator, plugin, sight, names, size };
    let swapped = bench.swaps(first, candidate, new).await;
    let swapped = swapped.with_context(|| format!("its log ends: {}", bench.operator.last_words()));
    let Bench { stage, operator, sight, .. } = bench;
    let log = operator.log()?;
    let stopped = operator.stop().await;
    let mut measured = swapped?;
    stopped?;
    stage.forget(bomb::PLUGIN).await?;
    measured.two_digests_at_once = sight.backwards();
    measured.logged = log::read(&log);
    if size.idle_plugins > 0 {
        say::step(&format!("{} further plugins with nothing to do", size.idle_plugins));
        measured.idle = Some(idle::measure(&stage, size.idle_plugins).await?);
    }
    Ok(measured)
}

/// A host at work.
struct Bench<'a> {
    stage: Stage<'a>,
    operator: Operator,
    plugin: PluginSight,
    sight: Sight,
    names: Vec<String>,
    size: Size,
}

impl Bench<'_> {
    /// Everything that one host goes through.
    async fn swaps(
        &mut self,
        first: &Version,
        candidate: &Version,
        new: &[Version],
    ) -> anyhow::Result<Measured> {
        self.begin(first).await?;
        say::step("A candidate that is held");
        let held = self.held(first, candidate).await?;
        say::step("New bytes, and bytes seen before, under a stream of changes");
        let address = self.operator.address()?;
        let stream = Stream::start(&self.stage.api, PARENTS, &self.names, address);
        let compiled_ms = self.replace_bytes(new, "new").await?;
        let cached_ms = self.replace_bytes(new, "known").await?;
        say::step("A plugin that cannot be compiled");
        let bombed = bomb::measure(&self.stage, &self.operator).await?;
        say::step("Revisions that panic");
        for attempt in 0..self.size.rollbacks {
            self.rollback(attempt).await?;
        }
        say::step(&format!("{} swaps from one setting to another", self.size.swaps));
        let swaps = self.settings().await?;
        say::step("Looking for changes that were lost");
        let (streamed, presence) = stream.stop().await?;
        let seconds = streamed.took.as_secs_f64();
        say::fact(&format!("{} changes in {seconds:.0} s", streamed.count()));
        let arrived = || async { Ok((self.sight.lost(&streamed.wanted) == 0).then_some(())) };
        let late = wait_for("all changes to arrive", ARRIVAL, arrived).await;
        let events_lost = if late.is_ok() { 0 } else { self.sight.lost(&streamed.wanted) };
        self.operator.check()?;
        Ok(Measured {
            events_lost,
            held,
            compiled_ms,
            cached_ms,
            presence,
            changes: streamed.count(),
            delays: streamed.delays(&self.sight),
            bomb: bombed.figures(&streamed, &self.sight),
            swaps,
            ..Measured::default()
        })
    }

    /// Parents, half of them with two replicas.
    async fn begin(&mut self, first: &Version) -> anyhow::Result<()> {
        say::step(&format!("Creating {} parents", self.size.parents));
        self.sight.begin(&first.digest);
        let api = &self.stage.api;
        self.plugin
            .until("the first revision", PATIENCE, 1, |plugin| acts(plugin).is_some())
            .await?;
        api.create(PARENTS, CANARY).await?;
        api.create_all(PARENTS, &self.names).await?;
        let double = self.names.iter().enumerate();
        let double = double.filter(|(parent, _)| stream::replicas(*parent, 0) == 2);
        let double: Vec<String> = double.map(|(_, name)| name.clone()).collect();
        api.set_all(PARENTS, &double, 2).await?;
        self.everywhere().await?;
        self.quiet().await
    }

    /// Waits until the bytes that are to act have run every parent, and could.
    async fn everywhere(&self) -> anyhow::Result<()> {
        let count = self.names.len() + 1;
        let all = || async { Ok(self.sight.all(count).then_some(())) };
        wait_for("every parent to be run by the bytes that are to act", PATIENCE, all).await
    }

    /// Waits until the host writes nothing any more.
    async fn quiet(&mut self) -> anyhow::Result<()> {
        let mut before = self.stage.requests().await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            tokio::time::sleep(QUIET).await;
            self.operator.check()?;
            let now = self.stage.requests().await?;
            if writes(&now.0) == writes(&before.0) && now.1 == before.1 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the host still writes after {PATIENCE:?}");
            before = now;
        }
    }

    /// New bytes wait for consent and are withdrawn, while nothing else changes.
    async fn held(&mut self, first: &Version, candidate: &Version) -> anyhow::Result<Held> {
        let generation = self.stage.set(json!({"rollout": {"policy": "Manual"}})).await?;
        let settled = |plugin: &Value| acts(plugin).is_some();
        self.plugin.until("the policy to be seen", PATIENCE, generation, settled).await?;
        self.quiet().await?;
        let before = self.stage.requests().await?;
        self.stage.replace(candidate).await?;
        let waits = |plugin: &Value| held(plugin) == Some("ApprovalNeeded");
        self.plugin.until("a held candidate", PATIENCE, generation, waits).await?;
        let plan = self.plan().await?;
        tokio::time::sleep(HELD_FOR).await;
        let after = self.stage.requests().await?;
        let held = Held {
            writes: writes(&difference(&after.0, &before.0)),
            status_writes: after.1 - before.1,
            plan_ms: plan,
        };
        say::fact(&format!(
            "the plan took {plan} ms; {} writes, {} of the Plugin's status besides",
            held.writes, held.status_writes
        ));
        self.stage.replace(first).await?;
        self.plugin.until("the candidate to be withdrawn", PATIENCE, generation, settled).await?;
        let generation = self.stage.set(json!({"rollout": {"policy": "Always"}})).await?;
        self.plugin.until("the policy to be seen", PATIENCE, generation, settled).await?;
        Ok(held)
    }

    /// What the plan of all parents took, as the host says.
    async fn plan(&self) -> anyhow::Result<f64> {
        let path = format!("/debug/plan?plugin={PLUGIN}");
        let answer = inside::get(self.operator.address()?, &path).await?;
        let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
        let plan: Value = serde_json::from_str(body).with_context(|| format!("no plan: {body}"))?;
        let parents = plan.pointer("/plan/parents").and_then(Value::as_u64);
        let all = u64::from(self.size.parents) + 1;
        ensure!(parents == Some(all), "a plan of {parents:?} parents, not of {all}");
        plan.get("tookMs").and_then(Value::as_f64).context("a plan without a time")
    }

    /// Swaps to each of these bytes, one after the other; gives the milliseconds from the acknowledged replacement to the
    /// first run of a parent.
    async fn replace_bytes(
        &mut self,
        versions: &[Version],
        which: &str,
    ) -> anyhow::Result<Vec<f64>> {
        let mut first_runs = Vec::new();
        for version in versions {
            self.sight.begin(&version.digest);
            let replaced = self.stage.replace(version).await?;
            self.everywhere().await?;
            self.operator.check()?;
            let everywhere = replaced.elapsed().as_secs_f64();
            let first = self.sight.first().context("no parent shows the new bytes")?;
            let first_run = first.saturating_duration_since(replaced).as_secs_f64() * 1_000.0;
            say::fact(&format!(
                "{which} bytes {}: first run after {first_run:.0} ms, all parents after {everywhere:.1} s",
                version.digest
            ));
            first_runs.push(first_run);
        }
        Ok(first_runs)
    }

    /// A revision of the same bytes that panics, taken back; what acted before acts again. The log tells how soon.
    async fn rollback(&mut self, attempt: u32) -> anyhow::Result<()> {
        let config = json!({"fault": "panic", "attempt": attempt.to_string()});
        let before = self.stage.api.get(&format!("{PLUGINS}/{PLUGIN}")).await?;
        let before = acts(&before).context("nothing acts")?.to_owned();
        let generation = self.stage.set(json!({ "config": config })).await?;
        let back =
            |plugin: &Value| held(plugin) == Some("Quarantined") && active(plugin) == Some(&before);
        self.plugin.until("a rollback", PATIENCE, generation, back).await?;
        // It acts again: for a parent that changes now, and for all that have failed.
        let (replicas, sent) = (attempt + 2, Instant::now());
        self.stage.api.set_replicas(PARENTS, CANARY, replicas).await?;
        let arrived = || async { Ok(self.sight.arrived(CANARY, replicas, sent)) };
        wait_for("a change after the rollback to arrive", PATIENCE, arrived).await?;
        self.everywhere().await?;
        say::fact(&format!("revision {before} acts again"));
        let generation = self.stage.set(json!({ "config": null })).await?;
        let settled = |plugin: &Value| acts(plugin) == Some(&before);
        self.plugin.until("the setting before", PATIENCE, generation, settled).await?;
        Ok(())
    }

    /// One setting replaces the other, each as soon as the one before acts.
    async fn settings(&mut self) -> anyhow::Result<Swaps> {
        let count = self.size.swaps;
        let early = (count / 5).clamp(1, 50);
        let mut swaps = Swaps { count, ..Swaps::default() };
        let started = Instant::now();
        let mut before = String::new();
        for number in 1..=count {
            let setting = if number % 2 == 0 { "even" } else { "odd" };
            let generation = self.stage.set(json!({"config": {"swap": setting}})).await?;
            let swapped = |plugin: &Value| acts(plugin).is_some_and(|acts| acts != before);
            let what = format!("swap {number}");
            let plugin = self.plugin.until(&what, PATIENCE, generation, swapped).await?;
            acts(&plugin).unwrap_or_default().clone_into(&mut before);
            if number == early || number == count {
                let bytes = self.operator.usage()?.rss_bytes;
                if number == early {
                    swaps.early_bytes = bytes;
                }
                swaps.late_bytes = bytes;
                say::fact(&format!("after {number} swaps: {} KiB", bytes >> 10));
            }
        }
        swaps.took_s = started.elapsed().as_secs_f64();
        Ok(swaps)
    }
}
