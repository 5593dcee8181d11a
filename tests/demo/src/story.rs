//! The story, step by step. Every step waits for a condition.

#![allow(clippy::indexing_slicing, reason = "a JSON value answers null for what is not there")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use devcluster::{DevCluster, Signal, wait_for};
use serde_json::Value;

use crate::build::Built;
use crate::figures::Figures;
use crate::{say, server};

/// Generous: a slow machine is not a failure.
const DEADLINE: Duration = Duration::from_mins(2);

/// Keys written before the master is killed.
const KEYS: u32 = 1_000;

const HOST: &str = "operator-host";
const NAMESPACE: &str = "default";

/// Tells it.
pub(crate) async fn tell(cluster: &DevCluster, built: &Built) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    deploy(cluster, built).await?;
    create(cluster, built, &mut figures).await?;
    fail_over(cluster, &mut figures).await?;
    swap(cluster, built, &mut figures).await?;
    let pod = host_pod(cluster).await?;
    figures.host_restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        .as_u64()
        .context("no restart count")?;
    figures.host_rss_bytes =
        resident(cluster, pod["metadata"]["name"].as_str().unwrap_or_default())?;
    delete(cluster).await?;
    Ok(figures)
}

async fn deploy(cluster: &DevCluster, built: &Built) -> anyhow::Result<()> {
    say::step("kubectl apply --server-side -k deploy/");
    let deploy = built.root.join("deploy");
    let said =
        cluster.kubectl(&["apply", "--server-side", "-k", &deploy.to_string_lossy()]).await?;
    say::fact(&said);
    wait_for("the host to be available", DEADLINE, || async {
        let deployment = json(cluster, &["-n", HOST, "get", "deployment", HOST]).await?;
        Ok((deployment["status"]["availableReplicas"].as_u64() == Some(1)).then_some(()))
    })
    .await?;
    let loaded = wait_for("the plugin to be loaded", DEADLINE, || async {
        let events = json(cluster, &["-n", HOST, "get", "events.v1.events.k8s.io"]).await?;
        let items = events["items"].as_array().cloned().unwrap_or_default();
        let loaded = items.into_iter().find(|event| event["reason"] == "PluginLoaded");
        Ok(loaded.and_then(|event| event["note"].as_str().map(str::to_owned)))
    })
    .await?;
    say::fact(&format!("the host is available; event on its ConfigMap: {loaded}"));
    Ok(())
}

async fn create(cluster: &DevCluster, built: &Built, figures: &mut Figures) -> anyhow::Result<()> {
    say::step("kubectl apply -f deploy/samples/rediscluster.yaml");
    let started = Instant::now();
    let sample = built.root.join("deploy/samples/rediscluster.yaml");
    cluster.kubectl(&["apply", "-f", &sample.to_string_lossy()]).await?;
    let ready = wait_for("the RedisCluster to be Ready", DEADLINE, || async {
        let parent = parent(cluster).await?;
        Ok((condition(&parent, "Ready", "status") == Some("True")).then_some(parent))
    })
    .await?;
    figures.ready_seconds = started.elapsed().as_secs_f64();
    let message = condition(&ready, "Reconciled", "message").unwrap_or_default();
    figures.digest_before = digest(message)?;
    say::fact(&format!("Ready after {:.1} s, {message}", figures.ready_seconds));
    show(cluster).await
}

async fn fail_over(cluster: &DevCluster, figures: &mut Figures) -> anyhow::Result<()> {
    let before = parent(cluster).await?;
    let master = before["status"]["master"].as_str().context("no master in the status")?.to_owned();
    let pods = addresses(cluster).await?;
    let address =
        &pods.iter().find(|(name, _)| *name == master).context("the master has no address")?.1;
    say::step(&format!("Writing {KEYS} keys to the master {master}, then killing it (SIGKILL)"));
    server::fill(address, KEYS)?;
    let copies = server::wait_for_replicas(address, 2)?;
    figures.keys_before = server::keys(address)?;
    say::fact(&format!("{} keys, on {copies} replicas", figures.keys_before));
    let started = Instant::now();
    cluster.kill_pod(NAMESPACE, &master, Signal::KILL)?;
    let (name, address) = wait_for("a new master that takes writes", DEADLINE, || async {
        let pods = addresses(cluster).await?;
        Ok(pods.into_iter().find(|(name, address)| *name != master && server::is_writable(address)))
    })
    .await?;
    figures.failover_seconds = started.elapsed().as_secs_f64();
    figures.keys_after = server::keys(&address)?;
    say::fact(&format!(
        "{name} takes writes after {:.2} s and has {} keys",
        figures.failover_seconds, figures.keys_after
    ));
    if figures.keys_after != figures.keys_before {
        bail!("{} keys were written, {} are left", figures.keys_before, figures.keys_after);
    }
    wait_for("the RedisCluster to be Ready again", DEADLINE, || async {
        let parent = parent(cluster).await?;
        let ready = condition(&parent, "Ready", "status") == Some("True");
        Ok((ready && parent["status"]["master"] == name.as_str()).then_some(()))
    })
    .await?;
    say::fact("the killed server is back, as a replica of the new master");
    show(cluster).await
}

