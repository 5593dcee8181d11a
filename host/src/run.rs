//! `operator-host run`: wires everything together, runs until a signal, drains.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use futures::FutureExt as _;
use host_core::decision::Event;
use host_core::queue::Done;
use host_kube::{
    Change, Client, ConnectOptions, Gate, Informers, Leadership, Recorder, Regarding, Reporter,
    Scope,
};
use host_wasm::{Compiler, CompilerLimits, Engine, EngineConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::config::{ClusterArgs, RunArgs};
use crate::dispatch::{Dispatch, Record, Work};
use crate::election::Election;
use crate::plugins::Plugins;
use crate::recordings::Recordings;
use crate::registry::Registries;
use crate::rollout::{Inbox, Rollout, Trust};
use crate::signature::Keys;
use crate::telemetry::{self, Metrics};
use crate::{inspect, reconcile, serve};

/// Slots for calls, for each processor: four plugins that spin leave room for the fifth.
const CALLS_PER_CORE: usize = 4;

/// Everything a run needs. One per process.
pub(crate) struct Host {
    /// Queue and memory.
    pub(crate) dispatch: Arc<Dispatch>,
    /// The revisions that act.
    pub(crate) plugins: Plugins,
    /// What they saw and decided last.
    pub(crate) recordings: Recordings,
    /// Loading new versions.
    pub(crate) rollout: Rollout,
    /// The caches.
    pub(crate) informers: Informers,
    /// Writing to the cluster.
    pub(crate) cluster: Client,
    recorder: Recorder,
    instance: String,
    /// Processors.
    pub(crate) cores: usize,
    /// Calls into plugins at once. More than there are processors: those of one plugin are bounded apart, and a few
    /// that spin must not keep out the others.
    pub(crate) calls: Arc<Semaphore>,
    /// Open while this host may write.
    pub(crate) gate: Gate,
    /// Whether this host leads, and when that changes.
    pub(crate) leadership: watch::Receiver<Leadership>,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// The slowest heartbeat of a parent.
    pub(crate) resync: Duration,
}

/// Runs the host until SIGTERM or SIGINT, or until it has lost its lease.
pub(crate) fn run(args: RunArgs) -> anyhow::Result<()> {
    raise_file_limit();
    let _traces = telemetry::init(&args.log, args.log_format, args.otlp_endpoint.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(start(args));
    // A call into a plugin or a compilation may still be running: neither writes anything.
    runtime.shutdown_background();
    result
}

/// Each informer has a connection of its own, and a usual soft limit of 1,024 files is fewer than one host may have.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // It works with what it has.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

async fn start(args: RunArgs) -> anyhow::Result<()> {
    // Destructured whole: a flag that nobody wires does not compile.
    let RunArgs {
        cluster: ClusterArgs { kubeconfig, context },
        namespace,
        watch_namespace,
        plugin,
        plugin_settings,
        listen,
        cache_dir,
        plugin_keys,
        registry_ca,
        resync,
        max_concurrent_reconciles,
        leader_elect,
        drain,
        otlp_endpoint: _,
        log: _,
        log_format: _,
    } = args;
    let trust = Trust {
        keys: plugin_keys.as_deref().map(Keys::read).transpose()?.unwrap_or_default(),
        registries: Registries::new(registry_ca.as_deref())?,
    };
    let listener = serve::bind(listen).await?;
    let metrics = Arc::new(Metrics::new());
    let observe = Arc::clone(&metrics);
    let client = host_kube::connect(ConnectOptions { kubeconfig, context }).await?;
    let client = client.observed(Arc::new(move |done| observe.requested(done)));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let max_concurrent_calls = u16::try_from(cores * CALLS_PER_CORE).unwrap_or(u16::MAX);
    let engine = Engine::new(EngineConfig { max_concurrent_calls })?;
    let compiler = Compiler::new(inspect::this_binary()?, cache_dir, CompilerLimits::default())?;
    let seed = seed();
    let dispatch = Arc::new(Dispatch::new(max_concurrent_reconciles, seed));
    let instance = std::env::var("HOSTNAME").unwrap_or_else(|_| "operator-host".to_owned());
    let election = Election::new(leader_elect, &client, &namespace, &instance, seed);
    let client = client.gated(election.gate.clone());
    let scopes = scopes(watch_namespace);
    let (rollout, sources) =
        Rollout::new(engine, compiler, namespace, scopes, trust, plugin, plugin_settings);
    let informers = informers(&client, seed, Arc::clone(&dispatch), rollout.inbox());
    let (recorder, recording) = Recorder::start(client.clone(), SystemTime::now());
    let host = Arc::new(Host {
        dispatch,
        plugins: Plugins::default(),
        recordings: Recordings::default(),
        rollout,
        informers,
        cluster: client,
        gate: election.gate.clone(),
        leadership: election.leadership.clone(),
        recorder,
        instance,
        cores,
        calls: Arc::new(Semaphore::new(cores * CALLS_PER_CORE)),
        metrics,
        resync,
    });
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %listen, "started");
    let release = election.start();
    tokio::spawn(greet(host.cluster.clone()));
    tokio::spawn(serve::serve(listener, Arc::clone(&host)));
    let rollouts = tokio::spawn(Rollout::run(Arc::clone(&host), sources));
    work(&host, drain, &rollouts.abort_handle()).await?;
    drop(host);
    // The rest of the process still holds the recorder: what is waiting is sent, and then it ends.
    let _ = tokio::time::timeout(Duration::from_millis(500), recording).await;
    release.await;
    Ok(())
}

/// The caches: a change goes to the parents it concerns, and to the plugins if it is one of theirs.
fn informers(client: &Client, seed: u64, dispatch: Arc<Dispatch>, inbox: Arc<Inbox>) -> Informers {
    let on_change = move |change: Change| {
        dispatch.changed(&change);
        inbox.changed(&change);
    };
    let informers = Informers::new(client.clone(), seed, Arc::new(on_change));
    informers.follow_definitions();
    informers
}

impl Host {
    /// Records an event; never waits. A standby sees the same things and leaves them to the leader.
    pub(crate) fn record(&self, controller: &str, regarding: Regarding, event: Event) {
        if !self.is_leading() {
            return;
        }
        let controller = format!("{}/{controller}", host_core::text::DOMAIN);
        let reporter = Reporter { controller, instance: self.instance.clone() };
        self.recorder.record(reporter, regarding, event);
    }

    /// Whether this host may write.
    pub(crate) fn is_leading(&self) -> bool {
        self.gate.is_open()
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

/// Starts a run for every key the queue gives out while this host leads, until a signal; then waits for the running
/// ones. A lost lease is an error: the process ends at once, whatever is running, since another host may act now.
async fn work(host: &Arc<Host>, drain: Duration, rollouts: &AbortHandle) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut leadership = host.leadership.clone();
    let electing = host.gate.lease_end().is_some();
    let mut running = JoinSet::new();
    loop {
        let leading = match &*leadership.borrow_and_update() {
            Leadership::Lost => bail!("the lease was lost; another host may be acting already"),
            Leadership::Leading => true,
            Leadership::Standby { .. } => false,
        };
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            changed = leadership.changed(), if electing => {
                changed.context("the election has ended by itself; this is a fault of the host")?;
            }
            Some(_) = running.join_next(), if !running.is_empty() => {}
            work = host.dispatch.next(), if leading => {
                running.spawn(supervised(Arc::clone(host), work));
            }
        }
    }
    tracing::info!(running = running.len(), "stopping; waiting for running reconciles");
    rollouts.abort();
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
async fn supervised(host: Arc<Host>, work: Work) {
    let key = work.popped.key.clone();
    let Some(plugin) = host.plugins.get(key.lane, &key.key) else {
        host.dispatch.done(&key, work.record, Done::Succeeded(None), None);
        return;
    };
    let name = plugin.name().to_owned();
    host.metrics.popped(&name, work.popped.waited);
    let started = Instant::now();
    let mut work = work;
    let run = AssertUnwindSafe(reconcile::reconcile(&host, &plugin, &mut work)).catch_unwind();
    let (record, done, last) = if let Ok((done, last)) = run.await {
        (work.record, done, Some(last))
    } else {
        // What the run has left behind may be half made: it is not used again.
        host.metrics.panicked(&name);
        tracing::error!(plugin = name, parent = %key.key, "a run has panicked; this is a fault of the host");
        (Record::default(), Done::Failed, None)
    };
    host.metrics.finished(&name, started.elapsed());
    host.dispatch.done(&key, record, done, last);
}
