//! Whole clusters: two at once, what dies and comes back, and that nothing is left behind.

#![cfg(test)]

#[path = "support/redis.rs"]
mod support;

use std::time::Duration;

use devcluster::{DevCluster, Options, wait_for};
use support::{PATIENCE, apply, ip, pods, processes_with, ready_pod, redis, redis_manifest, uid};

async fn start() -> DevCluster {
    DevCluster::start(Options::default()).await.unwrap()
}

#[tokio::test]
async fn two_clusters_at_once_and_nothing_left_of_either() {
    let (one, two) = tokio::join!(start(), start());
    assert_ne!(one.pod_cidr(), two.pod_cidr());
    let manifest = redis_manifest("both", 1);
    tokio::join!(apply(&one, &manifest), apply(&two, &manifest));
    let (first, second) = tokio::join!(
        ready_pod(&one, "both", "redis-0", |_| true),
        ready_pod(&two, "both", "redis-0", |_| true),
    );
    redis(&ip(&first), "SET name one").await.unwrap();
    redis(&ip(&second), "SET name two").await.unwrap();
    assert_eq!(redis(&ip(&first), "GET name").await.unwrap(), "$3 one");

    // One is shut down, the other only dropped.
    let marks = [one.state_dir().to_owned(), two.state_dir().to_owned()];
    let addresses = [ip(&first), ip(&second)];
    one.shutdown().await.unwrap();
    assert_eq!(redis(&ip(&second), "GET name").await.unwrap(), "$3 two");
    drop(two);
    for (mark, address) in marks.iter().zip(addresses) {
        wait_for("all processes to be gone", Duration::from_secs(5), || async {
            let left = [
                processes_with(&mark.display().to_string()),
                processes_with(&format!("{address}:6379")),
            ]
            .concat();
            if left.is_empty() { Ok(Some(())) } else { anyhow::bail!("left: {left:?}") }
        })
        .await
        .unwrap();
        assert!(!mark.exists(), "{} is left", mark.display());
    }
}

#[tokio::test]
async fn what_dies_comes_back() {
    let options = Options { node_grace: Options::SHORT_NODE_GRACE, ..Options::default() };
    let cluster = DevCluster::start(options).await.unwrap();
    apply(&cluster, &redis_manifest("hurt", 1)).await;
    let before = ready_pod(&cluster, "hurt", "redis-0", |_| true).await;
    redis(&ip(&before), "SET key kept").await.unwrap();

    cluster.stop_apiserver().await.unwrap();
    assert_eq!(redis(&ip(&before), "PING").await.unwrap(), "+PONG");
    assert!(cluster.kubectl(&["get", "--raw", "/readyz"]).await.is_err());
    cluster.start_apiserver().await.unwrap();

    cluster.freeze("hurt", "redis-0").unwrap();
    let frozen =
        tokio::time::timeout(Duration::from_millis(500), redis(&ip(&before), "PING")).await;
    assert!(frozen.is_err());
    cluster.thaw("hurt", "redis-0").unwrap();
    assert_eq!(redis(&ip(&before), "PING").await.unwrap(), "+PONG");

    let node = before.spec.clone().unwrap().node_name.unwrap();
    cluster.kill_node(&node).await.unwrap();
    assert!(redis(&ip(&before), "PING").await.is_err());
    let api = pods(&cluster, "hurt");
    wait_for("the pod of the dead node to be evicted", PATIENCE, || async {
        Ok(api.get("redis-0").await?.metadata.deletion_timestamp)
    })
    .await
    .unwrap();
    // As in a real cluster it stays until the node is back or someone forces it.
    let force = ["-n", "hurt", "delete", "pod", "redis-0", "--force", "--grace-period=0"];
    cluster.kubectl(&force).await.unwrap();
    let after = ready_pod(&cluster, "hurt", "redis-0", |pod| uid(pod) != uid(&before)).await;
    assert_ne!(after.spec.clone().unwrap().node_name.as_ref(), Some(&node));
    assert_eq!(redis(&ip(&after), "GET key").await.unwrap(), "$4 kept");

    cluster.start_node(&node).unwrap();
    let wait = format!("node/{node}");
    cluster.kubectl(&["wait", "--for=condition=Ready", &wait, "--timeout=60s"]).await.unwrap();
    cluster.shutdown().await.unwrap();
}
