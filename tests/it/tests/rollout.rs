//! New revisions of a plugin on a real API server: planned, held, approved, tried on some, taken back, kept over a restart.
//!
//! The puppet's configuration changes what it does, so a change of a `Plugin`'s `spec.config` is another revision.

#![cfg(test)]

use std::process::{Command, Output};

use devcluster::wait_for;
use faults::{Asked, Fault, Moment};
use it::api::{Api, path};
use it::rig::{Rig, Staged};
use it::{HOST, PATIENCE, condition, host_binary, plugin_at};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Never dropped: the kernel ends the cluster with this process.
static STAGED: OnceCell<(Staged, Mutex<()>)> = OnceCell::const_new();

/// A host and its puppets, in a namespace of their own. One test at a time: all have the same `Plugin`.
struct Stage {
    rig: Rig,
    namespace: &'static str,
    _turn: MutexGuard<'static, ()>,
}

fn plugin() -> String {
    format!("/apis/plugins.operator-host.dev/v1alpha1/namespaces/{HOST}/plugins/puppet")
}

impl Stage {
    /// A host that runs the puppet with `spec`, and these puppets, each with a ConfigMap of its name.
    async fn new(namespace: &'static str, puppets: &[&str], spec: Value) -> Self {
        let start = || async { (Staged::with_plugin_kind().await.unwrap(), Mutex::const_new(())) };
        let (staged, turn) = STAGED.get_or_init(start).await;
        let turn = turn.lock().await;
        // What the test before has left: nothing of it is wanted any more, and whatever follows may act.
        let clean = json!({"rollout": {"policy": "Always"}});
        let patch = json!([{"op": "replace", "path": "/spec", "value": clean}]);
        let api = Api::new(&staged.cluster).unwrap();
        let existed = api.json_patch(&plugin(), &patch).await.is_ok();
        let rig = staged.rig(&[namespace]).await.unwrap();
        let stage = Self { rig, namespace, _turn: turn };
        if !existed {
            stage.set(clean).await;
        }
        stage.settled().await;
        for name in puppets {
            let pulled = json!({"own": [name], "text": "one"});
            stage.rig.api.puppet(namespace, name, &pulled).await.unwrap();
            stage.text(name, "one").await;
        }
        stage.set(spec).await;
        stage
    }

    /// Replaces the `Plugin`'s spec.
    async fn set(&self, spec: Value) {
        let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
        self.rig.api.json_patch(&plugin(), &patch).await.unwrap();
    }

    /// Waits until the `Plugin` satisfies a condition and has seen its spec; gives it.
    async fn plugin(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let holds = |plugin: &Value| {
            plugin["status"]["observedGeneration"] == plugin["metadata"]["generation"]
                && holds(plugin)
        };
        self.rig.api.until(what, &plugin(), holds).await.unwrap()
    }

    async fn settled(&self) -> Value {
        self.plugin("the newest revision to act", |plugin| {
            condition(plugin, "Promoted", "status") == "True"
        })
        .await
    }

    async fn held(&self, reason: &str) -> Value {
        self.plugin(&format!("a candidate to be held: {reason}"), |plugin| {
            plugin["status"]["candidate"]["reason"] == reason
        })
        .await
    }

    /// Waits until a puppet's ConfigMap has this text.
    async fn text(&self, puppet: &str, text: &str) {
        let at = path("configmaps", self.namespace, puppet);
        let what = format!("the text {text} for {puppet}");
        let holds = |child: &Value| child["data"]["text"] == text;
        self.rig.api.until(&what, &at, holds).await.unwrap();
    }

    async fn text_now(&self, puppet: &str) -> Value {
        let at = path("configmaps", self.namespace, puppet);
        self.rig.api.get(&at).await.unwrap()["data"]["text"].clone()
    }

    /// `operator-host plugin …`, against this host and cluster.
    fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(host_binary().unwrap());
        command.arg("plugin").args(arguments);
        command.env("OPERATOR_HOST_KUBECONFIG", self.rig.admin_kubeconfig());
        command.env("OPERATOR_HOST_LISTEN", self.rig.host.address().to_string());
        command.output().unwrap()
    }

    fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", both(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn event(&self, reason: &str, text: &str) -> String {
        let events = format!("/apis/events.k8s.io/v1/namespaces/{HOST}/events");
        let what = format!("an event {reason} about {text}");
        let note = wait_for(&what, PATIENCE, || async {
            let events = self.rig.api.items(&events).await?;
            let mut notes = events
                .iter()
                .filter(|event| event["reason"] == reason)
                .filter_map(|event| event["note"].as_str());
            Ok(notes.find(|note| note.contains(text)).map(str::to_owned))
        });
        note.await.unwrap()
    }
}

