//! Flow 2: from new bytes to the revision that acts.
//! Captured → verified → compiled → described → granted → shadowed → promoted, or held; and back, if it fails.
//!
//! Sources are labelled `ConfigMaps` in the host's namespace, each with a `Plugin` that says how (ADR 0004, ADR 0011);
//! or one file for development. Each plugin's rollout goes on by itself, so none waits for another's.
//!
//! **Invariant:** a revision that cannot be loaded changes nothing: the active one keeps running.

mod eye;
mod inbox;
mod load;
mod publish;
mod pull;
mod pursue;
mod revisions;
mod shadow;
mod source;
pub(crate) mod trial;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use host_core::divergence::PlanSummary;
use host_core::ident::Kind;
use host_core::plugin;
use host_core::text;
use host_kube::{Scope, Status, Subscription};
use host_wasm::{Compiler, Engine};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::error::chain;
use crate::plugins::LoadedPlugin;
use crate::registry::Registries;
use crate::run::Host;
use crate::signature::Keys;
use eye::Eye;
pub(crate) use inbox::Inbox;
use publish::LastWritten;
use pull::Pulls;
use source::Source;

/// Compiled plugins loaded at once: a few milliseconds each, and some of a megabyte.
const LOADS_AT_ONCE: usize = 2;

/// How often a development file is looked at.
const FILE_POLL: Duration = Duration::from_millis(500);

/// How often the start looks whether the plugins' source has been read.
const SYNC_POLL: Duration = Duration::from_millis(50);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config_map() -> Kind {
    Kind::new("v1", "ConfigMap")
}

/// What a candidate would do, for `operator-host plugin plan`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanReport {
    pub(crate) plugin: String,
    /// Revision and bytes that act.
    pub(crate) active: String,
    /// Revision and bytes that would.
    pub(crate) candidate: String,
    pub(crate) took_ms: u64,
    /// Every difference.
    pub(crate) plan: PlanSummary,
}

impl PlanReport {
    fn new(
        plugin: &str,
        active: &LoadedPlugin,
        candidate: &LoadedPlugin,
        took: Duration,
        plan: PlanSummary,
    ) -> Self {
        let named = |one: &LoadedPlugin| format!("{} {}", one.revision, one.label());
        Self {
            plugin: plugin.to_owned(),
            active: named(active),
            candidate: named(candidate),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            plan,
        }
    }
}

/// Where plugins come from, and what loading needs.
pub(crate) struct Rollout {
    engine: Engine,
    compiler: Compiler,
    /// Turns to compile, and turns to load what is compiled.
    compiling: Arc<Semaphore>,
    loading: Arc<Semaphore>,
    scopes: Vec<Scope>,
    trust: Trust,
    inbox: Arc<Inbox>,
    ready: AtomicBool,
    /// What is wrong with the sources, for /readyz.
    waiting_for: Mutex<String>,
    /// Plugins whose first load is not over.
    unsettled: Mutex<BTreeSet<String>>,
    lanes: Mutex<BTreeMap<String, u32>>,
    plans: Mutex<BTreeMap<String, Arc<PlanReport>>>,
    setbacks: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
}

/// Whose plugins are run.
#[derive(Debug)]
pub(crate) struct Trust {
    /// Who has to have signed them.
    pub(crate) keys: Keys,
    /// Where they are pulled from.
    pub(crate) registries: Registries,
}

/// What a rollout task reads from.
#[derive(Debug)]
pub(crate) enum Sources {
    /// Labelled `ConfigMaps` and `Plugins`.
    Cluster,
    /// One file, and its settings.
    File(PathBuf, Option<PathBuf>),
}

