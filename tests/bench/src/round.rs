//! One turn of one candidate, from an empty namespace to an empty namespace.
//!
//! **Invariant:** a phase is measured only after the one before has settled, and only one candidate runs at a time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use devcluster::{DevCluster, wait_for};

use crate::account::difference;
use crate::api::Api;
use crate::build::Built;
use crate::figures::{Cost, Delays, Full, Turn};
use crate::operator::{Candidate, Operator};
use crate::say;
use crate::watch::Watch;

/// Generous: a slow machine is not a failure.
const PATIENCE: Duration = Duration::from_mins(5);

/// The namespace of the host's plugins.
const HOST: &str = "operator-host";

/// A parent that shows that a candidate is at work, before anything is measured.
const CANARY: &str = "canary";

/// Both candidates look at each parent again after this, so each does so once in this time.
const RESYNC: Duration = Duration::from_mins(1);

/// Single changes come at this interval: 20 a second.
const SINGLE_EVERY: Duration = Duration::from_millis(50);

/// One in this many parents is changed alone: 200 of 1,000, for which a p99 is the second worst.
const SINGLE_SHARE: usize = 5;

/// Which parents are changed alone is the same in every run.
const SEED: u64 = 0x5eed;

/// The cluster with everything the candidates need.
pub(crate) struct Stage<'a> {
    cluster: &'a DevCluster,
    built: &'a Built,
    api: Api,
}

impl<'a> Stage<'a> {
    /// Installs the parent kind, the accounts with their rights, the counting, and the plugin.
    pub(crate) async fn prepare(cluster: &'a DevCluster, built: &'a Built) -> anyhow::Result<Self> {
        let stage = Self { cluster, built, api: Api::new(cluster.client()?) };
        // The host gets the rights that its deployment gives it.
        for manifest in ["namespace", "serviceaccount", "rbac"] {
            let file = built.root.join(format!("deploy/base/{manifest}.yaml"));
            cluster.kubectl(&["-n", HOST, "apply", "-f", &file.to_string_lossy()]).await?;
        }
        let file = built.root.join("tests/bench/manifests/bench.yaml");
        cluster.kubectl(&["apply", "-f", &file.to_string_lossy()]).await?;
        let established = ["wait", "--for=condition=Established", "crd", "--all"];
        cluster.kubectl(&established).await?;
        for candidate in [Candidate::Host, Candidate::Peer] {
            candidate.account().count(cluster).await?;
            let kubeconfig = candidate.account().kubeconfig(cluster).await?;
            std::fs::write(stage.kubeconfig(candidate), kubeconfig)?;
        }
        let settings = built.root.join("tests/bench/plugin/plugin.yaml");
        stage.plugin("tutorial", &built.plugin, settings).await?;
        Ok(stage)
    }

    fn kubeconfig(&self, candidate: Candidate) -> PathBuf {
        self.cluster.state_dir().join(format!("{}.kubeconfig", candidate.account().name))
    }

    async fn plugin(&self, name: &str, wasm: &Path, settings: PathBuf) -> anyhow::Result<()> {
        let wasm = format!("--from-file=plugin.wasm={}", wasm.display());
        let settings = format!("--from-file=plugin.yaml={}", settings.display());
        self.cluster.kubectl(&["-n", HOST, "create", "configmap", name, &wasm, &settings]).await?;
        let label = format!("operator-host.dev/plugin={name}");
        self.cluster.kubectl(&["-n", HOST, "label", "configmap", name, &label]).await?;
        Ok(())
    }

