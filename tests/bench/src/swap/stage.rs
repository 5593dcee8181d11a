//! The cluster with everything a host needs, and what a user changes in it: bytes and the `Plugin`'s spec.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use devcluster::DevCluster;
use host_core::ident::Digest;
use serde_json::{Value, json};

use crate::account::{Account, Requests};
use crate::api::Api;
use crate::build::SwapBuilt;
use crate::operator::Operator;

/// The namespace of the host, and the name of its account.
pub(super) const HOST: &str = "operator-host";

/// The plugin.
pub(super) const PLUGIN: &str = "tutorial";

/// The namespace of the parents.
pub(super) const PARENTS: &str = "bench-swap";

/// The collection of `Plugins`.
pub(super) const PLUGINS: &str =
    "/apis/plugins.operator-host.dev/v1alpha1/namespaces/operator-host/plugins";

/// Writes to a `Plugin`'s status are counted apart.
const STATUS: &str = "plugin-status";

/// What the host logs: what its rollouts do in detail, the rest as it does by default.
const LOG: &str = "info,host_engine::rollout=debug";

/// Bytes of the plugin.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// As the condition `Reconciled` shows it.
    pub(super) digest: String,
    encoded: String,
}

impl Version {
    /// Reads a component.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self { digest: Digest::of(&bytes).short(), encoded: base64(&bytes) })
    }
}

/// The cluster, prepared.
pub(super) struct Stage<'a> {
    pub(super) cluster: &'a DevCluster,
    pub(super) built: &'a SwapBuilt,
    pub(super) api: Api,
    pub(super) settings: String,
    account: Account,
}

impl<'a> Stage<'a> {
    /// Installs the kinds, the host's account with its rights, the counting, and the plugin with its first bytes.
    pub(super) async fn prepare(
        cluster: &'a DevCluster,
        built: &'a SwapBuilt,
        first: &Version,
    ) -> anyhow::Result<Self> {
        let file = |path: &str| built.root.join(path).to_string_lossy().into_owned();
        let kinds = file("crds/host/plugins.operator-host.dev_plugins.yaml");
        cluster.kubectl(&["apply", "--server-side", "-f", &kinds]).await?;
        // The host gets the rights that its deployment gives it.
        for manifest in ["namespace", "serviceaccount", "rbac"] {
            let manifest = file(&format!("deploy/base/{manifest}.yaml"));
            cluster.kubectl(&["-n", HOST, "apply", "-f", &manifest]).await?;
        }
        cluster.kubectl(&["apply", "-f", &file("tests/bench/manifests/bench.yaml")]).await?;
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
        cluster.kubectl(&["create", "namespace", PARENTS]).await?;
        let settings = std::fs::read_to_string(file("tests/bench/plugin/plugin.yaml"))
            .context("cannot read the plugin's settings")?;
        let account = Account { name: HOST };
        let stage = Self { cluster, built, api: Api::new(cluster.client()?), settings, account };
        account.count(cluster).await?;
        account.count_apart(cluster, STATUS, "plugins/status").await?;
        std::fs::write(stage.kubeconfig(), account.kubeconfig(cluster).await?)?;
        let plugin = json!({
            "apiVersion": "plugins.operator-host.dev/v1alpha1", "kind": "Plugin",
            "metadata": {"name": PLUGIN, "namespace": HOST},
            "spec": {"rollout": {"policy": "Always"}},
        });
        stage.create(&[plugin, stage.config_map(PLUGIN, &first.encoded)]).await?;
        Ok(stage)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.cluster.state_dir().join("swap.kubeconfig")
    }

    /// Starts a host whose machine code outlives it.
    pub(super) fn host(&self, log: &str) -> anyhow::Result<Operator> {
        let folder = self.cluster.state_dir();
        let (log, cache) = (folder.join(log), folder.join("swap-cache"));
        let arguments = ["--log".as_ref(), LOG.as_ref(), "--log-format".as_ref(), "json".as_ref()];
        let arguments = [&arguments[..], &["--cache-dir".as_ref(), cache.as_os_str()]].concat();
        Operator::host(&self.built.host, &self.kubeconfig(), log, &arguments)
    }

    fn config_map(&self, name: &str, encoded: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": HOST, "labels": {"operator-host.dev/plugin": name},
            },
            "binaryData": {"plugin.wasm": encoded},
            "data": {"plugin.yaml": self.settings},
        })
    }

    /// A ConfigMap with a component.
    pub(super) fn plugin(&self, name: &str, bytes: &[u8]) -> Value {
        self.config_map(name, &base64(bytes))
    }

    /// Creates objects.
    pub(super) async fn create(&self, objects: &[Value]) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.cluster.kubectl_stdin(&["create", "-f", "-"], &list.to_string()).await?;
        Ok(())
    }

    /// Adds a further plugin: a ConfigMap with a component; gives when the server had acknowledged it.
    pub(super) async fn add(&self, name: &str, bytes: &[u8]) -> anyhow::Result<Instant> {
        let path = format!("/api/v1/namespaces/{HOST}/configmaps");
        self.api.post(&path, &self.plugin(name, bytes)).await
    }

    /// Deletes the ConfigMap of a plugin.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        self.delete("configmaps", name).await
    }

    /// Deletes a `Plugin`. A host that still sees its ConfigMap would make it again.
    pub(super) async fn forget(&self, name: &str) -> anyhow::Result<()> {
        self.delete("plugins.plugins.operator-host.dev", name).await
    }

    async fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        self.cluster.kubectl(&["-n", HOST, "delete", "--ignore-not-found", kind, name]).await?;
        Ok(())
    }

    /// Replaces the plugin's bytes; gives when the server had acknowledged it.
    pub(super) async fn replace(&self, version: &Version) -> anyhow::Result<Instant> {
        let path = format!("/api/v1/namespaces/{HOST}/configmaps/{PLUGIN}");
        let patch = json!({"binaryData": {"plugin.wasm": version.encoded}});
        self.api.merge(&path, &patch).await?;
        Ok(Instant::now())
    }

    /// Changes the `Plugin`'s spec; gives its generation.
    pub(super) async fn set(&self, spec: Value) -> anyhow::Result<i64> {
        let path = format!("{PLUGINS}/{PLUGIN}");
        let plugin = self.api.merge(&path, &json!({ "spec": spec })).await?;
        let generation = plugin.pointer("/metadata/generation").and_then(Value::as_i64);
        generation.context("a Plugin without a generation")
    }

    /// The host's requests so far, without those to a `Plugin`'s status; and these.
    pub(super) async fn requests(&self) -> anyhow::Result<(Requests, u64)> {
        let all = self.account.requests(&self.api).await?;
        Ok((all, self.account.requests_apart(&self.api, STATUS).await?))
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |bits: u32| {
        let index = usize::try_from(bits & 63).unwrap_or_default();
        LETTERS.get(index).map_or('=', |letter| char::from(*letter))
    };
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            text.push(if at <= group.len() { letter(bits >> shift) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_as_the_rfc_does() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
