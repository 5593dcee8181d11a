//! The engine's rules on the real API server, with a plugin that returns what its parent's spec says.

#![cfg(test)]

use std::sync::atomic::{AtomicU32, Ordering};

use devcluster::{DevCluster, Signal, wait_for};
use it::{
    HOST, PATIENCE, apply, condition, deployed, event, host_pod, json, object, plugin_at, root,
};
use serde_json::Value;
use tokio::sync::OnceCell;

/// Never dropped: the kernel ends the cluster with this process.
static CLUSTER: OnceCell<DevCluster> = OnceCell::const_new();

/// A cluster where the puppet plugin runs beside the Redis one.
async fn cluster() -> &'static DevCluster {
    let start = || async {
        let cluster = deployed().await.unwrap();
        let folder = root().unwrap().join("tests/it/puppet");
        let wasm = tokio::task::spawn_blocking(|| plugin_at("tests/it/puppet", None))
            .await
            .unwrap()
            .unwrap();
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        cluster.kubectl(&["apply", "--server-side", "-f", &file("deploy.yaml")]).await.unwrap();
        let (wasm, settings) = (
            format!("--from-file=plugin.wasm={}", wasm.display()),
            format!("--from-file=plugin.yaml={}", file("plugin.yaml")),
        );
        cluster
            .kubectl(&["-n", HOST, "create", "configmap", "puppet", &wasm, &settings])
            .await
            .unwrap();
        let label = "operator-host.dev/plugin=puppet";
        cluster.kubectl(&["-n", HOST, "label", "configmap", "puppet", label]).await.unwrap();
        event(&cluster, HOST, "PluginLoaded", "puppet").await.unwrap();
        cluster
    };
    CLUSTER.get_or_init(start).await
}