    /// One turn.
    pub(crate) async fn turn(
        &self,
        candidate: Candidate,
        round: u32,
        parents: u32,
    ) -> anyhow::Result<Turn> {
        let namespace = format!("bench-{}-{round}", candidate.slug());
        self.cluster.kubectl(&["create", "namespace", &namespace]).await?;
        let failing = candidate == Candidate::HostBesideFailing;
        if failing {
            let settings = self.built.root.join("plugins/hello/plugin.yaml");
            self.plugin("hello", &self.built.failing_plugin, settings).await?;
        }
        let mut running = Running {
            stage: self,
            candidate,
            operator: self.start(candidate, &namespace)?,
            names: (0..parents).map(|number| format!("tutorial-{number:05}")).collect(),
            namespace,
        };
        let measured = running.measure(round, !failing).await;
        let measured =
            measured.with_context(|| format!("its log ends: {}", running.operator.last_words()));
        let Running { operator, namespace, .. } = running;
        let stopped = operator.stop().await;
        let turn = measured?;
        stopped?;
        if failing {
            self.cluster.kubectl(&["-n", HOST, "delete", "configmap", "hello"]).await?;
        }
        say::fact("cleaning up");
        self.cluster.kubectl(&["delete", "namespace", &namespace, "--timeout=5m"]).await?;
        Ok(turn)
    }

    fn start(&self, candidate: Candidate, namespace: &str) -> anyhow::Result<Operator> {
        let log = self.cluster.state_dir().join(format!("{namespace}.log"));
        Operator::start(candidate, self.built, &self.kubeconfig(candidate), log)
    }
}

/// A turn in progress.
struct Running<'a> {
    stage: &'a Stage<'a>,
    candidate: Candidate,
    operator: Operator,
    namespace: String,
    names: Vec<String>,
}

