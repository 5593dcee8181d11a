//! The host, deployed from `deploy/` under its real RBAC, on a real control plane with real Redis servers.

#![cfg(test)]

use devcluster::{DevCluster, Signal, wait_for};
use it::{
    HOST, PATIENCE, apply, condition, deployed, event, host_log, host_restarts, json, object,
    plugin, pod_ip, ready, redis_cluster, root,
};
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};

/// Never dropped: the kernel ends the cluster with this process.
static CLUSTER: OnceCell<DevCluster> = OnceCell::const_new();

/// Tests that replace the plugin take turns.
static PLUGIN: Mutex<()> = Mutex::const_new(());

async fn cluster() -> &'static DevCluster {
    CLUSTER.get_or_init(|| async { deployed().await.unwrap() }).await
}

fn connect(address: &str) -> redis::Connection {
    let client = redis::Client::open(format!("redis://{address}:6379")).unwrap();
    client.get_connection_with_timeout(std::time::Duration::from_secs(2)).unwrap()
}

fn set(address: &str, key: &str, value: &str) -> bool {
    let client = redis::Client::open(format!("redis://{address}:6379")).unwrap();
    let Ok(mut connection) =
        client.get_connection_with_timeout(std::time::Duration::from_millis(500))
    else {
        return false;
    };
    redis::cmd("SET").arg(key).arg(value).query::<()>(&mut connection).is_ok()
}

fn get(address: &str, key: &str) -> Option<String> {
    redis::cmd("GET").arg(key).query(&mut connect(address)).unwrap()
}

fn master(parent: &Value) -> String {
    parent["status"]["master"].as_str().expect("a master in the status").to_owned()
}

#[tokio::test]
async fn a_replicated_cluster_becomes_ready_fails_over_with_its_data_and_is_deleted_whole() {
    let cluster = cluster().await;
    apply(cluster, "replicated", &redis_cluster("cart", "{replicas: 3, storage: {size: 1Gi}}"))
        .await
        .unwrap();
    let parent = ready(cluster, "replicated", "cart").await.unwrap();
    assert_eq!(parent["status"]["readyReplicas"], 3);
    assert_eq!(condition(&parent, "Reconciled", "status"), "True");
    let old = master(&parent);
    let labelled = ["-n", "replicated", "get", "pods", "-l", "redis.operator-host.dev/role=master"];
    let pods = json(cluster, &labelled).await.unwrap();
    assert_eq!(pods["items"].as_array().unwrap().len(), 1, "exactly one pod is labelled master");
    assert_eq!(pods["items"][0]["metadata"]["name"], old.as_str());

    let address = pod_ip(cluster, "replicated", &old).await.unwrap();
    assert!(set(&address, "kept", "through the failover"));
    let copies: u32 = redis::cmd("WAIT").arg(2).arg(5_000).query(&mut connect(&address)).unwrap();
    assert_eq!(copies, 2);
    cluster.kill_pod("replicated", &old, Signal::KILL).unwrap();
    let arguments = ["-n", "replicated", "get", "rediscluster", "cart"];
    let after = object(cluster, &arguments, "another master", |parent| {
        let master = parent["status"]["master"].as_str().unwrap_or_default();
        !master.is_empty() && master != old && condition(parent, "Ready", "status") == "True"
    })
    .await
    .unwrap();
    let address = pod_ip(cluster, "replicated", &master(&after)).await.unwrap();
    assert_eq!(get(&address, "kept").as_deref(), Some("through the failover"));
    assert!(set(&address, "more", "writes"));
    let pods = json(cluster, &labelled).await.unwrap();
    assert_eq!(
        pods["items"][0]["metadata"]["name"],
        master(&after).as_str(),
        "the label has moved"
    );

    cluster
        .kubectl(&["-n", "replicated", "delete", "rediscluster", "cart", "--wait=false"])
        .await
        .unwrap();
    wait_for("everything it owned to be gone", PATIENCE, || async {
        let kinds = "statefulsets,pods,services,poddisruptionbudgets,redisclusters";
        let left = cluster.kubectl(&["-n", "replicated", "get", kinds, "-o", "name"]).await?;
        Ok(left.trim().is_empty().then_some(()))
    })
    .await
    .unwrap();
    let claims = cluster.kubectl(&["-n", "replicated", "get", "pvc", "-o", "name"]).await.unwrap();
    assert_eq!(claims.lines().count(), 3, "the data stays by default: {claims}");
}

