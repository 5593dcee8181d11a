//! The running control plane: etcd, kube-apiserver, kube-controller-manager, and their flags.
//!
//! What differs from a production set-up: etcd does not fsync; endpoint controllers are off
//! (endpoint slices refuse loopback addresses); pods leave dead nodes in seconds; no kube-scheduler
//! (the process node binds pods itself).

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::Client;

use crate::binaries::ControlPlane;
use crate::block::AddressBlock;
use crate::pki::Pki;
use crate::process::{Daemon, Spawner};

/// Pods leave an unreachable node after this many seconds (real default 300).
const UNREACHABLE_TOLERATION_S: &str = "5";
/// The API server starts in 4 s on an idle 2-core machine; this is for a busy one.
const READY_DEADLINE: Duration = Duration::from_secs(90);
/// An API server that is stopped alone gets this long before SIGKILL.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Everything needed to start a control plane program again.
#[derive(Debug)]
pub(crate) struct Servers {
    plane: ControlPlane,
    pki: Pki,
    block: Arc<AddressBlock>,
    logs: PathBuf,
    data: PathBuf,
    spawner: Arc<Spawner>,
    node_grace: Duration,
    etcd: Option<Daemon>,
    apiserver: Option<Daemon>,
    controllers: Option<Daemon>,
}

impl Servers {
    pub(crate) fn new(
        plane: ControlPlane,
        pki: Pki,
        block: Arc<AddressBlock>,
        state: &Path,
        spawner: Arc<Spawner>,
        node_grace: Duration,
    ) -> Self {
        let (logs, data) = (state.join("logs"), state.join("etcd"));
        Self {
            plane,
            pki,
            block,
            logs,
            data,
            spawner,
            node_grace,
            etcd: None,
            apiserver: None,
            controllers: None,
        }
    }

    /// Starts all three and waits until the API server is ready.
    pub(crate) async fn start(&mut self, client: &Client) -> Result<()> {
        self.run_etcd().await?;
        self.start_apiserver(client).await?;
        let log = self.log("kube-controller-manager");
        let arguments = self.controller_arguments();
        let program = &self.plane.controller_manager;
        self.controllers = Some(
            Daemon::start(&self.spawner, "kube-controller-manager", program, &arguments, &log)
                .await?,
        );
        Ok(())
    }

    /// Starts the API server (again) and waits until it is ready.
    pub(crate) async fn start_apiserver(&mut self, client: &Client) -> Result<()> {
        if self.apiserver.is_some() {
            bail!("the API server is running already");
        }
        let log = self.log("kube-apiserver");
        let arguments = self.apiserver_arguments();
        let program = &self.plane.apiserver;
        let mut daemon =
            Daemon::start(&self.spawner, "kube-apiserver", program, &arguments, &log).await?;
        self.until_ready(client, &mut daemon).await?;
        self.apiserver = Some(daemon);
        Ok(())
    }

