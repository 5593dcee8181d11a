//! The server that a host under test talks to.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::exchange::{Asked, Exchange, Traffic};
use crate::fault::{Fault, Injected, Moment, Rules, Trap};
use crate::{forward, identity};

/// How an open watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// In the middle, as by a broken connection.
    Cut,
    /// As by the server's own timeout.
    Clean,
    /// With the error event 410 Expired.
    Expired,
}

struct OpenWatch {
    number: u64,
    asked: Asked,
    end: oneshot::Sender<WatchEnd>,
}

/// What every connection shares.
pub(crate) struct Shared {
    pub(crate) upstream: Client,
    pub(crate) rules: Arc<Rules>,
    log: Mutex<Vec<Exchange>>,
    watches: Mutex<Vec<OpenWatch>>,
    numbers: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Writes an exchange down.
    pub(crate) fn note(&self, exchange: Exchange) {
        lock(&self.log).push(exchange);
    }

    /// Registers an open watch; the receiver says how it is to end.
    pub(crate) fn opened(&self, asked: &Asked) -> (u64, oneshot::Receiver<WatchEnd>) {
        let (end, ended) = oneshot::channel();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        lock(&self.watches).push(OpenWatch { number, asked: asked.clone(), end });
        (number, ended)
    }

    /// Forgets a watch that has ended.
    pub(crate) fn closed(&self, number: u64) {
        lock(&self.watches).retain(|watch| watch.number != number);
    }
}

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
            let shared = Arc::new(Shared {
                upstream,
                rules: Arc::default(),
                log: Mutex::default(),
                watches: Mutex::default(),
                numbers: AtomicU64::default(),
            });
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
        let mut watches = lock(&self.shared.watches);
        let (ended, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *watches).into_iter().partition(|watch| matches(&watch.asked));
        *watches = open;
        ended.into_iter().filter_map(|watch| watch.end.send(how).ok()).count()
    }

    /// How many exchanges there were so far: a mark for [`FaultProxy::since`].
    pub fn mark(&self) -> usize {
        lock(&self.shared.log).len()
    }

    /// The exchanges since a mark.
    pub fn since(&self, mark: usize) -> Traffic {
        Traffic(lock(&self.shared.log).get(mark..).unwrap_or_default().to_vec())
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