impl Rollout {
    pub(crate) fn new(
        engine: Engine,
        compiler: Compiler,
        namespace: String,
        scopes: Vec<Scope>,
        trust: Trust,
        plugin: Option<PathBuf>,
        settings: Option<PathBuf>,
    ) -> (Self, Sources) {
        let sources = plugin.map_or(Sources::Cluster, |file| Sources::File(file, settings));
        let inbox = Inbox::new(namespace);
        let rollout = Self {
            engine,
            compiler,
            compiling: Arc::new(Semaphore::new(1)),
            loading: Arc::new(Semaphore::new(LOADS_AT_ONCE)),
            scopes,
            trust,
            inbox: Arc::new(inbox),
            ready: AtomicBool::new(false),
            waiting_for: Mutex::new("the plugins have not been read yet".to_owned()),
            unsettled: Mutex::default(),
            lanes: Mutex::default(),
            plans: Mutex::default(),
            setbacks: Mutex::default(),
        };
        (rollout, sources)
    }

    /// Where changes are noted.
    pub(crate) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// Whether every plugin that there was at the start has been loaded or refused; else why not.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        if !self.ready.load(Ordering::Relaxed) {
            return Err(lock(&self.waiting_for).clone());
        }
        match lock(&self.unsettled).first() {
            None => Ok(()),
            Some(plugin) => Err(format!("plugin {plugin} is being loaded")),
        }
    }

    /// The plan of a plugin's candidate, if it has one.
    pub(crate) fn planned(&self, plugin: &str) -> Option<Arc<PlanReport>> {
        lock(&self.plans).get(plugin).cloned()
    }

    /// Loads what is there, and whatever changes, for ever.
    pub(crate) async fn run(host: Arc<Host>, sources: Sources) {
        match sources {
            Sources::Cluster => watch_cluster(&host).await,
            Sources::File(file, settings) => watch_file(&host, file, settings).await,
        }
    }

    /// A revision was taken back: its substitute runs every parent again.
    fn condemned(&self, host: &Host, substitute: &LoadedPlugin) {
        load::open_lane(host, substitute);
        host.dispatch.sweep(substitute.lane, substitute.parents());
        self.setbacks(substitute.name()).fetch_add(1, Ordering::Release);
        self.inbox.note(substitute.name());
    }

    fn setbacks(&self, plugin: &str) -> Arc<AtomicU64> {
        Arc::clone(lock(&self.setbacks).entry(plugin.to_owned()).or_default())
    }

    fn settled(&self, plugin: &str) {
        lock(&self.unsettled).remove(plugin);
    }

    fn plan(&self, plugin: &str, report: Option<PlanReport>) {
        let mut plans = lock(&self.plans);
        match report {
            Some(report) => plans.insert(plugin.to_owned(), Arc::new(report)),
            None => plans.remove(plugin),
        };
    }

    /// The lane of a plugin: given out once, kept for all its revisions.
    fn lane(&self, name: &str) -> u32 {
        let mut lanes = lock(&self.lanes);
        let next = u32::try_from(lanes.len()).unwrap_or(u32::MAX);
        *lanes.entry(name.to_owned()).or_insert(next)
    }
}

