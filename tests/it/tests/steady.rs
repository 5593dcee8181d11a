//! The steady state, in a cluster of its own: nobody else applies anything, so every apply counts.

#![cfg(test)]

use std::io::{Read as _, Write as _};
use std::time::Duration;

use devcluster::{DevCluster, wait_for};
use it::{HOST, PATIENCE, apply, deployed, host_pod, json, pod_ip, ready, redis_cluster};
use serde_json::Value;

/// Sum of the samples of a metric whose labels contain all of `labels`.
fn sum(metrics: &str, name: &str, labels: &[&str]) -> u64 {
    let samples = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let samples = samples.filter(|line| labels.iter().all(|label| line.contains(label)));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Server-side applies that the API server has answered, of what the host may write: nobody else applies those here.
async fn applies(cluster: &DevCluster) -> anyhow::Result<u64> {
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics"]).await?;
    let kinds =
        ["statefulsets", "services", "configmaps", "poddisruptionbudgets", "redisclusters", "pods"];
    let count = |kind| {
        let resource = format!("resource=\"{kind}\"");
        // A pod's status is its node's to write.
        let subresource = if kind == "redisclusters" { "" } else { "subresource=\"\"" };
        sum(&metrics, "apiserver_request_total", &["verb=\"APPLY\"", &resource, subresource])
    };
    Ok(kinds.into_iter().map(count).sum())
}

/// Runs the host has ended.
async fn runs(cluster: &DevCluster) -> anyhow::Result<u64> {
    let address = pod_ip(cluster, HOST, &host_pod(cluster).await?).await?;
    let mut stream = std::net::TcpStream::connect((address.as_str(), 8080))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(sum(&answer, "controller_runtime_reconcile_total", &[]))
}

/// An admission policy as platform teams have them: it adds a label and overrides a field that the plugin sets.
const MUTATION: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: house-rules}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [statefulsets]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >
          Object{
            metadata: Object.metadata{labels: {"team": "platform"}},
            spec: Object.spec{template: Object.spec.template{
              spec: Object.spec.template.spec{terminationGracePeriodSeconds: 45}}}
          }
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: house-rules}
spec: {policyName: house-rules}
"#;

/// Tells whether the policy is in force.
const PROBE: &str = r#"{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "probe"},
    "spec": {"serviceName": "probe", "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "redis:7"}]}}}}"#;

#[tokio::test]
async fn the_steady_state_writes_nothing_under_defaults_quantities_and_a_mutating_policy() {
    let cluster = deployed().await.unwrap();
    cluster.kubectl_stdin(&["apply", "-f", "-"], MUTATION).await.unwrap();
    wait_for("the policy to be in force", PATIENCE, || async {
        let dry = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        let set: Value = serde_json::from_str(&cluster.kubectl_stdin(&dry, PROBE).await?)?;
        Ok((set["metadata"]["labels"]["team"] == "platform").then_some(()))
    })
    .await
    .unwrap();
    let spec = "{replicas: 2, storage: {size: 1024Mi}, resources: {requests: {cpu: 1000m, memory: 0.5Gi}}}";
    apply(&cluster, "steady", &redis_cluster("quiet", spec)).await.unwrap();
    ready(&cluster, "steady", "quiet").await.unwrap();
    let set = json(&cluster, &["-n", "steady", "get", "statefulset", "quiet-redis"]).await.unwrap();
    assert_eq!(set["metadata"]["labels"]["team"], "platform");
    assert_eq!(set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 45);
    let pods = "--for=condition=Ready";
    cluster
        .kubectl(&["-n", "steady", "wait", pods, "pods", "--all", "--timeout=120s"])
        .await
        .unwrap();
    wait_for("no apply for three seconds", PATIENCE, || async {
        let before = applies(&cluster).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok((applies(&cluster).await? == before).then_some(()))
    })
    .await
    .unwrap();
    let (applies_before, runs_before) =
        (applies(&cluster).await.unwrap(), runs(&cluster).await.unwrap());
    for round in 1..=3_u8 {
        // A label on the parent makes a run without changing anything that is desired.
        let label = format!("round={round}");
        cluster
            .kubectl(&["-n", "steady", "label", "--overwrite", "rediscluster", "quiet", &label])
            .await
            .unwrap();
        wait_for("the run to end", PATIENCE, || async {
            Ok((runs(&cluster).await? >= runs_before + u64::from(round)).then_some(()))
        })
        .await
        .unwrap();
    }
    let written = applies(&cluster).await.unwrap() - applies_before;
    assert!(written == 0, "{written} applies in runs that had nothing to change");
    cluster.shutdown().await.unwrap();
}
