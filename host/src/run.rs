//! `operator-host run`: starts the engine with what the flags say, runs until a signal, drains.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use host_engine::registry::Registries;
use host_engine::signature::Keys;
use host_engine::{Clock, Engine, Parts, Settings, Sources};
use host_kube::{Client, ConnectOptions};
use host_wasm::{Compiler, CompilerLimits};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::command::file::this_binary;
use crate::flags::{ClusterArgs, RunArgs};
use crate::serve;
use crate::telemetry::{self, Metrics};

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
    let keys = plugin_keys.as_deref().map(Keys::read).transpose()?.unwrap_or_default();
    let registries = Registries::new(registry_ca.as_deref())?;
    let listener = serve::bind(listen).await?;
    let metrics = Arc::new(Metrics::new());
    let observe = Arc::clone(&metrics);
    let client = host_kube::connect(ConnectOptions { kubeconfig, context }).await?;
    let client = client.observed(Arc::new(move |done| observe.requested(done)));
    let compiler = Compiler::new(this_binary()?, cache_dir, CompilerLimits::default())?;
    let settings = Settings {
        namespace,
        watch_namespaces: watch_namespace,
        instance: std::env::var("HOSTNAME").unwrap_or_else(|_| "operator-host".to_owned()),
        leader_elect,
        resync,
        max_concurrent_reconciles,
        drain,
        cores: std::thread::available_parallelism().map_or(2, usize::from),
        seed: seed(),
    };
    let parts = Parts {
        client: client.clone(),
        sources: plugin
            .map_or(Sources::Cluster, |plugin| Sources::File { plugin, settings: plugin_settings }),
        compilation: Arc::new(compiler),
        keys,
        registries,
        clock: Clock::system(),
        meter: Arc::<Metrics>::clone(&metrics),
    };
    let engine = Engine::new(parts, settings)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %listen, "started");
    tokio::spawn(greet(client));
    tokio::spawn(serve::serve(listener, engine.monitor(), metrics));
    let stop = until_signalled()?;
    Ok(engine.run(stop).await?)
}

/// Ends at SIGTERM or SIGINT, which are listened for from now on.
fn until_signalled() -> anyhow::Result<impl Future<Output = ()>> {
    let listen = |kind, name| signal(kind).with_context(|| format!("cannot listen for {name}"));
    let mut terminate: Signal = listen(SignalKind::terminate(), "SIGTERM")?;
    let mut interrupt: Signal = listen(SignalKind::interrupt(), "SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Says which cluster this is, or what is wrong with it. The host stays up either way: informers keep trying.
async fn greet(cluster: Client) {
    match cluster.ping().await {
        Ok(version) => tracing::info!(address = cluster.address(), version, "connected"),
        Err(error) => tracing::error!("{}; trying on", host_engine::chain(&error)),
    }
}

/// The one source of chance: it only spreads waits.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ u64::from(std::process::id()) << 32
}