static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// A namespace of its own for each test.
fn namespace(name: &str) -> String {
    format!("{name}-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed))
}

fn puppet(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: it.operator-host.dev/v1\nkind: Puppet\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

async fn reconciled(
    cluster: &DevCluster,
    namespace: &str,
    name: &str,
    status: &str,
    reason: &str,
) -> Value {
    let what = format!("{name} to be Reconciled={status} {reason}");
    object(cluster, &["-n", namespace, "get", "puppet", name], &what, |parent| {
        condition(parent, "Reconciled", "status") == status
            && condition(parent, "Reconciled", "reason") == reason
    })
    .await
    .unwrap()
}

/// Waits until the last spec has been reconciled.
async fn observed(cluster: &DevCluster, namespace: &str, name: &str) -> Value {
    object(
        cluster,
        &["-n", namespace, "get", "puppet", name],
        "the last generation to be observed",
        |parent| {
            parent["status"]["observedGeneration"] == parent["metadata"]["generation"]
                && condition(parent, "Reconciled", "status") == "True"
        },
    )
    .await
    .unwrap()
}

async fn config_maps(cluster: &DevCluster, namespace: &str) -> Vec<String> {
    let names =
        cluster.kubectl(&["-n", namespace, "get", "configmaps", "-o", "name"]).await.unwrap();
    let names = names.lines().map(|name| name.trim_start_matches("configmap/").to_owned());
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

#[tokio::test]
async fn creates_changes_and_prunes_what_it_owns_and_nothing_else() {
    let (cluster, namespace) = (cluster().await, namespace("owns"));
    apply(cluster, &namespace, &puppet("p", "{own: [a, b], text: one}")).await.unwrap();
    observed(cluster, &namespace, "p").await;
    cluster.kubectl(&["-n", &namespace, "create", "configmap", "bystander"]).await.unwrap();
    assert_eq!(config_maps(cluster, &namespace).await, ["a", "b", "bystander"]);
    apply(cluster, &namespace, &puppet("p", "{own: [a], text: two}")).await.unwrap();
    observed(cluster, &namespace, "p").await;
    assert_eq!(config_maps(cluster, &namespace).await, ["a", "bystander"]);
    let a = json(cluster, &["-n", &namespace, "get", "configmap", "a"]).await.unwrap();
    assert_eq!(a["data"]["text"], "two");
    assert_eq!(a["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(a["metadata"]["labels"]["operator-host.dev/plugin"], "puppet");
}

#[tokio::test]
async fn is_woken_by_what_it_reads() {
    let (cluster, namespace) = (cluster().await, namespace("reads"));
    apply(cluster, &namespace, &puppet("p", "{read: [news]}")).await.unwrap();
    observed(cluster, &namespace, "p").await;
    cluster
        .kubectl(&["-n", &namespace, "create", "configmap", "news", "--from-literal=text=extra"])
        .await
        .unwrap();
    object(cluster, &["-n", &namespace, "get", "puppet", "p"], "the news to be read", |parent| {
        condition(parent, "Ready", "message") == "extra"
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn deletion_is_a_reconcile_and_ends_when_the_plugin_has_finished() {
    let (cluster, namespace) = (cluster().await, namespace("deletion"));
    apply(cluster, &namespace, &puppet("p", "{own: [a], waitForGone: hold}")).await.unwrap();
    let parent = observed(cluster, &namespace, "p").await;
    assert_eq!(parent["metadata"]["finalizers"][0], "operator-host.dev/puppet");
    cluster.kubectl(&["-n", &namespace, "create", "configmap", "hold"]).await.unwrap();
    cluster.kubectl(&["-n", &namespace, "delete", "puppet", "p", "--wait=false"]).await.unwrap();
    // Still there, and its child too, while the plugin waits.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(config_maps(cluster, &namespace).await.contains(&"a".to_owned()));
    cluster.kubectl(&["-n", &namespace, "delete", "configmap", "hold"]).await.unwrap();
    wait_for("parent and child to be gone", PATIENCE, || async {
        let left =
            cluster.kubectl(&["-n", &namespace, "get", "puppets,configmaps", "-o", "name"]).await?;
        Ok((left.trim() == "configmap/kube-root-ca.crt").then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_user_can_give_up_a_deletion_that_the_plugin_cannot_finish() {
    let (cluster, namespace) = (cluster().await, namespace("abandon"));
    apply(cluster, &namespace, &puppet("p", "{fault: panic}")).await.unwrap();
    reconciled(cluster, &namespace, "p", "False", "PluginPanicked").await;
    cluster.kubectl(&["-n", &namespace, "delete", "puppet", "p", "--wait=false"]).await.unwrap();
    let annotation = "operator-host.dev/abandon=true";
    cluster.kubectl(&["-n", &namespace, "annotate", "puppet", "p", annotation]).await.unwrap();
    wait_for("the parent to be gone", PATIENCE, || async {
        let left = cluster.kubectl(&["-n", &namespace, "get", "puppets", "-o", "name"]).await?;
        Ok(left.trim().is_empty().then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_plugins_fault_is_told_and_hurts_nobody_else() {
    let (cluster, namespace) = (cluster().await, namespace("faults"));
    for (name, fault, reason, said) in [
        ("panics", "panic", "PluginPanicked", "pulled the wrong string"),
        ("spins", "spin", "PluginDeadline", "exceeded 200 ms"),
        ("tangled", "transient", "StringTangled", "try again"),
        ("cut", "terminal", "StringCut", "nothing helps"),
        ("greedy", "ungranted", "PluginInvalidDecision", "grants.owns"),
    ] {
        apply(cluster, &namespace, &puppet(name, &format!("{{own: [{name}], fault: {fault}}}")))
            .await
            .unwrap();
        let parent = reconciled(cluster, &namespace, name, "False", reason).await;
        let message = condition(&parent, "Reconciled", "message");
        assert!(message.contains(said) && message.contains("puppet"), "{message}");
        assert_eq!(condition(&parent, "Ready", "status"), "Unknown", "{name} has never worked");
    }
    apply(cluster, &namespace, &puppet("fine", "{own: [fine]}")).await.unwrap();
    observed(cluster, &namespace, "fine").await;
    assert_eq!(config_maps(cluster, &namespace).await, ["fine"], "a failed run writes nothing");
}

#[tokio::test]
async fn a_mass_deletion_waits_for_consent() {
    let (cluster, namespace) = (cluster().await, namespace("mass"));
    apply(cluster, &namespace, &puppet("p", "{own: [a, b, c, d]}")).await.unwrap();
    observed(cluster, &namespace, "p").await;
    apply(cluster, &namespace, &puppet("p", "{own: []}")).await.unwrap();
    let parent = reconciled(cluster, &namespace, "p", "False", "DeletionHeld").await;
    assert_eq!(config_maps(cluster, &namespace).await.len(), 4);
    let consent = format!("operator-host.dev/allow-deletions={}", parent["metadata"]["generation"]);
    cluster.kubectl(&["-n", &namespace, "annotate", "puppet", "p", &consent]).await.unwrap();
    reconciled(cluster, &namespace, "p", "True", "Applied").await;
    assert_eq!(config_maps(cluster, &namespace).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_immutable_field_is_reported_or_recreated_as_decided() {
    let (cluster, namespace) = (cluster().await, namespace("immutable"));
    apply(cluster, &namespace, &puppet("p", "{own: [a], text: one, immutable: report}"))
        .await
        .unwrap();
    observed(cluster, &namespace, "p").await;
    apply(cluster, &namespace, &puppet("p", "{own: [a], text: two, immutable: report}"))
        .await
        .unwrap();
    reconciled(cluster, &namespace, "p", "False", "Immutable").await;
    apply(cluster, &namespace, &puppet("p", "{own: [a], text: two, immutable: recreate}"))
        .await
        .unwrap();
    observed(cluster, &namespace, "p").await;
    object(cluster, &["-n", &namespace, "get", "configmap", "a"], "the new text", |a| {
        a["data"]["text"] == "two"
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn another_owners_object_is_never_taken() {
    let (cluster, namespace) = (cluster().await, namespace("foreign"));
    apply(cluster, &namespace, &puppet("first", "{own: [a], text: first}")).await.unwrap();
    observed(cluster, &namespace, "first").await;
    apply(cluster, &namespace, &puppet("second", "{own: [a], text: second}")).await.unwrap();
    let parent = reconciled(cluster, &namespace, "second", "False", "OwnedByOther").await;
    assert!(condition(&parent, "Reconciled", "message").contains("Puppet first"));
    let a = json(cluster, &["-n", &namespace, "get", "configmap", "a"]).await.unwrap();
    assert_eq!(a["data"]["text"], "first");
}

#[tokio::test]
async fn a_fight_over_an_object_is_repaired_and_told() {
    let (cluster, namespace) = (cluster().await, namespace("fight"));
    apply(cluster, &namespace, &puppet("p", "{own: [a], text: ours}")).await.unwrap();
    observed(cluster, &namespace, "p").await;
    // Until it is told: another test may kill the host, and with it what it has counted.
    wait_for("the fight to be told", PATIENCE, || async {
        let theirs = r#"{"data": {"text": "theirs"}}"#;
        let patch = ["-n", &namespace, "patch", "configmap", "a", "-p", theirs];
        cluster.kubectl(&patch).await?;
        object(cluster, &["-n", &namespace, "get", "configmap", "a"], "the repair", |a| {
            a["data"]["text"] == "ours"
        })
        .await?;
        let parent = json(cluster, &["-n", &namespace, "get", "puppet", "p"]).await?;
        Ok((condition(&parent, "Reconciled", "reason") == "Contested").then_some(()))
    })
    .await
    .unwrap();
    let parent = reconciled(cluster, &namespace, "p", "True", "Contested").await;
    let message = condition(&parent, "Reconciled", "message");
    assert!(message.contains(".data.text of ConfigMap") && message.contains("times"), "{message}");
    event(cluster, &namespace, "Contested", "--show-managed-fields").await.unwrap();
}

#[tokio::test]
async fn two_parents_that_wake_each_other_for_ever_are_slowed_down_and_told() {
    let (cluster, namespace) = (cluster().await, namespace("hot"));
    apply(cluster, &namespace, &puppet("p", "{own: [a], read: [b], count: true}")).await.unwrap();
    apply(cluster, &namespace, &puppet("q", "{own: [b], read: [a], count: true}")).await.unwrap();
    let parent = reconciled(cluster, &namespace, "p", "True", "RunningHot").await;
    let message = condition(&parent, "Reconciled", "message");
    assert!(message.contains("one run a second") && message.contains("ConfigMap"), "{message}");
    apply(cluster, &namespace, &puppet("q", "{own: [b], text: enough}")).await.unwrap();
    object(cluster, &["-n", &namespace, "get", "configmap", "b"], "a change while hot", |b| {
        b["data"]["text"] == "enough"
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_child_that_has_lost_its_owner_is_taken_back() {
    let (cluster, namespace) = (cluster().await, namespace("lost"));
    apply(cluster, &namespace, &puppet("p", "{own: [a, b]}")).await.unwrap();
    observed(cluster, &namespace, "p").await;
    let disown = r#"[{"op": "remove", "path": "/metadata/ownerReferences"}]"#;
    for name in ["a", "b"] {
        let patch = ["-n", &namespace, "patch", "configmap", name, "--type=json", "-p", disown];
        cluster.kubectl(&patch).await.unwrap();
        object(cluster, &["-n", &namespace, "get", "configmap", name], "its owner again", |it| {
            it["metadata"]["ownerReferences"][0]["name"] == "p"
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn fields_on_somebody_elses_object_are_set_and_released() {
    let (cluster, namespace) = (cluster().await, namespace("partial"));
    apply(cluster, &namespace, &puppet("p", "{label: [default]}")).await.unwrap();
    let account = ["-n", &namespace, "get", "serviceaccount", "default"];
    let labelled = object(cluster, &account, "the label", |account| {
        account["metadata"]["labels"]["puppet"] == "p"
    });
    let labelled = labelled.await.unwrap();
    assert!(labelled["metadata"].get("ownerReferences").is_none());
    apply(cluster, &namespace, &puppet("p", "{label: []}")).await.unwrap();
    object(cluster, &account, "the label to be released", |account| {
        account["metadata"]["labels"].get("puppet").is_none()
            && account["metadata"]["annotations"].get("operator-host.dev/applied").is_none()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_killed_host_takes_up_where_it_was_and_writes_nothing_twice() {
    let (cluster, namespace) = (cluster().await, namespace("restart"));
    apply(cluster, &namespace, &puppet("p", "{own: [a], text: one}")).await.unwrap();
    observed(cluster, &namespace, "p").await;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let get = ["-n", &namespace, "get", "configmap", "a"];
    let before = version(&json(cluster, &get).await.unwrap());
    let pod = host_pod(cluster).await.unwrap();
    cluster.kill_pod(HOST, &pod, Signal::KILL).unwrap();
    apply(cluster, &namespace, &puppet("q", "{own: [b]}")).await.unwrap();
    observed(cluster, &namespace, "q").await;
    assert_eq!(
        version(&json(cluster, &get).await.unwrap()),
        before,
        "the restarted host has written what was there"
    );
    apply(cluster, &namespace, &puppet("p", "{own: [a], text: two}")).await.unwrap();
    object(cluster, &get, "the change after the restart", |a| a["data"]["text"] == "two")
        .await
        .unwrap();
}