#[tokio::test]
async fn drift_is_repaired_and_a_deleted_child_comes_back() {
    let cluster = cluster().await;
    apply(cluster, "drift", &redis_cluster("leaky", "{replicas: 1}")).await.unwrap();
    ready(cluster, "drift", "leaky").await.unwrap();
    let service = ["-n", "drift", "get", "service", "leaky"];
    let before = json(cluster, &service).await.unwrap();
    let edit = r#"{"spec":{"selector":{"a-key":"more"}}}"#;
    cluster
        .kubectl(&["-n", "drift", "patch", "service", "leaky", "--type=merge", "-p", edit])
        .await
        .unwrap();
    object(cluster, &service, "the selector to be repaired", |service| {
        service["spec"]["selector"] == before["spec"]["selector"]
    })
    .await
    .unwrap();
    cluster.kubectl(&["-n", "drift", "delete", "service", "leaky"]).await.unwrap();
    object(cluster, &service, "the service to come back", |service| {
        service["metadata"]["uid"] != before["metadata"]["uid"]
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn scales_up_and_down_without_losing_the_master() {
    let cluster = cluster().await;
    apply(cluster, "scaling", &redis_cluster("grow", "{replicas: 2}")).await.unwrap();
    let parent = ready(cluster, "scaling", "grow").await.unwrap();
    let address = pod_ip(cluster, "scaling", &master(&parent)).await.unwrap();
    assert!(set(&address, "kept", "yes"));
    for replicas in [3, 1] {
        apply(cluster, "scaling", &redis_cluster("grow", &format!("{{replicas: {replicas}}}")))
            .await
            .unwrap();
        let parent = ready(cluster, "scaling", "grow").await.unwrap();
        assert_eq!(parent["status"]["readyReplicas"], replicas);
        let address = pod_ip(cluster, "scaling", &master(&parent)).await.unwrap();
        assert_eq!(get(&address, "kept").as_deref(), Some("yes"), "at {replicas} replicas");
    }
}

#[tokio::test]
async fn a_sharded_cluster_covers_every_slot() {
    let cluster = cluster().await;
    let spec = "{replicas: 6, clusterMode: true, replicasPerShard: 1}";
    apply(cluster, "sharded", &redis_cluster("shards", spec)).await.unwrap();
    ready(cluster, "sharded", "shards").await.unwrap();
    let pods = json(cluster, &["-n", "sharded", "get", "pods"]).await.unwrap();
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 6);
    for pod in pods {
        let address = pod["status"]["podIP"].as_str().unwrap();
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connect(address)).unwrap();
        for expected in [
            "cluster_state:ok",
            "cluster_slots_ok:16384",
            "cluster_known_nodes:6",
            "cluster_size:3",
        ] {
            assert!(info.contains(expected), "{expected} is missing on {address}: {info}");
        }
    }
}

#[tokio::test]
async fn a_cluster_with_a_password_works_and_the_password_shows_nowhere() {
    let cluster = cluster().await;
    let secrets = root().unwrap().join("deploy/plugins/redis/secrets");
    cluster.kubectl(&["apply", "--server-side", "-k", &secrets.to_string_lossy()]).await.unwrap();
    apply(cluster, "auth", "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: open-sesame}\n")
        .await
        .unwrap();
    let spec = "{replicas: 2, auth: {passwordSecretRef: {name: login, key: password}}}";
    apply(cluster, "auth", &redis_cluster("locked", spec)).await.unwrap();
    let parent = ready(cluster, "auth", "locked").await.unwrap();
    let address = pod_ip(cluster, "auth", &master(&parent)).await.unwrap();
    assert!(!set(&address, "key", "value"), "without the password nothing is written");
    let client = redis::Client::open(format!("redis://:open-sesame@{address}:6379")).unwrap();
    let mut connection = client.get_connection().unwrap();
    redis::cmd("SET").arg("key").arg("value").query::<()>(&mut connection).unwrap();
    let everything = cluster
        .kubectl(&[
            "-n",
            "auth",
            "get",
            "redisclusters,statefulsets,configmaps,pods,events",
            "-o",
            "yaml",
        ])
        .await
        .unwrap();
    assert!(!everything.contains("open-sesame"));
    assert!(!host_log(cluster).await.unwrap().contains("open-sesame"));
}

#[tokio::test]
async fn an_invalid_spec_is_refused_with_the_field_named() {
    let cluster = cluster().await;
    let long = "a".repeat(41);
    let cases = [
        (redis_cluster("bad", "{replicas: 0}"), "spec.replicas"),
        (redis_cluster("bad", "{replicas: 3, version: \"\"}"), "spec.version"),
        (redis_cluster("bad", "{replicas: 3, storage: {size: lots}}"), "spec.storage"),
        (redis_cluster("bad", "{replicas: 5, clusterMode: true, replicasPerShard: 1}"), "replicas"),
        (redis_cluster("bad", "{replicas: 3, replicaz: 3}"), "replicaz"),
        (redis_cluster("bad", "{}"), "replicas"),
        (redis_cluster(&long, "{replicas: 3}"), "40"),
    ];
    for (manifest, field) in cases {
        let error = apply(cluster, "invalid", &manifest).await.expect_err(&manifest);
        let error = format!("{error:#}");
        assert!(error.contains(field), "{field} is not named: {error}");
    }
}

#[tokio::test]
async fn a_bad_plugin_is_refused_and_the_good_one_keeps_running() {
    let _turn = PLUGIN.lock().await;
    let cluster = cluster().await;
    let good = std::fs::read(root().unwrap().join("deploy/plugins/redis/redis.wasm")).unwrap();
    let settings = root().unwrap().join("deploy/plugins/redis/plugin.yaml");
    let core_module = b"\0asm\x01\0\0\0".to_vec();
    let bad: [(&str, Vec<u8>, &str); 4] = [
        ("truncated", good[..good.len() / 2].to_vec(), ""),
        ("text", b"not a component".to_vec(), ""),
        ("module", core_module, "core module"),
        ("noise", vec![0xff; 900_000], ""),
    ];
    for (name, bytes, said) in bad {
        let file =
            std::env::temp_dir().join(format!("operator-host-it-{}-{name}", std::process::id()));
        std::fs::write(&file, bytes).unwrap();
        replace(cluster, &file.to_string_lossy(), &settings.to_string_lossy()).await;
        std::fs::remove_file(&file).unwrap();
        event(cluster, HOST, "PluginInvalid", said)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
    // Less was granted than the plugin asks for.
    let meagre = std::env::temp_dir().join(format!("operator-host-it-{}.yaml", std::process::id()));
    std::fs::write(&meagre, "grants: {}\n").unwrap();
    let wasm = root().unwrap().join("deploy/plugins/redis/redis.wasm");
    replace(cluster, &wasm.to_string_lossy(), &meagre.to_string_lossy()).await;
    let note = event(cluster, HOST, "PluginNotGranted", "grants.owns").await.unwrap();
    assert!(note.contains("what was active keeps running"), "{note}");
    // The good one still works.
    apply(cluster, "survivor", &redis_cluster("alive", "{replicas: 1}")).await.unwrap();
    ready(cluster, "survivor", "alive").await.unwrap();
    replace(cluster, &wasm.to_string_lossy(), &settings.to_string_lossy()).await;
    assert_eq!(host_restarts(cluster).await.unwrap(), 0);
}

#[tokio::test]
async fn a_new_build_takes_over_without_a_restart() {
    let _turn = PLUGIN.lock().await;
    let cluster = cluster().await;
    apply(cluster, "swap", &redis_cluster("swapped", "{replicas: 1}")).await.unwrap();
    let before = ready(cluster, "swap", "swapped").await.unwrap();
    let first = condition(&before, "Reconciled", "message").to_owned();
    let changed =
        tokio::task::spawn_blocking(|| plugin("redis", Some("it"))).await.unwrap().unwrap();
    let settings = root().unwrap().join("deploy/plugins/redis/plugin.yaml");
    replace(cluster, &changed.to_string_lossy(), &settings.to_string_lossy()).await;
    let arguments = ["-n", "swap", "get", "rediscluster", "swapped"];
    let after = object(cluster, &arguments, "the new digest in the status", |parent| {
        let message = condition(parent, "Reconciled", "message");
        !message.is_empty() && message != first
    })
    .await
    .unwrap();
    assert!(condition(&after, "Reconciled", "message").contains("+it"));
    assert_eq!(host_restarts(cluster).await.unwrap(), 0);
    let wasm = root().unwrap().join("deploy/plugins/redis/redis.wasm");
    replace(cluster, &wasm.to_string_lossy(), &settings.to_string_lossy()).await;
    object(cluster, &arguments, "the first digest again", |parent| {
        condition(parent, "Reconciled", "message") == first
    })
    .await
    .unwrap();
}

/// Replaces the plugin's ConfigMap.
async fn replace(cluster: &DevCluster, wasm: &str, settings: &str) {
    let (wasm, settings) =
        (format!("--from-file=plugin.wasm={wasm}"), format!("--from-file=plugin.yaml={settings}"));
    let create = [
        "-n",
        HOST,
        "create",
        "configmap",
        "redis-plugin",
        &wasm,
        &settings,
        "--dry-run=client",
        "-o",
        "json",
    ];
    let mut manifest: Value =
        serde_json::from_str(&cluster.kubectl(&create).await.unwrap()).unwrap();
    manifest["metadata"]["labels"] = serde_json::json!({"operator-host.dev/plugin": "redis"});
    cluster
        .kubectl_stdin(
            &["apply", "--server-side", "--force-conflicts", "-f", "-"],
            &manifest.to_string(),
        )
        .await
        .unwrap();
}
