//! Pods on the process node, in one cluster that all tests of this binary share.

#![cfg(test)]

#[path = "support/redis.rs"]
mod support;

use devcluster::{DevCluster, Options, Signal, wait_for};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use support::{
    PATIENCE, apply, ip, is_ready, pods, processes_with, ready_pod, redis, redis_manifest, uid,
};
use tokio::sync::OnceCell;

/// Never dropped: the kernel ends the cluster with this process.
static CLUSTER: OnceCell<DevCluster> = OnceCell::const_new();

async fn cluster() -> &'static DevCluster {
    let start = || async {
        // Any program will do as the host here.
        let host = Some("/usr/bin/env".into());
        let options = Options { operator_host_binary: host, ..Options::default() };
        DevCluster::start(options).await.unwrap()
    };
    CLUSTER.get_or_init(start).await
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.clone().unwrap().container_statuses.unwrap();
    statuses.iter().map(|status| status.restart_count).sum()
}

fn waiting_reason(pod: &Pod) -> Option<String> {
    let statuses = pod.status.clone()?.container_statuses?;
    statuses.first()?.state.clone()?.waiting?.reason
}

#[tokio::test]
async fn a_stateful_set_of_redis_becomes_ready_and_answers() {
    let cluster = cluster().await;
    apply(cluster, &redis_manifest("ready", 2)).await;
    let first = ready_pod(cluster, "ready", "redis-0", |_| true).await;
    let second = ready_pod(cluster, "ready", "redis-1", |_| true).await;
    assert_ne!(ip(&first), ip(&second));
    assert_ne!(first.spec.clone().unwrap().node_name, second.spec.clone().unwrap().node_name);
    for pod in [&first, &second] {
        assert_eq!(redis(&ip(pod), "PING").await.unwrap(), "+PONG");
        assert_eq!(
            redis(&ip(pod), "CONFIG GET appendonly").await.unwrap(),
            "*2 $10 appendonly $3 yes"
        );
    }
}

#[tokio::test]
async fn a_killed_container_restarts_on_the_same_address() {
    let cluster = cluster().await;
    apply(cluster, &redis_manifest("restart", 1)).await;
    let before = ready_pod(cluster, "restart", "redis-0", |_| true).await;
    assert_eq!(redis(&ip(&before), "SET key kept").await.unwrap(), "+OK");
    let pid = cluster.container_pid("restart", "redis-0", "redis").unwrap();
    cluster.kill_container("restart", "redis-0", "redis", Signal::KILL).unwrap();
    let after = ready_pod(cluster, "restart", "redis-0", |pod| restarts(pod) == 1).await;
    assert_eq!(uid(&before), uid(&after));
    assert_eq!(ip(&before), ip(&after));
    assert_ne!(cluster.container_pid("restart", "redis-0", "redis"), Some(pid));
    assert_eq!(redis(&ip(&after), "GET key").await.unwrap(), "$4 kept");
    let statuses = after.status.unwrap().container_statuses.unwrap();
    let last = statuses[0].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 137);
}

#[tokio::test]
async fn a_recreated_pod_has_another_address_and_the_same_data() {
    let cluster = cluster().await;
    apply(cluster, &redis_manifest("recreate", 1)).await;
    let before = ready_pod(cluster, "recreate", "redis-0", |_| true).await;
    assert_eq!(redis(&ip(&before), "SET key kept").await.unwrap(), "+OK");
    cluster.kubectl(&["-n", "recreate", "delete", "pod", "redis-0"]).await.unwrap();
    let after = ready_pod(cluster, "recreate", "redis-0", |pod| uid(pod) != uid(&before)).await;
    assert_ne!(ip(&before), ip(&after));
    assert_eq!(redis(&ip(&after), "GET key").await.unwrap(), "$4 kept");
    assert!(redis(&ip(&before), "PING").await.is_err());
}

