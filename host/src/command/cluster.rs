//! A `Plugin` of the cluster, as commands find and change it.
//!
//! **Invariant:** a command changes the `Plugin`'s spec and nothing else; the host does the rest, and its status tells.

use std::time::Duration;

use anyhow::{Context as _, bail};
use host_core::ident::{ObjectId, ObjectKey};
use host_core::plugin::{self, PluginSpec, PluginStatus};
use host_kube::{Client, ConnectOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::flags::{ClusterArgs, PluginArgs};

/// Who has changed a spec, in its managed fields.
const MANAGER: &str = "operator-host-cli";

/// How long the host may take to notice a change.
const SEEN_DEADLINE: Duration = Duration::from_secs(15);

/// How often it is looked whether it has.
const SEEN_POLL: Duration = Duration::from_millis(100);

/// A `Plugin` of the cluster.
pub(crate) struct Found {
    client: Client,
    /// Which one.
    pub(crate) id: ObjectId,
    /// As it was found.
    pub(crate) object: Object,
}

/// Its spec and status; conditions are beside the status, as the host adds them when it writes.
pub(crate) struct Object {
    pub(crate) spec: PluginSpec,
    pub(crate) status: PluginStatus,
    pub(crate) conditions: Vec<Condition>,
}

/// A condition as Kubernetes has them.
#[derive(Deserialize)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

impl Object {
    /// From what the API server has.
    pub(crate) fn read(json: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(default)]
            spec: PluginSpec,
            #[serde(default)]
            status: Value,
        }
        let Whole { spec, status } = serde_json::from_str(json)?;
        let conditions = status.get("conditions").cloned().unwrap_or_else(|| json!([]));
        let status = if status.is_null() { json!({}) } else { status };
        Ok(Self {
            spec,
            status: serde_json::from_value(status)?,
            conditions: serde_json::from_value(conditions)?,
        })
    }
}

impl Found {
    /// Looks it up.
    pub(crate) async fn find(args: PluginArgs) -> anyhow::Result<Self> {
        let PluginArgs { name, namespace, cluster: ClusterArgs { kubeconfig, context } } = args;
        let client = host_kube::connect(ConnectOptions { kubeconfig, context }).await?;
        let id = ObjectId { kind: plugin::kind(), key: ObjectKey::new(namespace, name) };
        let found = client.get(&id).await?;
        let found = found.with_context(|| {
            format!("{id} does not exist; `kubectl get plugins -A` lists those that do")
        })?;
        let object = Object::read(&found.json).with_context(|| format!("{id} cannot be read"))?;
        Ok(Self { client, id, object })
    }

    /// Sets some fields; gives the generation that has them.
    pub(crate) async fn set(&self, spec: Value) -> anyhow::Result<i64> {
        let changed = self.client.merge(&self.id, MANAGER, &json!({ "spec": spec })).await?;
        Ok(changed.generation)
    }

    /// Waits until the host has seen a generation.
    pub(crate) async fn seen(&self, generation: i64) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Whole {
            status: Seen,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Seen {
            observed_generation: i64,
        }
        let wait = async {
            loop {
                let object = self.client.get(&self.id).await?;
                let object = object.with_context(|| format!("{} is gone", self.id))?;
                let seen = serde_json::from_str::<Whole>(&object.json);
                if seen.is_ok_and(|seen| seen.status.observed_generation >= generation) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(SEEN_POLL).await;
            }
        };
        tokio::time::timeout(SEEN_DEADLINE, wait).await.unwrap_or_else(|_| {
            bail!("the host has not noticed a change within {SEEN_DEADLINE:?}; is it running?")
        })
    }
}

/// Runs what talks to a cluster or a registry.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(work)
}
