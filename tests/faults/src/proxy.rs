//! The server that a host under test talks to.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::exchange::{Asked, Traffic};
use crate::fault::{Fault, Injected, Moment, Trap};
use crate::shared::{Shared, WatchEnd};
use crate::{forward, identity};

/// A proxy to the API server; gone when dropped. It has a thread of its own, so a test may block.
pub struct FaultProxy {
    shared: Arc<Shared>,
    kubeconfig: PathBuf,
    runtime: Option<Runtime>,
    _folder: tempfile::TempDir,
}

impl FaultProxy {
    /// Starts a proxy that is `namespace`/`account` towards the API server of an administrator's kubeconfig.
    pub async fn start(kubeconfig: &Path, namespace: &str, account: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("making the proxy's folder")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault-proxy")
            .enable_all()
            .build()
            .context("making the proxy's runtime")?;
        let (kubeconfig, namespace, account) =
            (kubeconfig.to_owned(), namespace.to_owned(), account.to_owned());
        let starting = runtime.spawn(async move {
            let upstream = identity::service_account(&kubeconfig, &namespace, &account).await?;
            let shared = Arc::new(Shared::new(upstream));
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let address = listener.local_addr()?;
            tokio::spawn(accept(listener, Arc::clone(&shared)));
            anyhow::Ok((shared, address))
        });
        // A runtime may not be dropped where another one runs; it goes to the background.
        let (shared, address) = match starting.await.context("starting the proxy") {
            Ok(Ok(started)) => started,
            Ok(Err(error)) | Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig_for(address)).context("writing the host's kubeconfig")?;
        Ok(Self { shared, kubeconfig: file, runtime: Some(runtime), _folder: folder })
    }

    /// For the host: no credentials, the proxy has them.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Lets a fault happen to every request that matches, until the answer is dropped.
    pub fn inject(
        &self,
        fault: Fault,
        matches: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    ) -> Injected {
        self.shared.rules.inject(Box::new(matches), fault)
    }

    /// Calls back in the middle of the n-th write from now (the first is 1) that matches, and closes its connection.
    pub fn at_write(
        &self,
        nth: usize,
        moment: Moment,
        matches: impl Fn(&Asked) -> bool + Send + Sync + 'static,
        spring: impl FnOnce() + Send + 'static,
    ) -> Trap {
        self.shared.rules.trap(Box::new(matches), nth, moment, Box::new(spring))
    }

    /// Ends the open watches that match; says how many there were.
    pub fn end_watches(&self, how: WatchEnd, matches: impl Fn(&Asked) -> bool) -> usize {
        self.shared.end_watches(how, matches)
    }

    /// How many exchanges there were so far: a mark for [`FaultProxy::since`].
    pub fn mark(&self) -> usize {
        self.shared.mark()
    }

    /// The exchanges since a mark.
    pub fn since(&self, mark: usize) -> Traffic {
        self.shared.since(mark)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultProxy").field("kubeconfig", &self.kubeconfig).finish_non_exhaustive()
    }
}

/// JSON is YAML.
fn kubeconfig_for(address: SocketAddr) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
        "current-context": "proxy",
    })
    .to_string()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // An error here is one connection that was gone before it was accepted.
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // A slow acknowledgement of small packets would be a fault that nobody injected.
        drop(stream.set_nodelay(true));
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| forward::handle(Arc::clone(&shared), request));
            // How a connection ends is in the log of exchanges, or nobody's business.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}
