//! Two hosts, of which one acts (ADR 0008): what happens when it is killed, shut down, or frozen for longer than its lease.

#![cfg(test)]

use std::time::{Duration, Instant};

use devcluster::{DevCluster, Signal, wait_for};
use it::{HOST, PATIENCE, apply, deployed, host_pod, json, lease_holder, ready, redis_cluster};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Never dropped: the kernel ends the cluster with this process.
static CLUSTER: OnceCell<(DevCluster, Mutex<()>)> = OnceCell::const_new();

/// How long a lease lasts.
const LEASE: Duration = Duration::from_secs(15);

/// A cluster with two hosts; one test at a time.
async fn cluster() -> (&'static DevCluster, MutexGuard<'static, ()>) {
    let start = || async { (deployed().await.unwrap(), Mutex::const_new(())) };
    let (cluster, turn) = CLUSTER.get_or_init(start).await;
    let guard = turn.lock().await;
    wait_for("both hosts to be ready", PATIENCE, || async {
        let host = json(cluster, &["-n", HOST, "get", "deployment", HOST]).await?;
        Ok((host["status"]["readyReplicas"] == 2).then_some(()))
    })
    .await
    .unwrap();
    (cluster, guard)
}

async fn another_holder(cluster: &DevCluster, before: &str) -> String {
    wait_for("another host to lead", PATIENCE, || async {
        let holder = lease_holder(cluster).await?;
        Ok((!holder.is_empty() && holder != before).then_some(holder))
    })
    .await
    .unwrap()
}

/// Versions of everything that the host writes for a RedisCluster.
async fn versions(cluster: &DevCluster, namespace: &str) -> Vec<(String, String)> {
    let kinds = "rediscluster,statefulset,service,configmap,poddisruptionbudget";
    let all = json(cluster, &["-n", namespace, "get", kinds]).await.unwrap();
    let version = |object: &Value| {
        let field = |name: &str| object["metadata"][name].as_str().unwrap().to_owned();
        // Its controller writes the status of the StatefulSet and of the budget.
        let version = match object["metadata"]["generation"].as_i64() {
            Some(generation) => generation.to_string(),
            None => field("resourceVersion"),
        };
        (format!("{} {}", object["kind"], field("name")), version)
    };
    all["items"].as_array().unwrap().iter().map(version).collect()
}

#[tokio::test]
async fn a_standby_takes_over_from_a_killed_leader_and_writes_nothing_twice() {
    let (cluster, _turn) = cluster().await;
    apply(cluster, "killed", &redis_cluster("before", "{replicas: 1}")).await.unwrap();
    ready(cluster, "killed", "before").await.unwrap();
    let (holder, pod) = (lease_holder(cluster).await.unwrap(), host_pod(cluster).await.unwrap());
    let before = versions(cluster, "killed").await;
    cluster.kill_pod(HOST, &pod, Signal::KILL).unwrap();
    apply(cluster, "killed-after", &redis_cluster("after", "{replicas: 1}")).await.unwrap();
    another_holder(cluster, &holder).await;
    ready(cluster, "killed-after", "after").await.unwrap();
    assert_eq!(versions(cluster, "killed").await, before);
}

#[tokio::test]
async fn a_leader_that_is_shut_down_hands_over_before_its_lease_could_end() {
    let (cluster, _turn) = cluster().await;
    let (holder, pod) = (lease_holder(cluster).await.unwrap(), host_pod(cluster).await.unwrap());
    let started = Instant::now();
    cluster.kubectl(&["-n", HOST, "delete", "pod", &pod, "--wait=false"]).await.unwrap();
    another_holder(cluster, &holder).await;
    let took = started.elapsed();
    assert!(took < LEASE, "{took:?}: the lease was not released");
}

#[tokio::test]
async fn a_leader_that_was_frozen_for_longer_than_its_lease_ends_without_writing() {
    let (cluster, _turn) = cluster().await;
    apply(cluster, "frozen", &redis_cluster("cart", "{replicas: 1}")).await.unwrap();
    ready(cluster, "frozen", "cart").await.unwrap();
    let (holder, pod) = (lease_holder(cluster).await.unwrap(), host_pod(cluster).await.unwrap());
    cluster.freeze(HOST, &pod).unwrap();
    // Waits in the frozen host's caches and queue when it wakes.
    apply(cluster, "frozen", &redis_cluster("cart", "{replicas: 2}")).await.unwrap();
    let holder = another_holder(cluster, &holder).await;
    let parent = ready(cluster, "frozen", "cart").await.unwrap();
    assert_eq!(parent["status"]["readyReplicas"], 2);
    let before = versions(cluster, "frozen").await;
    cluster.thaw(HOST, &pod).unwrap();
    wait_for("the frozen host to notice and to end", PATIENCE, || async {
        Ok(cluster.logs(HOST, &pod, HOST)?.contains("the lease was lost").then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(lease_holder(cluster).await.unwrap(), holder, "the new leader is left alone");
    assert_eq!(versions(cluster, "frozen").await, before);
}
