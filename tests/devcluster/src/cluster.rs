//! The cluster as a value: start, use, hurt, shut down.
//!
//! It has a runtime of its own, so it outlives the runtime of the test that started it and one
//! cluster can serve all tests of a binary.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::runtime::Runtime;

use crate::binaries::ControlPlane;
use crate::block::AddressBlock;
use crate::node::{self, Machine, Site};
use crate::pki::Pki;
use crate::process::Spawner;
use crate::report::Progress;
use crate::servers::Servers;
use crate::state::StateDir;
use crate::{logs, requirements, wait_for};

/// The controllers make the first service account within seconds.
const CONTROLLERS_DEADLINE: Duration = Duration::from_mins(1);

/// How to start a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of nodes, `node-0` and up.
    pub nodes: u8,
    /// What `operator-host:*` images run.
    pub operator_host_binary: Option<PathBuf>,
    /// Kept after shutdown; without it a temporary directory is used and removed.
    pub state_dir: Option<PathBuf>,
    /// A node whose lease is this old is not ready, and its pods leave it a little later. Longer than anything takes
    /// the control plane away, or nodes are lost with it; [`Options::SHORT_NODE_GRACE`] to see a node die.
    pub node_grace: Duration,
    /// No progress on stderr.
    pub quiet: bool,
}

impl Options {
    /// Eight missed heartbeats.
    pub const SHORT_NODE_GRACE: Duration = Duration::from_secs(8);
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 2,
            operator_host_binary: None,
            state_dir: None,
            // The controller manager's own default.
            node_grace: Duration::from_secs(50),
            quiet: false,
        }
    }
}

/// A running cluster. Dropping it kills it; [`DevCluster::shutdown`] stops it properly.
pub struct DevCluster {
    client_config: Config,
    plane: ControlPlane,
    pki: Pki,
    block: Arc<AddressBlock>,
    servers: tokio::sync::Mutex<Servers>,
    server_client: Client,
    site: Arc<Site>,
    spawner: Arc<Spawner>,
    state: StateDir,
    runtime: Option<Runtime>,
}

impl DevCluster {
    /// Starts a cluster and waits until it can run pods.
    ///
    /// Installs or builds what is missing first, see [`crate::ensure_requirements`] and
    /// [`ControlPlane::ensure_built`].
    pub async fn start(options: Options) -> Result<Self> {
        let quiet = options.quiet;
        let plane = tokio::task::spawn_blocking(move || {
            requirements::ensure_requirements(quiet)?;
            ControlPlane::ensure_built(quiet)
        })
        .await
        .context("preparing the programs")??;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("devcluster")
            .enable_all()
            .build()
            .context("making the cluster's runtime")?;
        let handle = runtime.handle().clone();
        let started = handle.spawn(Self::bring_up(options, plane, runtime)).await;
        started.context("starting the cluster")?
    }

    async fn bring_up(options: Options, plane: ControlPlane, runtime: Runtime) -> Result<Self> {
        let runtime = Unfinished(Some(runtime));
        let progress = Progress::new(options.quiet);
        let state = StateDir::open(options.state_dir.as_deref())?;
        let block = Arc::new(AddressBlock::claim()?);
        let port = block.apiserver_port();
        progress.say(&format!(
            "starting at https://127.0.0.1:{port}, pods in {}, state in {}",
            block.cidr(),
            state.path.display(),
        ));
        let pki = Pki::create(&state.path, port)?;
        let spawner = Arc::new(Spawner::start(tokio::runtime::Handle::current())?);
        let server_client = Client::try_from(client_config(&pki.node_kubeconfig).await?)?;
        let mut servers = Servers::new(
            plane.clone(),
            pki.clone(),
            Arc::clone(&block),
            &state.path,
            Arc::clone(&spawner),
            options.node_grace,
        );
        servers.start(&server_client).await?;
        let machine = Machine::new(
            server_client.clone(),
            Arc::clone(&spawner),
            Arc::clone(&block),
            state.path.clone(),
            options.operator_host_binary,
        )?;
        let site = Arc::new(Site::new(machine, options.nodes));
        node::start(&site).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(server_client.clone(), "default");
        wait_for("the default service account", CONTROLLERS_DEADLINE, || async {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        Ok(Self {
            client_config: client_config(&pki.admin_kubeconfig).await?,
            plane,
            pki,
            block,
            servers: tokio::sync::Mutex::new(servers),
            server_client,
            site,
            spawner,
            state,
            runtime: runtime.finish(),
        })
    }

    /// Kubeconfig of a cluster administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.pki.admin_kubeconfig
    }

    /// Where logs, keys and volumes are.
    pub fn state_dir(&self) -> &Path {
        &self.state.path
    }

    /// The addresses of this cluster's pods, `127.<n>.0.0/16`.
    pub fn pod_cidr(&self) -> String {
        self.block.cidr()
    }

    /// A new client of a cluster administrator, bound to the caller's runtime.
    pub fn client(&self) -> Result<Client> {
        Client::try_from(self.client_config.clone()).context("making a client")
    }

    /// Runs kubectl as administrator and returns its output; an error has its stderr.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_stdin(arguments, "").await
    }