fn both(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn revision(plugin: &Value, of: &str) -> String {
    plugin["status"][of]["revision"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_plugin_appears_by_itself_and_tells_what_acts() {
    let stage = Stage::new("appears", &["a", "b"], json!({})).await;
    let plugin = stage.plugin("two parents", |plugin| plugin["status"]["parents"] == 2).await;
    for kind in ["Loaded", "Compatible", "Authorized", "Promoted", "Ready"] {
        assert_eq!(condition(&plugin, kind, "status"), "True", "{kind}: {plugin}");
    }
    assert_eq!(condition(&plugin, "Degraded", "status"), "False");
    let active = &plugin["status"]["active"];
    assert!(active["digest"].as_str().unwrap().starts_with("sha256:"), "{active}");
    let said = stage.succeeds(&["status", "puppet"]);
    assert!(said.contains(&revision(&plugin, "active")) && said.contains("Ready=True"), "{said}");
    let kept = format!("puppet-{}", revision(&plugin, "active"));
    let kept = stage.rig.api.get(&path("configmaps", HOST, &kept)).await.unwrap();
    assert_eq!(kept["immutable"], true);
}

#[tokio::test]
async fn a_revision_that_would_delete_is_planned_held_and_acts_once_approved() {
    let stage = Stage::new("held", &["a", "b"], json!({})).await;
    let before = stage.settled().await;
    let mark = stage.rig.proxy.mark();
    stage.set(json!({"config": {"fault": "empty"}})).await;
    let held = stage.held("Deletes").await;
    assert_eq!(held["status"]["verdict"], "Deletes");
    assert_eq!(held["status"]["plan"]["deletes"], 2, "{held}");
    assert_eq!(revision(&held, "active"), revision(&before, "active"));
    assert!(stage.rig.proxy.since(mark).deletions().is_empty());
    let plan = stage.command(&["plan", "puppet"]);
    assert_eq!(plan.status.code(), Some(2), "{}", both(&plan));
    assert!(both(&plan).contains("held/a: delete ConfigMap held/a"), "{}", both(&plan));
    let json = stage.command(&["plan", "puppet", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["plan"]["parents"], 2);
    stage.event("PluginHeld", "Deletes").await;
    stage.succeeds(&["approve", "puppet"]);
    let after = stage.settled().await;
    assert_eq!(revision(&after, "active"), revision(&held, "candidate"));
    for name in ["a", "b"] {
        stage.rig.api.until_gone(&path("configmaps", "held", name)).await.unwrap();
    }
}

#[tokio::test]
async fn a_revision_that_fails_when_it_acts_is_taken_back_by_itself() {
    let stage = Stage::new("trapped", &["a", "b"], json!({})).await;
    let before = stage.settled().await;
    // It manages every parent as it is, and panics at what it has done itself.
    let config = json!({"suffix": "-two", "fault": "panic", "faultOnceTextIs": "one-two"});
    stage.set(json!({"config": config, "rollout": {"policy": "Always"}})).await;
    let after = stage.held("Quarantined").await;
    assert_eq!(revision(&after, "active"), revision(&before, "active"));
    let taken = &after["status"]["quarantined"][0];
    assert_eq!(taken["revision"], after["status"]["candidate"]["revision"]);
    let why = taken["reason"].as_str().unwrap();
    assert!(why.contains("PluginPanicked") && why.contains("pulled the wrong string"), "{why}");
    assert_eq!(condition(&after, "Degraded", "status"), "True");
    assert_eq!(condition(&after, "Ready", "status"), "True");
    for name in ["a", "b"] {
        stage.text(name, "one").await;
    }
    stage.event("PluginRolledBack", "PluginPanicked").await;
    let history = stage.succeeds(&["history", "puppet"]);
    assert!(history.contains("acts") && history.contains("PluginPanicked"), "{history}");
}

#[tokio::test]
async fn an_approval_is_spent_when_its_revision_is_taken_back() {
    let stage = Stage::new("spent", &["a"], json!({})).await;
    let before = stage.settled().await;
    let config = json!({"suffix": "-spent", "fault": "panic", "faultOnceTextIs": "one-spent"});
    stage.set(json!({"config": config, "rollout": {"policy": "Manual"}})).await;
    let held = stage.held("ApprovalNeeded").await;
    let bad = revision(&held, "candidate");
    let tried = |plugin: &Value| {
        let history = plugin["status"]["history"].as_array().unwrap();
        history.iter().filter(|entry| entry["revision"] == *bad).count()
    };
    for times in 1..=2 {
        stage.succeeds(&["approve", "puppet", &bad]);
        let taken = stage
            .plugin("the revision to be taken back", |plugin| {
                tried(plugin) == times && plugin["status"]["candidate"]["reason"] == "Quarantined"
            })
            .await;
        assert_eq!(revision(&taken, "active"), revision(&before, "active"));
        // Long enough for a loop to show.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(tried(&stage.held("Quarantined").await), times);
    }
    stage.text("a", "one").await;
}

#[tokio::test]
async fn a_parent_that_no_revision_manages_takes_none_back() {
    let stage = Stage::new("blame", &["a"], json!({})).await;
    stage.rig.api.puppet("blame", "broken", &json!({"fault": "panic"})).await.unwrap();
    let broken = path("puppets", "blame", "broken");
    let told = |parent: &Value| condition(parent, "Reconciled", "reason") == "PluginPanicked";
    stage.rig.api.until("the fault to be told", &broken, told).await.unwrap();
    stage.set(json!({"config": {"suffix": "-two"}, "rollout": {"maxChangedPercent": 100}})).await;
    let after = stage.settled().await;
    stage.text("a", "one-two").await;
    let label = stage.rig.api.merge(&broken, &json!({"spec": {"text": "again"}})).await.unwrap();
    let seen = |parent: &Value| {
        parent["metadata"]["generation"] == label["metadata"]["generation"] && told(parent)
    };
    stage.rig.api.until("another fault", &broken, seen).await.unwrap();
    let later = stage.settled().await;
    assert_eq!(revision(&later, "active"), revision(&after, "active"));
    assert!(later["status"]["quarantined"].as_array().is_none_or(|taken| {
        taken.iter().all(|one| one["revision"] != later["status"]["active"]["revision"])
    }));
}

#[tokio::test]
async fn a_canary_acts_for_its_parents_alone_until_it_has_baked() {
    let stage = Stage::new("canary", &["a", "b"], json!({})).await;
    let label = json!({"metadata": {"labels": {"tier": "test"}}});
    stage.rig.api.merge(&path("puppets", "canary", "b"), &label).await.unwrap();
    let rollout = |bake: u32| {
        json!({"config": {"suffix": "-two"}, "rollout": {
            "maxChangedPercent": 100, "canary": {"selector": "tier=test", "bakeSeconds": bake}}})
    };
    stage.set(rollout(3600)).await;
    stage.held("Baking").await;
    stage.text("b", "one-two").await;
    stage.rig.api.puppet("canary", "a", &json!({"own": ["a"], "text": "three"})).await.unwrap();
    stage.text("a", "three").await;
    stage.set(rollout(1)).await;
    stage.settled().await;
    stage.text("a", "three-two").await;
    assert_eq!(stage.text_now("b").await, "one-two");
}

#[tokio::test]
async fn a_canary_that_fails_is_dropped() {
    let stage = Stage::new("dropped", &["a", "b"], json!({})).await;
    let label = json!({"metadata": {"labels": {"tier": "test"}}});
    stage.rig.api.merge(&path("puppets", "dropped", "b"), &label).await.unwrap();
    let before = stage.settled().await;
    let config = json!({"suffix": "-bad", "fault": "panic", "faultOnceTextIs": "one-bad"});
    let canary = json!({"selector": "tier=test", "bakeSeconds": 3600});
    let rollout = json!({"policy": "Always", "canary": canary});
    stage.set(json!({"config": config, "rollout": rollout})).await;
    let after = stage.held("Quarantined").await;
    assert_eq!(revision(&after, "active"), revision(&before, "active"));
    stage.text("b", "one").await;
    assert_eq!(stage.text_now("a").await, "one");
}

#[tokio::test]
async fn a_user_can_pause_go_back_and_follow_the_source_again() {
    let stage = Stage::new("back", &["a"], json!({"config": {"suffix": "-old"}})).await;
    let old = revision(&stage.settled().await, "active");
    stage.succeeds(&["pause", "puppet"]);
    let patch =
        json!({"spec": {"config": {"suffix": "-new"}, "rollout": {"maxChangedPercent": 100}}});
    stage.rig.api.merge(&plugin(), &patch).await.unwrap();
    stage.held("Paused").await;
    stage.succeeds(&["resume", "puppet"]);
    let new = revision(&stage.settled().await, "active");
    assert_ne!(old, new);
    stage.text("a", "one-new").await;
    let said = stage.succeeds(&["rollback", "puppet"]);
    assert!(said.contains(&old), "{said}");
    assert_eq!(revision(&stage.settled().await, "active"), old);
    stage.text("a", "one-old").await;
    stage.succeeds(&["resume", "puppet"]);
    assert_eq!(revision(&stage.settled().await, "active"), new);
    stage.text("a", "one-new").await;
}

#[tokio::test]
async fn a_host_that_starts_with_a_bad_source_runs_the_last_good_revision() {
    let mut stage = Stage::new("restart", &["a"], json!({})).await;
    let before = stage.settled().await;
    let source = path("configmaps", HOST, "puppet");
    let good = stage.rig.api.get(&source).await.unwrap()["binaryData"].clone();
    // "not a component", in base64.
    let bad = json!({"binaryData": {"plugin.wasm": "bm90IGEgY29tcG9uZW50"}});
    stage.rig.api.merge(&source, &bad).await.unwrap();
    let refused = stage.plugin("the bytes to be refused", |plugin| {
        plugin["status"]["candidate"]["stage"] == "Refused"
    });
    assert_eq!(condition(&refused.await, "Loaded", "status"), "False");
    stage.rig.restart_host().await.unwrap();
    stage.rig.api.puppet("restart", "a", &json!({"own": ["a"], "text": "two"})).await.unwrap();
    stage.text("a", "two").await;
    let after = stage
        .plugin("an active revision", |plugin| plugin["status"]["candidate"]["stage"] == "Refused");
    assert_eq!(revision(&after.await, "active"), revision(&before, "active"));
    stage.rig.api.merge(&source, &json!({"binaryData": good})).await.unwrap();
    stage.settled().await;
}

#[tokio::test]
async fn more_powers_need_consent_and_are_named() {
    let owned = |kinds: &[&str]| {
        let owns: Vec<_> =
            kinds.iter().map(|kind| json!({"apiVersion": "v1", "kind": kind})).collect();
        json!({"owns": owns, "patches": [{"apiVersion": "v1", "kind": "ServiceAccount"}]})
    };
    let stage = Stage::new("powers", &["a"], json!({"grants": owned(&["ConfigMap"])})).await;
    let before = stage.settled().await;
    // Granted more than it asks for, it can do no more than before.
    stage.set(json!({"grants": owned(&["ConfigMap", "Service"])})).await;
    let after = stage.settled().await;
    assert_ne!(revision(&before, "active"), revision(&after, "active"));
    // Granted less than it asks for, it does not run at all, and the last good revision does.
    stage.set(json!({"grants": owned(&[])})).await;
    let refused = stage.held("PluginNotGranted").await;
    assert_eq!(condition(&refused, "Authorized", "status"), "False");
    assert_eq!(revision(&refused, "active"), revision(&after, "active"));
    let message = condition(&refused, "Authorized", "message").to_owned();
    assert!(message.contains("grants.owns: v1/ConfigMap"), "{message}");
}

#[tokio::test]
async fn a_plugin_that_hangs_on_the_order_of_lists_is_found_out() {
    let stage = Stage::new("order", &[], json!({})).await;
    let two = json!({"own": ["a", "b"], "text": "one"});
    stage.rig.api.puppet("order", "p", &two).await.unwrap();
    stage.text("b", "one").await;
    stage.set(json!({"config": {"order": "yes"}})).await;
    let held = stage.held("Unsound").await;
    let why = held["status"]["plan"]["unsound"].as_str().unwrap();
    assert!(why.contains("order of lists"), "{why}");
}

#[tokio::test]
async fn the_newest_of_several_changes_acts_and_a_change_of_metadata_does_nothing() {
    let stage = Stage::new("newest", &["a"], json!({})).await;
    let percent = json!({"maxChangedPercent": 100});
    for suffix in ["-1", "-2", "-3"] {
        stage.set(json!({"config": {"suffix": suffix}, "rollout": percent})).await;
    }
    let settled = stage.settled().await;
    stage.text("a", "one-3").await;
    let loads = || stage.rig.host.metric("operator_host_plugin_loads_total", &["puppet"]);
    let before = loads().await.unwrap();
    let annotated = json!({"metadata": {"annotations": {"touched": "yes"}}});
    stage.rig.api.merge(&path("configmaps", HOST, "puppet"), &annotated).await.unwrap();
    stage.rig.api.merge(&plugin(), &annotated).await.unwrap();
    // Something that is seen after it.
    stage.rig.api.puppet("newest", "a", &json!({"own": ["a"], "text": "two"})).await.unwrap();
    stage.text("a", "two-3").await;
    assert!((loads().await.unwrap() - before).abs() < 0.5);
    assert_eq!(revision(&stage.settled().await, "active"), revision(&settled, "active"));
}

/// Sets a spec, and the next one, and so on; kills the host at the first write that follows, the next time at the
/// second, until no write is left. Each time another host brings it to its end. Gives how many were killed.
async fn killed_at_each_write(
    stage: &mut Stage,
    spec: impl Fn(usize) -> Value,
    has_ended: impl Fn(&Value) -> bool,
    text: impl Fn(usize) -> String,
) -> usize {
    for killed in 0.. {
        let moment = [Moment::BeforeServer, Moment::BeforeHost][killed % 2];
        let concerns = |asked: &Asked| asked.resource() != "events";
        let killer = stage.rig.host.killer();
        let trap = stage.rig.proxy.at_write(killed + 1, moment, concerns, killer);
        stage.set(spec(killed)).await;
        wait_for("the host's death or the end", PATIENCE, || async {
            let plugin = stage.rig.api.get(&plugin()).await?;
            let seen = plugin["status"]["observedGeneration"] == plugin["metadata"]["generation"];
            let done = seen && has_ended(&plugin) && stage.text_now("a").await == *text(killed);
            Ok((trap.has_sprung() || done).then_some(()))
        })
        .await
        .unwrap();
        let sprung = trap.has_sprung();
        drop(trap);
        if sprung {
            stage.rig.restart_host().await.unwrap();
        }
        stage.plugin(&format!("the end after {killed} deaths"), &has_ended).await;
        stage.text("a", &text(killed)).await;
        if !sprung {
            return killed;
        }
    }
    unreachable!("a host does not write for ever")
}

#[tokio::test]
async fn a_host_killed_at_any_write_of_a_swap_ends_with_the_new_revision() {
    let mut stage = Stage::new("killed", &["a"], json!({})).await;
    let rollout = json!({"maxChangedPercent": 100});
    let spec =
        |number| json!({"config": {"suffix": format!("-{number}")}, "rollout": rollout.clone()});
    let acts = |plugin: &Value| condition(plugin, "Promoted", "status") == "True";
    let text = |number| format!("one-{number}");
    let killed = killed_at_each_write(&mut stage, spec, acts, text).await;
    // The status that it is loading, the revision that is kept, the child, two statuses.
    assert!(killed >= 4, "only {killed} hosts were killed");
}

#[tokio::test]
async fn a_host_killed_at_any_write_of_a_rollback_ends_with_the_good_revision() {
    let mut stage = Stage::new("survived", &["a"], json!({})).await;
    let good = revision(&stage.settled().await, "active");
    let spec = |number| {
        let (suffix, once) = (format!("-bad{number}"), format!("one-bad{number}"));
        let config = json!({"suffix": suffix, "fault": "panic", "faultOnceTextIs": once});
        json!({"config": config, "rollout": {"policy": "Always"}})
    };
    let is_back = |plugin: &Value| {
        plugin["status"]["candidate"]["reason"] == "Quarantined"
            && revision(plugin, "active") == good
    };
    let killed = killed_at_each_write(&mut stage, spec, is_back, |_| "one".to_owned()).await;
    // That it is loading, what is kept, that it acts, the child, that it was taken back, the child again.
    assert!(killed >= 5, "only {killed} hosts were killed");
}

#[tokio::test]
async fn what_a_plugin_saw_is_run_again_byte_for_byte_with_any_build() {
    let stage = Stage::new("replay", &["a"], json!({})).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.json");
    let file = file.to_str().unwrap();
    stage.succeeds(&["record", "Puppet", "a", "-n", "replay", "--output", file]);
    let same = plugin_at("tests/it/puppet", None).unwrap();
    let said = stage.succeeds(&["replay", file, "--with", same.to_str().unwrap()]);
    assert!(said.contains("the same, byte for byte") && !said.contains("fails"), "{said}");
    let checked = stage.succeeds(&["check", same.to_str().unwrap(), file]);
    assert!(checked.contains("ok    snapshot     Puppet replay/a run 1"), "{checked}");
    let other = it::plugin("hello", None).unwrap();
    let said = stage.command(&["replay", file, "--with", other.to_str().unwrap()]);
    assert_eq!(said.status.code(), Some(1), "{}", both(&said));
    // A snapshot with another text: the decision is another one.
    let recorded = std::fs::read_to_string(file).unwrap();
    let changed = recorded.replacen("\\\"text\\\":\\\"one\\\"", "\\\"text\\\":\\\"two\\\"", 1);
    assert_ne!(recorded, changed);
    std::fs::write(file, changed).unwrap();
    let said = stage.command(&["replay", file, "--with", same.to_str().unwrap()]);
    assert!(both(&said).contains("~ ConfigMap a (.data.text)"), "{}", both(&said));
}

#[tokio::test]
async fn a_plugin_whose_source_and_object_are_deleted_stops_and_comes_back_with_them() {
    let stage = Stage::new("retired", &["a"], json!({})).await;
    let source = path("configmaps", HOST, "puppet");
    let mut kept = stage.rig.api.get(&source).await.unwrap();
    kept["metadata"] = json!({"name": "puppet", "labels": kept["metadata"]["labels"]});
    // Without its source it goes on.
    stage.rig.api.delete(&source, "Background").await.unwrap();
    stage.held("SourceMissing").await;
    stage.rig.api.puppet("retired", "a", &json!({"own": ["a"], "text": "two"})).await.unwrap();
    stage.text("a", "two").await;
    stage.rig.api.delete(&plugin(), "Background").await.unwrap();
    wait_for("the plugin to stop", PATIENCE, || async {
        Ok(stage.rig.host.log().contains("has stopped").then_some(()))
    })
    .await
    .unwrap();
    stage.rig.api.puppet("retired", "a", &json!({"own": ["a"], "text": "three"})).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(stage.text_now("a").await, "two");
    assert!(stage.rig.api.get(&plugin()).await.is_err(), "the Plugin came back by itself");
    stage.rig.api.apply(&source, &kept).await.unwrap();
    stage.text("a", "three").await;
    stage.rig.api.until("the Plugin", &plugin(), |plugin| !plugin.is_null()).await.unwrap();
}

#[tokio::test]
async fn a_plugin_acts_in_its_namespaces_and_in_more_only_with_consent() {
    let stage = Stage::new("inside", &["a"], json!({})).await;
    stage.set(json!({"namespaces": ["elsewhere"]})).await;
    let refused = stage.held("PluginSourceInvalid").await;
    assert!(refused["status"]["candidate"]["message"].as_str().unwrap().contains("elsewhere"));
    stage.set(json!({"namespaces": ["inside"]})).await;
    let inside = stage.settled().await;
    stage.rig.api.puppet("inside", "a", &json!({"own": ["a"], "text": "two"})).await.unwrap();
    stage.text("a", "two").await;
    stage.set(json!({})).await;
    let held = stage.held("MorePowers").await;
    assert!(held["status"]["candidate"]["message"].as_str().unwrap().contains("all namespaces"));
    assert_eq!(revision(&held, "active"), revision(&inside, "active"));
}

#[tokio::test]
async fn a_package_is_all_that_a_cluster_needs() {
    let stage = Stage::new("package", &[], json!({})).await;
    let (staged, _) = STAGED.get().unwrap();
    let hello = it::plugin("hello", None).unwrap();
    let manifests = stage.succeeds(&["package", hello.to_str().unwrap()]);
    let dry = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
    let applied = staged.cluster.kubectl_stdin(&dry, &manifests).await.unwrap();
    for kind in ["configmap/hello-plugin", "plugin.plugins.operator-host.dev/hello", "clusterrole"]
    {
        assert!(applied.contains(kind), "{applied}");
    }
}

#[tokio::test]
async fn a_plugin_does_what_its_service_account_may_and_no_more() {
    let stage = Stage::new("account", &["a"], json!({})).await;
    let (staged, _) = STAGED.get().unwrap();
    let impersonation = it::root().unwrap().join("deploy/impersonation");
    let apply = ["apply", "--server-side", "-k", impersonation.to_str().unwrap()];
    staged.cluster.kubectl(&apply).await.unwrap();
    staged.cluster.kubectl(&["-n", HOST, "create", "serviceaccount", "limited"]).await.unwrap();
    let before = stage.settled().await;
    let spec = |text: &str| {
        let rollout = json!({"policy": "Always"});
        json!({"serviceAccountName": "limited", "config": {"suffix": text}, "rollout": rollout})
    };
    // It may see nothing, so the plugin sees nothing through the host's cache either.
    stage.set(spec("-1")).await;
    let refused = stage.held("PluginAccessDenied").await;
    let message = condition(&refused, "Authorized", "message");
    assert!(message.contains("limited") && message.contains("list v1/ConfigMap"), "{message}");
    assert_eq!(revision(&refused, "active"), revision(&before, "active"));
    // It may see everything and write all but ConfigMaps.
    let manifests = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: limited, namespace: account}
rules:
  - {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited, namespace: account}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: limited}
subjects: [{kind: ServiceAccount, name: limited, namespace: operator-host}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: puppets, namespace: account}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operator-host-puppet}
subjects: [{kind: ServiceAccount, name: limited, namespace: operator-host}]
"#;
    staged.cluster.kubectl_stdin(&["apply", "-f", "-"], manifests).await.unwrap();
    stage.set(spec("-2")).await;
    stage.settled().await;
    let at = path("puppets", "account", "a");
    let told = stage.rig.api.until("the refusal to be told", &at, |parent| {
        condition(parent, "Reconciled", "reason") == "Forbidden"
    });
    let told = told.await.unwrap();
    let message = condition(&told, "Reconciled", "message");
    assert!(message.contains("system:serviceaccount:operator-host:limited"), "{message}");
    assert_eq!(stage.text_now("a").await, "one");
}

#[tokio::test]
async fn a_parent_that_leaves_in_the_middle_of_a_swap_leaves_by_the_new_revision() {
    let stage = Stage::new("leaving", &[], json!({})).await;
    let api = &stage.rig.api;
    let hold = path("configmaps", "leaving", "hold");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hold"}});
    api.apply(&hold, &body).await.unwrap();
    let spec = json!({"own": ["a"], "text": "one", "waitForGone": "hold"});
    api.puppet("leaving", "p", &spec).await.unwrap();
    stage.text("a", "one").await;
    let parent = path("puppets", "leaving", "p");
    api.delete(&parent, "Background").await.unwrap();
    stage.set(json!({"config": {"suffix": "-two"}, "rollout": {"policy": "Always"}})).await;
    stage.settled().await;
    stage.text("a", "one-two").await;
    api.get(&parent).await.expect("it has not finished");
    api.delete(&hold, "Background").await.unwrap();
    api.until_gone(&parent).await.unwrap();
}

#[tokio::test]
async fn an_api_server_that_is_away_in_the_middle_of_a_swap_only_delays_it() {
    let stage = Stage::new("away", &["a"], json!({})).await;
    let away = stage.rig.proxy.inject(Fault::Refuse(503), Asked::is_write);
    let rollout = json!({"maxChangedPercent": 100});
    stage.set(json!({"config": {"suffix": "-two"}, "rollout": rollout})).await;
    wait_for("writes to be refused", PATIENCE, || async { Ok((away.hits() > 2).then_some(())) })
        .await
        .unwrap();
    assert_eq!(stage.text_now("a").await, "one");
    drop(away);
    stage.settled().await;
    stage.text("a", "one-two").await;
}