    /// Waits until an API server is ready, which it is only with its etcd.
    async fn until_ready(&mut self, client: &Client, apiserver: &mut Daemon) -> Result<()> {
        let (log, etcd_log) = (self.log("kube-apiserver"), self.log("etcd"));
        let deadline = Instant::now() + READY_DEADLINE;
        while !is_ready(client).await {
            apiserver.check(&log)?;
            if let Some(etcd) = &mut self.etcd {
                etcd.check(&etcd_log)?;
            }
            if Instant::now() > deadline {
                bail!("not ready after {READY_DEADLINE:?}:\n{}", crate::process::tail(&log, 10));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Stops the API server; the rest goes on and has to cope.
    pub(crate) async fn stop_apiserver(&mut self) -> Result<()> {
        let daemon = self.apiserver.take().context("the API server is not running")?;
        daemon.stop(STOP_PATIENCE).await
    }

    /// Kills the API server without a word to anybody.
    pub(crate) async fn kill_apiserver(&mut self) -> Result<()> {
        self.apiserver.take().context("the API server is not running")?.kill().await
    }

    /// Kills etcd. Nothing is lost that it has acknowledged: this process's death is not the machine's.
    pub(crate) async fn stop_etcd(&mut self) -> Result<()> {
        self.etcd.take().context("etcd is not running")?.kill().await
    }

    /// Starts etcd on what it has kept, and waits for the API server to find it.
    pub(crate) async fn start_etcd(&mut self, client: &Client) -> Result<()> {
        if self.etcd.is_some() {
            bail!("etcd is running already");
        }
        self.run_etcd().await?;
        let Some(mut apiserver) = self.apiserver.take() else {
            return Ok(());
        };
        let ready = self.until_ready(client, &mut apiserver).await;
        self.apiserver = Some(apiserver);
        ready
    }

    async fn run_etcd(&mut self) -> Result<()> {
        let (program, log) = (&self.plane.etcd, self.log("etcd"));
        let etcd =
            Daemon::start(&self.spawner, "etcd", program, &self.etcd_arguments(), &log).await?;
        self.etcd = Some(etcd);
        Ok(())
    }

    /// Kills everything, clients first: nothing is left to be saved, and a polite end takes seconds.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        let daemons = [self.controllers.take(), self.apiserver.take(), self.etcd.take()];
        for daemon in daemons.into_iter().flatten() {
            daemon.kill().await?;
        }
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    fn etcd_url(&self) -> String {
        format!("http://{}:2379", self.block.control_address(1))
    }

    fn etcd_arguments(&self) -> Vec<String> {
        let peer = format!("http://{}:2380", self.block.control_address(1));
        vec![
            "--name=default".to_owned(),
            format!("--data-dir={}", self.data.display()),
            format!("--listen-client-urls={}", self.etcd_url()),
            format!("--advertise-client-urls={}", self.etcd_url()),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn apiserver_arguments(&self) -> Vec<String> {
        let pki = &self.pki;
        vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--bind-address={}", Ipv4Addr::LOCALHOST),
            format!("--advertise-address={}", Ipv4Addr::LOCALHOST),
            format!("--secure-port={}", self.block.apiserver_port()),
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            format!("--tls-cert-file={}", pki.server_certificate.display()),
            format!("--tls-private-key-file={}", pki.server_key.display()),
            format!("--token-auth-file={}", pki.tokens.display()),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki.service_account_public.display()),
            format!("--service-account-signing-key-file={}", pki.service_account_key.display()),
            // It would keep new nodes tainted until the node controller has seen them.
            "--disable-admission-plugins=TaintNodesByCondition".to_owned(),
            format!("--default-not-ready-toleration-seconds={UNREACHABLE_TOLERATION_S}"),
            format!("--default-unreachable-toleration-seconds={UNREACHABLE_TOLERATION_S}"),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
            "--shutdown-send-retry-after=false".to_owned(),
        ]
    }

    fn controller_arguments(&self) -> Vec<String> {
        let pki = &self.pki;
        let off = [
            // EndpointSlices refuse 127.0.0.0/8.
            "endpoints-controller",
            "endpointslice-controller",
            "endpointslice-mirroring-controller",
            // Nothing here has metrics, routes or attachable volumes.
            "horizontal-pod-autoscaler-controller",
            "persistentvolume-attach-detach-controller",
            "node-ipam-controller",
        ];
        vec![
            format!("--kubeconfig={}", pki.controller_kubeconfig.display()),
            format!("--bind-address={}", self.block.control_address(2)),
            format!("--cert-dir={}", self.data.with_file_name("controller-manager").display()),
            "--leader-elect=false".to_owned(),
            format!("--controllers=*,-{}", off.join(",-")),
            format!("--root-ca-file={}", pki.ca_certificate.display()),
            format!("--service-account-private-key-file={}", pki.service_account_key.display()),
            format!("--node-monitor-grace-period={}s", self.node_grace.as_secs()),
            "--node-monitor-period=1s".to_owned(),
            "--node-eviction-rate=10".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
            "--profiling=false".to_owned(),
        ]
    }
}

async fn is_ready(client: &Client) -> bool {
    let Ok(request) = http_get("/readyz") else {
        return false;
    };
    matches!(
        tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await,
        Ok(Ok(_))
    )
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).context("building a request")
}
