//! What both test binaries need: manifests, waiting, a raw Redis PING.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use devcluster::{DevCluster, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Generous: the machine may be compiling something else.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A namespace, and in it a StatefulSet of Redis with claim, ConfigMap and readiness probe.
pub fn redis_manifest(namespace: &str, replicas: u32) -> String {
    REDIS.replace("NAMESPACE", namespace).replace("REPLICAS", &replicas.to_string())
}

const REDIS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: redis, namespace: NAMESPACE}
data: {redis.conf: "appendonly yes\nappendfsync always\ndir /data\nprotected-mode no\n"}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: redis, namespace: NAMESPACE}
spec:
  serviceName: redis
  replicas: REPLICAS
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: redis}}
  template:
    metadata: {labels: {app: redis}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: redis
        image: redis:7.0
        args: ["/etc/redis/redis.conf", "--bind", "$(POD_IP)", "--bind-source-addr", "$(POD_IP)"]
        env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
        readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
        volumeMounts:
        - {name: data, mountPath: /data}
        - {name: configuration, mountPath: /etc/redis}
      volumes: [{name: configuration, configMap: {name: redis}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

pub async fn apply(cluster: &DevCluster, manifest: &str) {
    cluster.kubectl_stdin(&["apply", "--server-side", "-f", "-"], manifest).await.unwrap();
}

pub fn pods(cluster: &DevCluster, namespace: &str) -> Api<Pod> {
    Api::namespaced(cluster.client().unwrap(), namespace)
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub fn ip(pod: &Pod) -> String {
    pod.status.clone().unwrap().pod_ip.unwrap()
}

pub fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap()
}

/// Waits for a pod that is Ready and fulfils `more`.
pub async fn ready_pod(
    cluster: &DevCluster,
    namespace: &str,
    name: &str,
    more: impl Fn(&Pod) -> bool,
) -> Pod {
    let api = pods(cluster, namespace);
    let what = format!("{namespace}/{name} to be ready");
    let found = wait_for(&what, PATIENCE, || async {
        Ok(api.get_opt(name).await?.filter(|pod| is_ready(pod) && more(pod)))
    })
    .await;
    match found {
        Ok(pod) => pod,
        Err(error) => {
            let story = cluster.kubectl(&["-n", namespace, "describe", "pod", name]).await;
            panic!("{error:#}\n{}", story.unwrap_or_default());
        }
    }
}

/// Sends an inline command to a Redis and returns the first line of the answer.
pub async fn redis(address: &str, command: &str) -> Result<String> {
    let address: SocketAddr = format!("{address}:6379").parse().context("the address")?;
    let mut stream = TcpStream::connect(address).await.context("connecting")?;
    stream.write_all(format!("{command}\r\n").as_bytes()).await.context("sending")?;
    let mut answer = vec![0; 512];
    let length = stream.read(&mut answer).await.context("reading")?;
    answer.truncate(length);
    Ok(String::from_utf8_lossy(&answer).trim().replace("\r\n", " "))
}

/// Command lines of running processes that have `text` in them (zombies have none).
pub fn processes_with(text: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == own || !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(text) {
            found.push(line);
        }
    }
    found
}