async fn watch_cluster(host: &Arc<Host>) {
    let rollout = &host.rollout;
    let scope = Scope::Namespace(rollout.inbox.namespace.clone());
    // Components and what is kept of them would be most of an idle host: they are read when they are needed.
    let config_maps = host.informers.subscribe_to_existence(config_map(), scope.clone());
    let plugins = host.informers.subscribe(plugin::kind(), scope);
    let (config_maps, plugins) = (Arc::new(config_maps), Arc::new(plugins));
    synced(host, "ConfigMaps", &config_maps, |status| *status == Status::Synced).await;
    // Without the kind, or the right to see it, plugins run with what comes with their bytes.
    synced(host, "Plugins", &plugins, |status| {
        matches!(status, Status::Synced | Status::Missing | Status::Forbidden(_))
    })
    .await;
    let status = plugins.store().status();
    if status != Status::Synced {
        tracing::warn!(
            "Plugins cannot be read ({status}): nothing is told in their status, and no revision survives a restart; `operator-host crds | kubectl apply --server-side -f -`"
        );
    }
    tokio::spawn(follow_leadership(Arc::clone(host)));
    // They end with this task.
    let mut rollouts = JoinSet::new();
    loop {
        while let Some((name, wake)) = rollout.inbox.take_new() {
            if !rollout.ready.load(Ordering::Relaxed) {
                lock(&rollout.unsettled).insert(name.clone());
            }
            let eye = Eye {
                host: Arc::clone(host),
                setbacks: rollout.setbacks(&name),
                name: name.into(),
                wake,
                config_maps: Arc::clone(&config_maps),
                plugins: Arc::clone(&plugins),
                written: LastWritten::default(),
                pulls: Pulls::default(),
            };
            rollouts.spawn(eye.pursue());
        }
        if !rollout.ready.swap(true, Ordering::Relaxed) && rollout.inbox.is_idle() {
            tracing::warn!(
                namespace = rollout.inbox.namespace,
                "no plugin yet: waiting for a ConfigMap with the label {} and a key {}",
                text::LABEL_PLUGIN,
                text::KEY_WASM
            );
        }
        rollout.inbox.new_ones().await;
    }
}

/// Waits until a kind of the host's own namespace is as far as it has to be; says what it waits for.
async fn synced(
    host: &Host,
    what: &str,
    subscription: &Subscription,
    enough: impl Fn(&Status) -> bool,
) {
    let rollout = &host.rollout;
    let namespace = &rollout.inbox.namespace;
    // Being listed takes a moment and is not worth a line.
    let mut said = format!("{what} of namespace {namespace}: {}", Status::Syncing);
    loop {
        let status = subscription.store().status();
        if enough(&status) {
            return;
        }
        let state = format!("{what} of namespace {namespace}: {status}");
        if state != said {
            tracing::warn!("waiting for {state}");
            said.clone_from(&state);
        }
        *lock(&rollout.waiting_for) = state;
        tokio::time::sleep(SYNC_POLL).await;
    }
}

/// A host that begins to lead takes its rollouts over.
async fn follow_leadership(host: Arc<Host>) {
    let mut leadership = host.leadership.clone();
    while leadership.changed().await.is_ok() {
        host.rollout.inbox.wake_all();
    }
}

async fn watch_file(host: &Arc<Host>, file: PathBuf, settings: Option<PathBuf>) {
    let (mut last, mut failed) = (None, false);
    loop {
        match Source::from_file(&file, settings.as_deref()) {
            Ok(source) if last != Some(source.revision) => {
                last = Some(source.revision);
                reload(host, source).await;
            }
            Ok(_) => {}
            Err(error) if last.is_none() && !failed => {
                failed = true;
                tracing::error!(
                    reason = error.reason(),
                    "the plugin was not loaded: {}",
                    chain(&error)
                );
            }
            // A file in the middle of being written: the next look will see it whole.
            Err(error) => tracing::debug!("{}", chain(&error)),
        }
        host.rollout.ready.store(true, Ordering::Relaxed);
        tokio::time::sleep(FILE_POLL).await;
    }
}

/// For development: what can be loaded acts.
async fn reload(host: &Arc<Host>, source: Source) {
    let (name, started) = (source.name.clone(), tokio::time::Instant::now());
    let loaded = load::load(host, &Arc::new(source)).await;
    match loaded
        .and_then(|plugin| load::promote(host, &plugin, Duration::ZERO, None).map(|()| plugin))
    {
        Ok(plugin) => {
            tracing::info!(plugin = name, digest = %plugin.plugin.id().digest, took = ?started.elapsed(), "{} is active", plugin.label());
            host.metrics.loaded(&name, "success");
            watch::start(&plugin);
        }
        Err(error) => {
            tracing::error!(
                plugin = name,
                reason = error.reason(),
                "the plugin was not loaded: {}; what was active keeps running",
                chain(&error)
            );
            host.metrics.loaded(&name, "refused");
        }
    }
}