    /// As [`DevCluster::kubectl`], with `input` as standard input (for `apply -f -`).
    pub async fn kubectl_stdin(&self, arguments: &[&str], input: &str) -> Result<String> {
        let line = format!("kubectl {}", arguments.join(" "));
        let mut command = Command::new(&self.plane.kubectl);
        command
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.state.path.join("kubectl-cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("starting {line}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input closes the pipe: no error of ours.
            drop(stdin.write_all(input.as_bytes()).await);
        }
        let output = child.wait_with_output().await.with_context(|| format!("running {line}"))?;
        if !output.status.success() {
            bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Signals the first process of a container; a killed one is restarted in its pod.
    pub fn kill_container(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        signal: Signal,
    ) -> Result<()> {
        self.site.signal(namespace, pod, Some(container), signal)
    }

    /// Signals the first process of every container of a pod.
    pub fn kill_pod(&self, namespace: &str, pod: &str, signal: Signal) -> Result<()> {
        self.site.signal(namespace, pod, None, signal)
    }

    /// SIGSTOP for the first process of every container: alive, connected and silent.
    pub fn freeze(&self, namespace: &str, pod: &str) -> Result<()> {
        self.site.signal(namespace, pod, None, Signal::STOP)
    }

    /// SIGCONT: the end of [`DevCluster::freeze`].
    pub fn thaw(&self, namespace: &str, pod: &str) -> Result<()> {
        self.site.signal(namespace, pod, None, Signal::CONT)
    }

    /// A node loses power: its processes are killed, its heartbeats end, the API is not told.
    pub async fn kill_node(&self, name: &str) -> Result<()> {
        self.site.kill_node(name).await
    }

    /// A killed node comes back, and its pods with it, at other addresses.
    pub fn start_node(&self, name: &str) -> Result<()> {
        let _entered = self.runtime.as_ref().map(Runtime::enter);
        self.site.start_node(name)
    }

    /// Everything that containers of that name in that pod have written, over all restarts.
    pub fn logs(&self, namespace: &str, pod: &str, container: &str) -> Result<String> {
        logs::read(&self.state.path, namespace, pod, container)
    }

    /// Pid, as seen from here, of a container's first process.
    pub fn container_pid(&self, namespace: &str, pod: &str, container: &str) -> Option<u32> {
        self.site.container_pid(namespace, pod, container)
    }

    /// Stops the API server; pods, etcd and controllers go on.
    pub async fn stop_apiserver(&self) -> Result<()> {
        self.servers.lock().await.stop_apiserver().await
    }

    /// Kills the API server: no goodbye to watches, no answer to what is under way.
    pub async fn kill_apiserver(&self) -> Result<()> {
        self.servers.lock().await.kill_apiserver().await
    }

    /// Kills etcd; the API server goes on without a store. The data stays.
    pub async fn stop_etcd(&self) -> Result<()> {
        self.servers.lock().await.stop_etcd().await
    }

    /// Starts etcd again on its data and waits until the API server has it back.
    pub async fn start_etcd(&self) -> Result<()> {
        self.servers.lock().await.start_etcd(&self.server_client).await
    }

    /// Starts the API server again and waits until it is ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        self.servers.lock().await.start_apiserver(&self.server_client).await
    }

    /// Stops pods, then the control plane, and removes a temporary state directory.
    pub async fn shutdown(self) -> Result<()> {
        let pods = self.site.stop().await;
        let servers = self.servers.lock().await.kill().await;
        pods.and(servers)
    }
}

impl Drop for DevCluster {
    fn drop(&mut self) {
        self.spawner.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if std::thread::panicking() {
            let path = self.state.path.display();
            crate::report::warn(&format!("a panic: logs stay in {path} until the next start"));
        } else {
            self.state.discard();
        }
    }
}

impl std::fmt::Debug for DevCluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("DevCluster")
            .field("state_dir", &self.state.path)
            .finish_non_exhaustive()
    }
}

/// A runtime must not be dropped where it runs; a failed start hands it to the background.
struct Unfinished(Option<Runtime>);

impl Unfinished {
    fn finish(mut self) -> Option<Runtime> {
        self.0.take()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn client_config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("reading the kubeconfig")?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("using the kubeconfig")
}
