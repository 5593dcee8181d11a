//! What the tests of the whole share: a running cluster with the host deployed from `deploy/`, as a user would.

#![allow(clippy::indexing_slicing, reason = "a JSON value answers null for what is not there")]

pub mod api;
pub mod host_process;
pub mod registry;
pub mod rig;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use devcluster::{DevCluster, Options, wait_for};
use serde_json::Value;

/// Generous: the machine may be compiling something else.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// The host's namespace, and the name of its Deployment and container.
pub const HOST: &str = "operator-host";

/// The repository.
pub fn root() -> anyhow::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .context("cannot find the repository")
}

/// Set by `cargo verify` to where it has built the binaries already: another cargo invocation would select other
/// features and build half the tree again.
const BINARIES: &str = "OPERATOR_HOST_BINARIES";

/// A binary of the workspace, built if need be.
fn binary(package: &str) -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os(BINARIES) {
        return Ok(PathBuf::from(folder).join(package));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(["build", "--locked", "--package", package]))?;
    Ok(target()?.join("debug").join(package))
}

fn target() -> anyhow::Result<PathBuf> {
    Ok(std::env::var_os("CARGO_TARGET_DIR").map_or(root()?.join("target"), PathBuf::from))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output =
        command.current_dir(root()?).output().with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The host's binary.
pub fn host_binary() -> anyhow::Result<PathBuf> {
    binary("operator-host")
}

/// Builds one of `plugins/` and gives its component.
pub fn plugin(name: &str, build_id: Option<&str>) -> anyhow::Result<PathBuf> {
    plugin_at(&format!("plugins/{name}"), build_id)
}

/// Builds the plugin in a folder of the repository and gives its component.
pub fn plugin_at(source: &str, build_id: Option<&str>) -> anyhow::Result<PathBuf> {
    let folder = target()?.join("it");
    std::fs::create_dir_all(&folder)?;
    let out =
        folder.join(format!("{}{}.wasm", source.replace('/', "-"), build_id.unwrap_or_default()));
    let mut command = Command::new(binary("operator-host-kit")?);
    command.args(["build", source, "--out"]).arg(&out);
    if let Some(build_id) = build_id {
        command.args(["--build-id", build_id]);
    }
    run(&mut command)?;
    Ok(out)
}

/// Starts a cluster and deploys the host with the RedisCluster plugin from `deploy/`.
pub async fn deployed() -> anyhow::Result<DevCluster> {
    let (host, wasm) = tokio::task::spawn_blocking(|| -> anyhow::Result<_> {
        Ok((host_binary()?, plugin("redis", None)?))
    })
    .await??;
    std::fs::copy(wasm, root()?.join("deploy/plugins/redis/redis.wasm"))
        .context("cannot put the plugin in place")?;
    let options = Options { operator_host_binary: Some(host), quiet: true, ..Options::default() };
    let cluster = DevCluster::start(options).await?;
    let deploy = root()?.join("deploy");
    cluster.kubectl(&["apply", "--server-side", "-k", &deploy.to_string_lossy()]).await?;
    event(&cluster, HOST, "PluginLoaded", "redis").await?;
    Ok(cluster)
}

/// `kubectl … -o json`.
pub async fn json(cluster: &DevCluster, arguments: &[&str]) -> anyhow::Result<Value> {
    let mut all = arguments.to_vec();
    all.extend(["-o", "json"]);
    serde_json::from_str(&cluster.kubectl(&all).await?).context("kubectl did not print JSON")
}

/// Waits for an event with this reason and this text in its note; gives the note.
pub async fn event(
    cluster: &DevCluster,
    namespace: &str,
    reason: &str,
    text: &str,
) -> anyhow::Result<String> {
    wait_for(&format!("an event {reason} about {text}"), PATIENCE, || async {
        let events = json(cluster, &["-n", namespace, "get", "events.v1.events.k8s.io"]).await?;
        let notes = events["items"].as_array().into_iter().flatten();
        let mut notes = notes
            .filter(|event| event["reason"] == reason)
            .filter_map(|event| event["note"].as_str());
        Ok(notes.find(|note| note.contains(text)).map(str::to_owned))
    })
    .await
}

/// Waits until an object satisfies a condition; gives the object.
pub async fn object(
    cluster: &DevCluster,
    arguments: &[&str],
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let last = std::sync::Mutex::new(Value::Null);
    let found = wait_for(what, PATIENCE, || async {
        let object = json(cluster, arguments).await?;
        if let Ok(mut last) = last.lock() {
            last.clone_from(&object);
        }
        Ok(holds(&object).then_some(object))
    })
    .await;
    found.with_context(|| {
        let last = last.lock().map(|last| last["status"].to_string()).unwrap_or_default();
        format!("kubectl {}: last status {last}", arguments.join(" "))
    })
}

/// One field of one condition.
pub fn condition<'a>(object: &'a Value, kind: &str, field: &str) -> &'a str {
    let conditions =
        object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition[field].as_str()).unwrap_or_default()
}

/// Waits until a RedisCluster is Ready; gives it.
pub async fn ready(cluster: &DevCluster, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let arguments = ["-n", namespace, "get", "rediscluster", name];
    object(cluster, &arguments, &format!("RedisCluster {name} to be Ready"), |parent| {
        condition(parent, "Ready", "status") == "True"
            && parent["status"]["observedGeneration"] == parent["metadata"]["generation"]
    })
    .await
}

/// Creates a namespace and applies a manifest in it.
pub async fn apply(cluster: &DevCluster, namespace: &str, manifest: &str) -> anyhow::Result<()> {
    // Applied, not created: a test may apply more than once.
    let object = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
    cluster.kubectl_stdin(&["apply", "-f", "-"], &object).await?;
    cluster.kubectl_stdin(&["-n", namespace, "apply", "-f", "-"], manifest).await?;
    Ok(())
}

/// A RedisCluster manifest; `spec` is a YAML flow mapping.
pub fn redis_cluster(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: redis.operator-host.dev/v1alpha1\nkind: RedisCluster\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

/// The address of a pod.
pub async fn pod_ip(cluster: &DevCluster, namespace: &str, pod: &str) -> anyhow::Result<String> {
    let pod = json(cluster, &["-n", namespace, "get", "pod", pod]).await?;
    pod["status"]["podIP"].as_str().map(str::to_owned).context("the pod has no address")
}

/// The log of the running host.
pub async fn host_log(cluster: &DevCluster) -> anyhow::Result<String> {
    cluster.logs(HOST, &host_pod(cluster).await?, HOST)
}

/// Who holds the host's Lease: the name of a pod, and what makes its process unique. Empty: nobody.
pub async fn lease_holder(cluster: &DevCluster) -> anyhow::Result<String> {
    let lease = json(cluster, &["-n", HOST, "get", "lease", HOST]).await?;
    Ok(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
}

/// The name of the pod of the host that acts.
pub async fn host_pod(cluster: &DevCluster) -> anyhow::Result<String> {
    let holder = lease_holder(cluster).await?;
    holder.rsplit_once('_').map(|(pod, _)| pod.to_owned()).context("no host leads")
}

/// How often the host's container was restarted.
pub async fn host_restarts(cluster: &DevCluster) -> anyhow::Result<u64> {
    let pod = json(cluster, &["-n", HOST, "get", "pod", &host_pod(cluster).await?]).await?;
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().context("no restart count")
}
