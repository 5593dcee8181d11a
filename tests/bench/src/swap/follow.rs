//! Watches of the benchmark itself.
//!
//! **Invariant:** the time of a change is taken where it is read from the connection, not where it is looked at.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::say;

/// A watch that has ended goes on after this.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Ends its watch when dropped.
pub(super) struct Following {
    _task: JoinSet<()>,
}

/// Gives every object of a collection to `seen`: those that are there, and from then on whatever is written.
///
/// A watch that breaks is said and ends: whoever waits for what it should have shown fails at the deadline.
pub(super) async fn follow(
    api: &Api,
    path: String,
    mut seen: impl FnMut(Instant, &Value) + Send + 'static,
) -> anyhow::Result<Following> {
    let list = api.get(&path).await?;
    let items = list.get("items").and_then(Value::as_array);
    for object in items.into_iter().flatten() {
        seen(Instant::now(), object);
    }
    let from = version(&list).context("a list has no version")?.to_owned();
    let (api, mut task) = (api.clone(), JoinSet::new());
    task.spawn(async move {
        if let Err(error) = watch(&api, &path, from, seen).await {
            say::fact(&format!("the watch of {path} broke: {error:#}"));
        }
    });
    Ok(Following { _task: task })
}

async fn watch(
    api: &Api,
    path: &str,
    mut from: String,
    mut seen: impl FnMut(Instant, &Value),
) -> anyhow::Result<()> {
    loop {
        let mut lines = Box::pin(api.follow(path, &from).await?).lines();
        while let Some(line) = lines.next().await {
            let at = Instant::now();
            // The server ends a watch now and then.
            let Ok(line) = line else { break };
            let event: Value = serde_json::from_str(&line).context("no JSON")?;
            let object = event.get("object").with_context(|| format!("it said {line}"))?;
            version(object).with_context(|| format!("it said {line}"))?.clone_into(&mut from);
            seen(at, object);
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

fn version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion")?.as_str()
}

/// The name of an object.
pub(super) fn name(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name")?.as_str()
}

/// One condition of an object.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(kind))
}

/// The newest state of one `Plugin`.
pub(super) struct PluginSight {
    newest: watch::Receiver<Value>,
    _following: Following,
}

impl PluginSight {
    /// Looks at one `Plugin` of a collection.
    pub(super) async fn start(api: &Api, plugins: &str, plugin: &str) -> anyhow::Result<Self> {
        let (sender, newest) = watch::channel(Value::Null);
        let plugin = plugin.to_owned();
        let following = follow(api, plugins.to_owned(), move |_, object| {
            if name(object) == Some(&plugin) {
                sender.send_replace(object.clone());
            }
        });
        Ok(Self { newest, _following: following.await? })
    }

    /// Waits until the host has told about `generation` of the spec, and what it told satisfies a condition.
    pub(super) async fn until(
        &mut self,
        what: &str,
        deadline: Duration,
        generation: i64,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let told = |plugin: &Value| {
            let observed = plugin.pointer("/status/observedGeneration").and_then(Value::as_i64);
            observed.is_some_and(|observed| observed >= generation) && holds(plugin)
        };
        let found = match tokio::time::timeout(deadline, self.newest.wait_for(told)).await {
            Ok(found) => Some(found.context("the watch of the Plugins has ended")?.clone()),
            Err(_) => None,
        };
        found.with_context(|| {
            let plugin = self.newest.borrow();
            let status = plugin.get("status").unwrap_or(&Value::Null);
            format!("waited {deadline:?} for {what}; the Plugin's status is {status}")
        })
    }
}

/// The revision that acts, if the newest one does.
pub(super) fn acts(plugin: &Value) -> Option<&str> {
    let newest = plugin.pointer("/status/candidate").is_none();
    active(plugin).filter(|_| newest)
}

/// The revision that acts.
pub(super) fn active(plugin: &Value) -> Option<&str> {
    plugin.pointer("/status/active/revision")?.as_str()
}

/// Why the newest revision does not act.
pub(super) fn held(plugin: &Value) -> Option<&str> {
    plugin.pointer("/status/candidate/reason")?.as_str()
}