#[tokio::test]
async fn deleting_the_stateful_set_and_claims_leaves_nothing() {
    let cluster = cluster().await;
    apply(cluster, &redis_manifest("cascade", 2)).await;
    let mut pids = Vec::new();
    for name in ["redis-0", "redis-1"] {
        let pod = ready_pod(cluster, "cascade", name, |_| true).await;
        pids.push((ip(&pod), cluster.container_pid("cascade", name, "redis").unwrap()));
    }
    let delete = ["-n", "cascade", "delete", "statefulset/redis", "--cascade=foreground"];
    cluster.kubectl(&delete).await.unwrap();
    for (ip, pid) in &pids {
        assert!(processes_with(&format!("{ip}:6379")).is_empty(), "pid {pid} at {ip} is left");
    }
    let listed = cluster.kubectl(&["-n", "cascade", "get", "pods", "-o", "name"]).await.unwrap();
    assert_eq!(listed, "");
    cluster.kubectl(&["delete", "namespace", "cascade"]).await.unwrap();
    wait_for("the volumes to be gone", PATIENCE, || async {
        let volumes = cluster.kubectl(&["get", "pv"]).await?;
        Ok((!volumes.contains("cascade/")).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_config_map_change_reaches_the_files_of_a_running_pod() {
    let cluster = cluster().await;
    let map = |value: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: live}}, data: {{word: {value}}}}}"
        )
    };
    apply(cluster, &map("old")).await;
    apply(
        cluster,
        r#"
apiVersion: v1
kind: Pod
metadata: {name: live}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: sleep
    image: redis:7.0
    command: [sleep, "1000"]
    readinessProbe: {exec: {command: [grep, new, /c/word]}, periodSeconds: 1}
    volumeMounts: [{name: live, mountPath: /c}]
  volumes: [{name: live, configMap: {name: live}}]
"#,
    )
    .await;
    let api = pods(cluster, "default");
    wait_for("the pod to run", PATIENCE, || async {
        let pod = api.get("live").await?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        Ok((phase == Some("Running") && !is_ready(&pod)).then_some(()))
    })
    .await
    .unwrap();
    apply(cluster, &map("new")).await;
    ready_pod(cluster, "default", "live", |pod| restarts(pod) == 0).await;
}

#[tokio::test]
async fn a_pod_gets_a_service_account_token_that_works() {
    let cluster = cluster().await;
    apply(
        cluster,
        r#"
apiVersion: v1
kind: Pod
metadata: {name: token, labels: {x: "42"}}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - name: show
    image: redis:7.0
    command: [sh, -c]
    args: ['echo "at $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT x=$(X)"; cat $0; echo', "$(DIR)/token"]
    env:
    - {name: X, valueFrom: {fieldRef: {fieldPath: "metadata.labels['x']"}}}
    - {name: DIR, value: /var/run/secrets/kubernetes.io/serviceaccount}
"#,
    )
    .await;
    let api = pods(cluster, "default");
    wait_for("the pod to succeed", PATIENCE, || async {
        let pod = api.get("token").await?;
        Ok((pod.status.and_then(|status| status.phase).as_deref() == Some("Succeeded"))
            .then_some(()))
    })
    .await
    .unwrap();
    let log = cluster.logs("default", "token", "show").unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let address = lines[1].strip_prefix("at ").unwrap().strip_suffix(" x=42").unwrap();
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Config::from_custom_kubeconfig(
        kube::config::Kubeconfig::read_from(cluster.kubeconfig()).unwrap(),
        &kube::config::KubeConfigOptions::default(),
    )
    .await
    .unwrap()
    .root_cert;
    config.auth_info.token = Some(lines[2].to_owned().into());
    let reviews: Api<SelfSubjectReview> = Api::all(Client::try_from(config).unwrap());
    let review =
        reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:default:default"));
}