async fn swap(cluster: &DevCluster, built: &Built, figures: &mut Figures) -> anyhow::Result<()> {
    say::step("Replacing the plugin's ConfigMap with the changed build");
    let original = std::fs::read(built.plugin()).context("cannot read the plugin")?;
    std::fs::copy(&built.changed_plugin, built.plugin())
        .context("cannot put the changed plugin in place")?;
    let started = Instant::now();
    let plugin = built.root.join("deploy/plugins/redis");
    let applied =
        cluster.kubectl(&["apply", "--server-side", "-k", &plugin.to_string_lossy()]).await;
    std::fs::write(built.plugin(), original).context("cannot put the original plugin back")?;
    applied?;
    let message = wait_for("the RedisCluster to name the new digest", DEADLINE, || async {
        let parent = parent(cluster).await?;
        let message = condition(&parent, "Reconciled", "message").unwrap_or_default();
        let swapped = digest(message).is_ok_and(|digest| digest != figures.digest_before);
        Ok(swapped.then(|| message.to_owned()))
    })
    .await?;
    figures.swap_seconds = started.elapsed().as_secs_f64();
    figures.digest_after = digest(&message)?;
    say::fact(&format!(
        "reconciled {message} after {:.2} s, without a restart",
        figures.swap_seconds
    ));
    Ok(())
}

async fn delete(cluster: &DevCluster) -> anyhow::Result<()> {
    say::step("kubectl delete rediscluster sample");
    cluster.kubectl(&["delete", "rediscluster", "sample", "--wait=false"]).await?;
    wait_for("everything it owned to be gone", DEADLINE, || async {
        let kinds = "statefulsets,pods,services,configmaps,poddisruptionbudgets,redisclusters";
        let left = cluster
            .kubectl(&["get", kinds, "-l", "app.kubernetes.io/instance=sample", "-o", "name"])
            .await?;
        Ok(left.trim().is_empty().then_some(()))
    })
    .await?;
    let claims = cluster.kubectl(&["get", "persistentvolumeclaims", "-o", "name"]).await?;
    say::fact(&format!(
        "gone, by owner references; the data stays, as the retention policy says:\n{claims}"
    ));
    Ok(())
}

async fn show(cluster: &DevCluster) -> anyhow::Result<()> {
    say::fact(&cluster.kubectl(&["get", "redisclusters"]).await?);
    let label = "redis.operator-host.dev/role";
    say::fact(&cluster.kubectl(&["get", "pods", "-L", label, "-o", "wide"]).await?);
    Ok(())
}

/// What to read when a step has failed.
pub(crate) async fn explain_failure(cluster: &DevCluster) {
    say::step("That did not work. The RedisClusters, and the end of the host's log:");
    if let Ok(text) =
        cluster.kubectl(&["get", "redisclusters,statefulsets,pods", "-o", "wide"]).await
    {
        say::fact(&text);
    }
    if let Ok(text) = cluster.kubectl(&["get", "redisclusters", "-o", "yaml"]).await {
        say::fact(&text);
    }
    let Ok(pod) = host_pod(cluster).await else { return };
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    if let Ok(log) = cluster.logs(HOST, name, HOST) {
        let lines: Vec<&str> = log.lines().collect();
        say::fact(&lines.get(lines.len().saturating_sub(60)..).unwrap_or_default().join("\n"));
    }
}

async fn json(cluster: &DevCluster, arguments: &[&str]) -> anyhow::Result<Value> {
    let mut all = arguments.to_vec();
    all.extend(["-o", "json"]);
    serde_json::from_str(&cluster.kubectl(&all).await?).context("kubectl did not print JSON")
}

async fn parent(cluster: &DevCluster) -> anyhow::Result<Value> {
    json(cluster, &["get", "rediscluster", "sample"]).await
}

/// The pod of the host that acts: the Lease names it.
async fn host_pod(cluster: &DevCluster) -> anyhow::Result<Value> {
    let lease = json(cluster, &["-n", HOST, "get", "lease", HOST]).await?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let (pod, _) = holder.rsplit_once('_').context("no host leads")?;
    json(cluster, &["-n", HOST, "get", "pod", pod]).await
}

/// Name and address of every Redis pod.
async fn addresses(cluster: &DevCluster) -> anyhow::Result<Vec<(String, String)>> {
    let pods = json(cluster, &["get", "pods", "-l", "app.kubernetes.io/instance=sample"]).await?;
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(pods
        .iter()
        .filter_map(|pod| Some((text(&pod["metadata"]["name"])?, text(&pod["status"]["podIP"])?)))
        .collect())
}

fn condition<'a>(parent: &'a Value, kind: &str, field: &str) -> Option<&'a str> {
    let conditions = parent["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?[field].as_str()
}

/// The digest in `by redis 0.1.0 (sha256:0123456789ab)`.
fn digest(message: &str) -> anyhow::Result<String> {
    let (_, rest) =
        message.split_once("(sha256:").with_context(|| format!("no digest in {message:?}"))?;
    Ok(format!("sha256:{}", rest.trim_end_matches(')')))
}

fn resident(cluster: &DevCluster, pod: &str) -> anyhow::Result<u64> {
    let pid = cluster.container_pid(HOST, pod, HOST).context("the host has no process")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 =
        line.trim().trim_end_matches("kB").trim().parse().context("VmRSS is no number")?;
    Ok(kib * 1024)
}
