//! A host behind a fault proxy, on a cluster that has the plugins and no host of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use devcluster::{DevCluster, Options};
use faults::FaultProxy;
use tempfile::TempDir;

use crate::api::Api;
use crate::host_process::{HostOptions, HostProcess, log_file};
use crate::{HOST, host_binary, plugin, plugin_at, root};

/// The plugins of a staged cluster: puppet, hello, redis.
const PLUGINS: usize = 3;

/// A cluster with the host's RBAC and three plugins: redis from `deploy/`, hello, and the puppet.
pub struct Staged {
    /// The cluster.
    pub cluster: DevCluster,
    /// For compiled plugins.
    cache: TempDir,
}

impl Staged {
    /// Starts it, and a host for a moment, so that later ones find the plugins compiled. Without the kind `Plugin`: each
    /// of several hosts at once would write its own story into the one status.
    pub async fn start() -> Result<Self> {
        Self::prepare(|manifest| !manifest.contains("name: plugins.plugins.operator-host.dev"))
            .await
    }

    /// The same with the kind `Plugin`, for one host at a time.
    pub async fn with_plugin_kind() -> Result<Self> {
        Self::prepare(|_| true).await
    }

    async fn prepare(wanted: impl Fn(&str) -> bool) -> Result<Self> {
        let built = tokio::task::spawn_blocking(|| {
            let redis = plugin("redis", None)?;
            host_binary()?;
            anyhow::Ok([redis, plugin("hello", None)?, plugin_at("tests/it/puppet", None)?])
        });
        let [redis, hello, puppet] = built.await??;
        std::fs::copy(redis, root()?.join("deploy/plugins/redis/redis.wasm"))
            .context("cannot put the plugin in place")?;
        let cluster = DevCluster::start(Options { quiet: true, ..Options::default() }).await?;
        let deploy = cluster.kubectl(&["kustomize", &folder("deploy")?]).await?;
        // The hosts of these tests run beside the cluster.
        let ours = |one: &&str| !one.contains("kind: Deployment") && wanted(one);
        let without_host: Vec<&str> = deploy.split("\n---\n").filter(ours).collect();
        let manifests = without_host.join("\n---\n");
        cluster.kubectl_stdin(&["apply", "--server-side", "-f", "-"], &manifests).await?;
        for file in [
            "plugins/hello/greetings.yaml",
            "plugins/hello/rbac.yaml",
            "tests/it/puppet/deploy.yaml",
        ] {
            cluster.kubectl(&["apply", "--server-side", "-f", &folder(file)?]).await?;
        }
        load(&cluster, "hello", hello, "plugins/hello/plugin.yaml").await?;
        load(&cluster, "puppet", puppet, "tests/it/puppet/plugin.yaml").await?;
        let cache = tempfile::tempdir().context("making a folder for compiled plugins")?;
        let staged = Self { cluster, cache };
        staged.rig(&["default"]).await?;
        Ok(staged)
    }

    /// Starts a host that looks at these namespaces only, which are made; and a proxy before it.
    pub async fn rig(&self, namespaces: &[&str]) -> Result<Rig> {
        self.rig_with(namespaces, &[], &[]).await
    }

    /// The same, with more arguments and environment.
    pub async fn rig_with(
        &self,
        namespaces: &[&str],
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Rig> {
        let owned = |text: &&str| (*text).to_owned();
        let api = Api::new(&self.cluster)?;
        for namespace in namespaces {
            api.namespace(namespace).await?;
        }
        let proxy = FaultProxy::start(self.cluster.kubeconfig(), HOST, HOST).await?;
        let options = HostOptions {
            kubeconfig: proxy.kubeconfig().to_owned(),
            cache: self.cache.path().to_owned(),
            namespaces: namespaces.iter().map(ToString::to_string).collect(),
            arguments: arguments.iter().map(owned).collect(),
            environment: environment
                .iter()
                .map(|(key, value)| (owned(key), owned(value)))
                .collect(),
        };
        let folder = tempfile::tempdir().context("making a folder for the log")?;
        let log = log_file(folder.path())?;
        let host = HostProcess::start(&options, &log)?;
        host.loaded(PLUGINS).await?;
        let admin = self.cluster.kubeconfig().to_owned();
        Ok(Rig { api, proxy, host, admin, options, log, _folder: folder })
    }
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staged").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// A host and its proxy. The host goes first when this is dropped.
#[derive(Debug)]
pub struct Rig {
    /// The host.
    pub host: HostProcess,
    /// Its proxy.
    pub proxy: FaultProxy,
    /// An administrator, past the proxy.
    pub api: Api,
    admin: PathBuf,
    options: HostOptions,
    log: PathBuf,
    _folder: TempDir,
}

impl Rig {
    /// The kubeconfig of an administrator, for commands.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// Another host in the place of one that was killed.
    pub async fn restart_host(&mut self) -> Result<()> {
        self.host.kill();
        self.host = HostProcess::start(&self.options, &self.log)?;
        self.host.loaded(PLUGINS).await
    }
}

fn folder(path: &str) -> Result<String> {
    Ok(root()?.join(path).to_string_lossy().into_owned())
}

/// Makes a plugin's ConfigMap, as a user would.
async fn load(cluster: &DevCluster, name: &str, wasm: PathBuf, settings: &str) -> Result<()> {
    let wasm = format!("--from-file=plugin.wasm={}", wasm.display());
    let settings = format!("--from-file=plugin.yaml={}", folder(settings)?);
    cluster.kubectl(&["-n", HOST, "create", "configmap", name, &wasm, &settings]).await?;
    let label = format!("operator-host.dev/plugin={name}");
    cluster.kubectl(&["-n", HOST, "label", "configmap", name, &label]).await?;
    Ok(())
}
