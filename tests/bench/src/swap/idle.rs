//! What a further plugin costs that has nothing to do.
//!
//! A plugin's name is part of its bytes, and a kind has one plugin. So one component is built, and its copies get names
//! of the same length in its data: `tutorial` and `Tutorial` become `tutor000` and `Tutor000`, and so on.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use devcluster::wait_for;
use serde_json::{Value, json};

use super::follow::{condition, name};
use super::stage::{PLUGINS, Stage};
use crate::say;

/// All compile one after the other, a second or two each: 999 take at most 33 minutes.
const PATIENCE: Duration = Duration::from_mins(40);

/// Copies of a component made in one request to kubectl: each is a quarter of a megabyte.
const AT_ONCE: usize = 20;

/// What it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// Resident set for each, KiB.
    pub(super) kib: f64,
}

/// Starts a host with one plugin, gives it `count` more, and compares its memory at rest.
pub(super) async fn measure(stage: &Stage<'_>, count: u32) -> anyhow::Result<Idle> {
    let component = stage.built.plugins.first().context("no plugin was built")?;
    let component = std::fs::read(component).context("cannot read the plugin")?;
    kinds(stage, count).await?;
    let mut host = stage.host("idle.log")?;
    let measured = async {
        active(stage, 1).await?;
        host.rest().await?;
        let before = host.usage()?.rss_bytes;
        say::fact(&format!("with one plugin: {} KiB", before >> 10));
        let copies: Vec<u32> = (0..count).collect();
        for some in copies.chunks(AT_ONCE) {
            let copy = |number: &u32| {
                let bytes = renamed(&component, *number)?;
                if *number == 0 {
                    inspect(stage, &bytes)?;
                }
                Ok(stage.plugin(&plugin(*number), &bytes))
            };
            let copies = some.iter().map(copy).collect::<anyhow::Result<Vec<_>>>()?;
            stage.create(&copies).await?;
        }
        active(stage, usize::try_from(count)? + 1).await?;
        host.rest().await?;
        let after = host.usage()?.rss_bytes;
        say::fact(&format!("with {count} more: {} KiB", after >> 10));
        #[expect(clippy::cast_precision_loss, reason = "the memory of a process fits 52 bits")]
        let grown = (after as f64 - before as f64) / 1024.0;
        Ok::<_, anyhow::Error>(Idle { kib: grown / f64::from(count) })
    };
    let measured = measured.await;
    let measured = measured.with_context(|| format!("its log ends: {}", host.last_words()));
    host.stop().await?;
    measured
}

fn plugin(number: u32) -> String {
    format!("tutor{number:03}")
}

fn kind(number: u32) -> String {
    format!("Tutor{number:03}")
}

/// A copy under another name and for another kind.
fn renamed(component: &[u8], number: u32) -> anyhow::Result<Vec<u8>> {
    let copy = replaced(component, b"tutorial", plugin(number).as_bytes())?;
    replaced(&copy, b"Tutorial", kind(number).as_bytes())
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> anyhow::Result<Vec<u8>> {
    ensure!(old.len() == new.len(), "a name of another length does not fit");
    let (mut copy, mut rest, mut found) = (Vec::with_capacity(bytes.len()), bytes, false);
    while let Some((first, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(old) {
            copy.extend_from_slice(new);
            (rest, found) = (behind, true);
        } else {
            copy.push(*first);
            rest = behind;
        }
    }
    ensure!(found, "the component does not hold {}", String::from_utf8_lossy(old));
    Ok(copy)
}

/// Asks the host's own tool what it makes of the first copy.
fn inspect(stage: &Stage<'_>, copy: &[u8]) -> anyhow::Result<()> {
    let file = stage.cluster.state_dir().join("copy.wasm");
    std::fs::write(&file, copy)?;
    let text = output(&stage.built.host, &["plugin", "inspect", "--json"], &file)?;
    if !(text.contains(&format!("\"{}\"", plugin(0))) && text.contains(&kind(0))) {
        bail!("a copy is not what it should be: {text}");
    }
    Ok(())
}

fn output(program: &Path, arguments: &[&str], file: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).arg(file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "inspecting a copy: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The copies' kinds, as the tutorial's, and the right to see them.
async fn kinds(stage: &Stage<'_>, count: u32) -> anyhow::Result<()> {
    let group = "bench.operator-host.dev";
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let tutorial = stage.api.get(&format!("{crds}/tutorials.{group}")).await?;
    let versions = tutorial.pointer("/spec/versions").context("a CRD without versions")?;
    let crd = |number: u32| {
        let (kind, singular) = (kind(number), plugin(number));
        let plural = format!("{singular}s");
        let list = format!("{kind}List");
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": versions,
                "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": list},
            },
        })
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "bench-idle"},
        "rules": [{"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "bench-idle"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench-idle",
        },
        "subjects": [{
            "kind": "ServiceAccount", "name": super::stage::HOST, "namespace": super::stage::HOST,
        }],
    });
    let objects: Vec<Value> = (0..count).map(crd).chain([role, binding]).collect();
    stage.create(&objects).await?;
    let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=5m"];
    stage.cluster.kubectl(&established).await?;
    Ok(())
}

/// Waits until so many plugins act.
async fn active(stage: &Stage<'_>, count: usize) -> anyhow::Result<()> {
    let what = format!("{count} active plugins");
    wait_for(&what, PATIENCE, || async {
        let list = stage.api.get(PLUGINS).await?;
        let plugins = list.get("items").and_then(Value::as_array).context("no list")?;
        let ready = |plugin: &&Value| {
            let ready = condition(plugin, "Ready").and_then(|ready| ready.get("status"));
            ready.and_then(Value::as_str) == Some("True")
        };
        let ready: Vec<&str> = plugins.iter().filter(ready).filter_map(name).collect();
        Ok((ready.len() == count).then_some(()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_differs_in_its_names_alone() {
        let copy = renamed(b"a tutorial for Tutorials of tutorial", 7).unwrap();
        assert_eq!(copy, b"a tutor007 for Tutor007s of tutor007");
        assert!(renamed(b"a tutorial", 7).is_err());
    }
}