#[tokio::test]
async fn init_containers_run_in_order_and_a_job_completes() {
    let cluster = cluster().await;
    apply(
        cluster,
        r#"
apiVersion: batch/v1
kind: Job
metadata: {name: ordered}
spec:
  template:
    spec:
      restartPolicy: Never
      initContainers:
      - {name: one, image: "redis:7.0", command: [sh, -c, "echo one >> /w/log"], volumeMounts: [{name: w, mountPath: /w}]}
      - {name: two, image: "redis:7.0", command: [sh, -c, "echo two >> /w/log"], volumeMounts: [{name: w, mountPath: /w}]}
      containers:
      - {name: main, image: "redis:7.0", command: [cat, /w/log], volumeMounts: [{name: w, mountPath: /w}]}
      volumes: [{name: w, emptyDir: {}}]
"#,
    )
    .await;
    cluster
        .kubectl(&["wait", "--for=condition=complete", "job/ordered", "--timeout=60s"])
        .await
        .unwrap();
    let selector =
        ["get", "pods", "-l", "job-name=ordered", "-o", "jsonpath={.items[0].metadata.name}"];
    let pod = cluster.kubectl(&selector).await.unwrap();
    let log = cluster.logs("default", &pod, "main").unwrap();
    assert!(log.ends_with("one\ntwo\n"), "{log}");
}

#[tokio::test]
async fn a_pod_is_told_before_it_is_killed() {
    let cluster = cluster().await;
    apply(
        cluster,
        r#"
apiVersion: v1
kind: Pod
metadata: {name: polite}
spec:
  terminationGracePeriodSeconds: 20
  containers:
  - name: main
    image: redis:7.0
    command: [sh, -c, 'trap "echo term; exit 0" TERM; echo up; while true; do sleep 0.1; done']
    lifecycle: {preStop: {exec: {command: [sh, -c, "echo prestop >> /proc/1/fd/1"]}}}
"#,
    )
    .await;
    ready_pod(cluster, "default", "polite", |_| true).await;
    wait_for("the trap to be set", PATIENCE, || async {
        Ok(cluster.logs("default", "polite", "main")?.contains("up").then_some(()))
    })
    .await
    .unwrap();
    cluster.kubectl(&["delete", "pod", "polite"]).await.unwrap();
    let log = cluster.logs("default", "polite", "main").unwrap();
    assert!(log.ends_with("up\nprestop\nterm\n"), "{log}");
}

#[tokio::test]
async fn a_failing_liveness_probe_restarts_the_container() {
    let cluster = cluster().await;
    apply(
        cluster,
        r#"
apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: redis:7.0
    command: [sleep, "1000"]
    livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 2}
"#,
    )
    .await;
    ready_pod(cluster, "default", "sick", |pod| restarts(pod) >= 1).await;
    cluster.kubectl(&["delete", "pod", "sick"]).await.unwrap();
}

#[tokio::test]
async fn the_host_image_runs_the_given_binary_on_a_read_only_root() {
    let cluster = cluster().await;
    apply(
        cluster,
        r#"
apiVersion: v1
kind: Pod
metadata: {name: host}
spec:
  restartPolicy: Never
  containers:
  - name: host
    image: registry.example/x/operator-host:dev
    args: [sh, -c, "touch /x || touch /w/y && ls /w; grep CapEff /proc/self/status"]
    securityContext: {readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: w, mountPath: /w}]
  volumes: [{name: w, emptyDir: {}}]
"#,
    )
    .await;
    let done = "--for=jsonpath={.status.phase}=Succeeded";
    cluster.kubectl(&["wait", done, "pod/host", "--timeout=60s"]).await.unwrap();
    let log = cluster.logs("default", "host", "host").unwrap();
    assert!(log.ends_with("Read-only file system\ny\nCapEff:\t0000000000000000\n"), "{log}");
}

#[tokio::test]
async fn an_unknown_image_is_said_to_be_missing() {
    let cluster = cluster().await;
    cluster.kubectl(&["run", "stranger", "--image=nginx:1"]).await.unwrap();
    let api = pods(cluster, "default");
    wait_for("ErrImagePull", PATIENCE, || async {
        Ok((waiting_reason(&api.get("stranger").await?).as_deref() == Some("ErrImagePull"))
            .then_some(()))
    })
    .await
    .unwrap();
    cluster.kubectl(&["delete", "pod", "stranger"]).await.unwrap();
}