impl Running<'_> {
    async fn measure(&mut self, round: u32, full: bool) -> anyhow::Result<Turn> {
        self.wait_for_canary().await?;
        let api = self.stage.api.clone();
        let mut watch = Watch::start(&api, &self.namespace).await?;
        let mut turn = self.create(&mut watch).await?;
        say::fact(&format!(
            "{} created in {:.2} s, {:.2} s CPU, {} requests, {} MiB at most",
            self.names.len(),
            turn.create_s,
            turn.create.cpu_s,
            turn.create.total(),
            turn.rss_peak_bytes >> 20,
        ));
        if let Some(inside) = turn.inside {
            say::fact(&inside.to_string());
        }
        if !full {
            return Ok(turn);
        }
        let (single, single_cost) = self.single_changes(&mut watch, round).await?;
        say::fact(&format!(
            "single changes: p50 {:.1} ms, p99 {:.1} ms",
            single.p50_ms, single.p99_ms
        ));
        let (burst, burst_s, burst_cost) = self.burst(&mut watch).await?;
        say::fact(&format!(
            "burst: {burst_s:.2} s, p99 {:.1} ms, {:.2} s CPU",
            burst.p99_ms, burst_cost.cpu_s
        ));
        let resync = self.resync().await?;
        say::fact(&format!("a minute: {:.2} s CPU, {} writes", resync.cpu_s, resync.writes()));
        let (restart, restart_rss_peak_bytes) = self.restart().await?;
        say::fact(&format!("restart: {:.2} s CPU, {} writes", restart.cpu_s, restart.writes()));
        turn.full = Some(Full {
            single,
            single_cost,
            burst,
            burst_s,
            burst_cost,
            resync,
            restart,
            restart_rss_peak_bytes,
        });
        Ok(turn)
    }

    async fn wait_for_canary(&mut self) -> anyhow::Result<()> {
        let api = &self.stage.api;
        api.create(&self.namespace, CANARY).await?;
        let namespace = &self.namespace;
        wait_for("the canary's status", PATIENCE, || async move {
            Ok(api.parent(namespace, CANARY).await?.status.phase)
        })
        .await?;
        self.operator.rest().await
    }

    async fn sample(&self) -> anyhow::Result<Cost> {
        let requests = self.candidate.account().requests(&self.stage.api).await?;
        Ok(Cost { cpu_s: self.operator.usage()?.cpu_s, requests })
    }

    async fn since(&mut self, before: &Cost) -> anyhow::Result<Cost> {
        self.operator.check()?;
        let now = self.sample().await?;
        let requests = difference(&now.requests, &before.requests);
        Ok(Cost { cpu_s: now.cpu_s - before.cpu_s, requests })
    }

    async fn create(&mut self, watch: &mut Watch) -> anyhow::Result<Turn> {
        let api = &self.stage.api;
        let (before, inside_before) = (self.sample().await?, self.operator.inside().await?);
        let started = Instant::now();
        let (created, completed) = tokio::join!(
            api.create_all(&self.namespace, &self.names),
            // And the canary.
            watch.complete(self.names.len() + 1),
        );
        created?;
        let create_s = (completed? - started).as_secs_f64();
        watch.settle().await?;
        let create = self.since(&before).await?;
        let rss_peak_bytes = self.operator.usage()?.rss_peak_bytes;
        let inside = self.operator.inside().await?.zip(inside_before);
        let inside = inside.map(|(after, before)| after.since(&before));
        Ok(Turn { create_s, create, rss_peak_bytes, inside, full: None })
    }

    /// Changes some parents one by one.
    async fn single_changes(
        &mut self,
        watch: &mut Watch,
        round: u32,
    ) -> anyhow::Result<(Delays, Cost)> {
        let chosen = chosen(&self.names, SEED + u64::from(round));
        let before = self.sample().await?;
        let changing = async {
            let mut ticks = tokio::time::interval(SINGLE_EVERY);
            let mut acknowledged = Vec::new();
            for name in &chosen {
                ticks.tick().await;
                let at = self.stage.api.set_replicas(&self.namespace, name, 2).await?;
                acknowledged.push((name.clone(), at));
            }
            Ok::<_, anyhow::Error>(acknowledged)
        };
        let (acknowledged, seen) = tokio::join!(changing, watch.replicas(&chosen, 2));
        let delays = delays(&acknowledged?, &seen?)?;
        watch.settle().await?;
        Ok((delays, self.since(&before).await?))
    }

    /// Changes all parents at once.
    async fn burst(&mut self, watch: &mut Watch) -> anyhow::Result<(Delays, f64, Cost)> {
        let before = self.sample().await?;
        let started = Instant::now();
        let (acknowledged, seen) = tokio::join!(
            self.stage.api.set_all(&self.namespace, &self.names, 3),
            watch.replicas(&self.names, 3),
        );
        let seen = seen?;
        let last = seen.values().max().copied().unwrap_or(started);
        let delays = delays(&acknowledged?, &seen)?;
        watch.settle().await?;
        Ok((delays, (last - started).as_secs_f64(), self.since(&before).await?))
    }

    /// A minute in which nothing happens.
    async fn resync(&mut self) -> anyhow::Result<Cost> {
        let before = self.sample().await?;
        tokio::time::sleep(RESYNC).await;
        self.since(&before).await
    }

    /// A new process that finds everything done.
    async fn restart(&mut self) -> anyhow::Result<(Cost, u64)> {
        let before = self.sample().await?;
        let again = self.stage.start(self.candidate, &format!("{}-again", self.namespace))?;
        std::mem::replace(&mut self.operator, again).stop().await?;
        self.operator.rest().await?;
        let Cost { requests, .. } = self.since(&before).await?;
        let usage = self.operator.usage()?;
        Ok((Cost { cpu_s: usage.cpu_s, requests }, usage.rss_peak_bytes))
    }
}

/// From acknowledgement to sight. A change seen before its acknowledgement was read counts as no delay.
fn delays(
    acknowledged: &[(String, Instant)],
    seen: &std::collections::BTreeMap<String, Instant>,
) -> anyhow::Result<Delays> {
    let delay = |(name, at): &(String, Instant)| {
        seen.get(name).map(|seen| seen.saturating_duration_since(*at).as_secs_f64())
    };
    Delays::of(acknowledged.iter().filter_map(delay).collect()).context("nothing was changed")
}

/// One in [`SINGLE_SHARE`] names, by a seeded shuffle (`SplitMix64`).
fn chosen(names: &[String], seed: u64) -> Vec<String> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut ranked: Vec<(u64, &String)> = names.iter().map(|name| (next(), name)).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(names.len() / SINGLE_SHARE).map(|(_, name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_chooses_the_same_parents() {
        let names: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let once = chosen(&names, 1);
        assert_eq!(once.len(), 10);
        assert_eq!(once, chosen(&names, 1));
        assert_ne!(once, chosen(&names, 2));
    }
}
