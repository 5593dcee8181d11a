//! `operator-host run`: wires everything together, runs until a signal, drains.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use host_core::decision::Event;
use host_core::queue::Done;
use host_kube::{Client, ConnectOptions, Informers, Recorder, Regarding, Reporter, Scope};
use host_wasm::{Compiler, CompilerLimits, Engine, EngineConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::RunArgs;
use crate::dispatch::{Dispatch, Record};
use crate::plugins::Plugins;
use crate::rollout::Rollout;
use crate::telemetry::{self, Metrics};
use crate::{inspect, reconcile, serve};

/// Everything a run needs. One per process.
pub(crate) struct Host {
    /// Queue and memory.
    pub(crate) dispatch: Arc<Dispatch>,
    /// Active versions.
    pub(crate) plugins: Plugins,
    /// Loading new versions.
    pub(crate) rollout: Rollout,
    /// The caches.
    pub(crate) informers: Informers,
    /// Writing to the cluster.
    pub(crate) cluster: Client,
    recorder: Recorder,
    instance: String,
    /// Calls into plugins at once: as many as there are cores, since a call computes and never waits.
    pub(crate) calls: Arc<Semaphore>,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// The slowest heartbeat of a parent.
    pub(crate) resync: Duration,
}

/// Runs the host until SIGTERM or SIGINT.
pub(crate) fn run(args: RunArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log, args.log_format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(start(args))
}

async fn start(args: RunArgs) -> anyhow::Result<()> {
    // Destructured whole: a flag that nobody wires does not compile.
    let RunArgs {
        kubeconfig,
        context,
        namespace,
        watch_namespace,
        plugin,
        plugin_settings,
        listen,
        cache_dir,
        resync,
        drain,
        log: _,
        log_format: _,
    } = args;
    let listener = serve::bind(listen).await?;
    let client = host_kube::connect(ConnectOptions { kubeconfig, context }).await?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let engine = Engine::new(EngineConfig {
        max_concurrent_calls: u16::try_from(cores).unwrap_or(u16::MAX),
    })?;
    let compiler = Compiler::new(inspect::this_binary()?, cache_dir, CompilerLimits::default())?;
    let dispatch = Arc::new(Dispatch::new());
    let scopes = scopes(watch_namespace);
    let (rollout, sources) =
        Rollout::new(engine, compiler, namespace, scopes, plugin, plugin_settings);
    let changes = (Arc::clone(&dispatch), rollout.inbox());
    let informers = Informers::new(
        client.clone(),
        seed(),
        Arc::new(move |change| {
            changes.0.changed(&change);
            changes.1.changed(&change);
        }),
    );
    let (recorder, recording) = Recorder::start(client.clone(), SystemTime::now());
    let instance = std::env::var("HOSTNAME").unwrap_or_else(|_| "operator-host".to_owned());
    let host = Arc::new(Host {
        dispatch,
        plugins: Plugins::default(),
        rollout,
        informers,
        cluster: client,
        recorder,
        instance,
        calls: Arc::new(Semaphore::new(cores)),
        metrics: Metrics::new(),
        resync,
    });
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %listen, "started");
    tokio::spawn(greet(host.cluster.clone()));
    tokio::spawn(serve::serve(listener, Arc::clone(&host)));
    tokio::spawn(Rollout::run(Arc::clone(&host), sources));
    work(&host, drain).await?;
    drop(host);
    // The rest of the process still holds the recorder: what is waiting is sent, and then it ends.
    let _ = tokio::time::timeout(Duration::from_millis(500), recording).await;
    Ok(())
}

impl Host {
    /// Records an event; never waits.
    pub(crate) fn record(&self, controller: &str, regarding: Regarding, event: Event) {
        let controller = format!("{}/{controller}", host_core::text::DOMAIN);
        let reporter = Reporter { controller, instance: self.instance.clone() };
        self.recorder.record(reporter, regarding, event);
    }
}

/// Says which cluster this is, or what is wrong with it. The host stays up either way: informers keep trying.
async fn greet(cluster: Client) {
    match cluster.ping().await {
        Ok(version) => tracing::info!(address = cluster.address(), version, "connected"),
        Err(error) => tracing::error!("{}; trying on", crate::error::chain(&error)),
    }
}

/// The one source of chance: it only spreads waits.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ u64::from(std::process::id()) << 32
}

fn scopes(namespaces: Vec<String>) -> Vec<Scope> {
    if namespaces.is_empty() {
        return vec![Scope::All];
    }
    namespaces.into_iter().map(Scope::Namespace).collect()
}

/// Starts a run for every key the queue gives out, until a signal; then waits for the running ones.
async fn work(host: &Arc<Host>, drain: Duration) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(_) = running.join_next(), if !running.is_empty() => {}
            (key, _, record) = host.dispatch.next() => {
                running.spawn(supervised(Arc::clone(host), key, record));
            }
        }
    }
    tracing::info!(running = running.len(), "stopping; waiting for running reconciles");
    let drained =
        tokio::time::timeout(drain, async { while running.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(
            running = running.len(),
            "gave up waiting; the next start runs these parents again"
        );
    }
    Ok(())
}

/// One run, whatever happens in it: a panic is counted and the key comes back.
async fn supervised(host: Arc<Host>, key: host_core::queue::ParentKey, record: Record) {
    let Some(plugin) = host.plugins.get(key.lane) else {
        host.dispatch.done(&key, record, Done::Succeeded(None));
        return;
    };
    let name = plugin.name().to_owned();
    host.metrics.active(&name, 1);
    let task = {
        let (host, key) = (Arc::clone(&host), key.clone());
        tokio::spawn(async move {
            let mut record = record;
            let done = reconcile::reconcile(&host, &plugin, &key, &mut record).await;
            (record, done)
        })
    };
    let (record, done) = task.await.unwrap_or_else(|error| {
        host.metrics.panicked(&name);
        tracing::error!(plugin = name, parent = %key.key, %error, "a run has panicked; this is a fault of the host");
        (Record::default(), Done::Failed)
    });
    host.metrics.active(&name, -1);
    host.dispatch.done(&key, record, done);
}
