//! Flow 2: from new bytes to the version that runs. Captured → verified → compiled → described → granted → promoted.
//!
//! Sources are labelled `ConfigMaps` in the host's namespace (ADR 0004), or one file for development. Loads run one after the
//! other and always read the newest bytes, so a stale one can never overwrite a newer.
//!
//! **Invariant:** a version that cannot be loaded changes nothing: the active one keeps running.

mod load;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use host_core::ident::{Digest, Kind, ObjectKey};
use host_core::object::StoredObject;
use host_core::text;
use host_kube::{Change, Regarding, Scope, Status, Subscription};
use host_wasm::{Compiler, Engine};
use tokio::sync::Notify;

use crate::error::chain;
use crate::run::Host;
use load::{LoadError, Source};

/// How often a development file is looked at.
const FILE_POLL: Duration = Duration::from_millis(500);

/// When a load that failed for lack of time or memory is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// How often the start looks whether the plugins' source has been read.
const SYNC_POLL: Duration = Duration::from_millis(50);

/// Names of sources that have changed. A set: it is bounded by the number of plugins.
#[derive(Debug)]
pub(crate) struct Inbox {
    namespace: String,
    changed: Mutex<BTreeSet<ObjectKey>>,
    wake: Notify,
}

impl Inbox {
    /// Notes a source to be looked at.
    fn note(&self, key: ObjectKey) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.wake.notify_one();
    }

    /// Notes a change if it is one of a plugin's `ConfigMap`.
    pub(crate) fn changed(&self, change: &Change) {
        if *change.kind != config_map() || *change.key.namespace != *self.namespace {
            return;
        }
        if change
            .old
            .iter()
            .chain(&change.new)
            .any(|object| object.labels.contains_key(text::LABEL_PLUGIN))
        {
            self.note(change.key.clone());
        }
    }

    fn take(&self) -> Option<ObjectKey> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }
}

fn config_map() -> Kind {
    Kind::new("v1", "ConfigMap")
}

/// Where plugins come from, and what loading needs.
pub(crate) struct Rollout {
    engine: Engine,
    compiler: Compiler,
    scopes: Vec<Scope>,
    inbox: Arc<Inbox>,
    ready: AtomicBool,
    /// What is wrong with the sources, for /readyz.
    waiting_for: Mutex<String>,
    lanes: Mutex<BTreeMap<String, u32>>,
}

/// What a rollout task reads from.
#[derive(Debug)]
pub(crate) enum Sources {
    /// Labelled `ConfigMaps`.
    ConfigMaps,
    /// One file, and its settings.
    File(PathBuf, Option<PathBuf>),
}

impl Rollout {
    pub(crate) fn new(
        engine: Engine,
        compiler: Compiler,
        namespace: String,
        scopes: Vec<Scope>,
        plugin: Option<PathBuf>,
        settings: Option<PathBuf>,
    ) -> (Self, Sources) {
        let sources = plugin.map_or(Sources::ConfigMaps, |file| Sources::File(file, settings));
        let inbox = Inbox { namespace, changed: Mutex::default(), wake: Notify::new() };
        let rollout = Self {
            engine,
            compiler,
            scopes,
            inbox: Arc::new(inbox),
            ready: AtomicBool::new(false),
            waiting_for: Mutex::new("the plugins have not been read yet".to_owned()),
            lanes: Mutex::default(),
        };
        (rollout, sources)
    }

    /// Where changes are noted.
    pub(crate) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// Whether the plugins' source has been read; else why not.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        if self.ready.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(self.waiting_for.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Loads what is there, and whatever changes, for ever.
    pub(crate) async fn run(host: Arc<Host>, sources: Sources) {
        match sources {
            Sources::ConfigMaps => watch_config_maps(&host).await,
            Sources::File(file, settings) => watch_file(&host, file, settings).await,
        }
    }

    /// The lane of a plugin: given out once, kept for all its versions.
    fn lane(&self, name: &str) -> u32 {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let next = u32::try_from(lanes.len()).unwrap_or(u32::MAX);
        *lanes.entry(name.to_owned()).or_insert(next)
    }
}

async fn watch_config_maps(host: &Arc<Host>) {
    let rollout = &host.rollout;
    let scope = Scope::Namespace(rollout.inbox.namespace.clone());
    let subscription = host.informers.subscribe(config_map(), scope);
    // Being listed takes a moment and is not worth a line.
    let mut said =
        format!("ConfigMaps of namespace {}: {}", rollout.inbox.namespace, Status::Syncing);
    while !subscription.store().is_synced() {
        let state = format!(
            "ConfigMaps of namespace {}: {}",
            rollout.inbox.namespace,
            subscription.store().status()
        );
        if state != said {
            tracing::warn!("waiting for {state}");
            said.clone_from(&state);
        }
        *rollout.waiting_for.lock().unwrap_or_else(PoisonError::into_inner) = state;
        tokio::time::sleep(SYNC_POLL).await;
    }
    let mut processed = BTreeMap::new();
    loop {
        while let Some(key) = rollout.inbox.take() {
            process(host, &subscription, &key, &mut processed).await;
        }
        if !rollout.ready.swap(true, Ordering::Relaxed) && processed.is_empty() {
            tracing::warn!(
                namespace = rollout.inbox.namespace,
                "no plugin yet: waiting for a ConfigMap with the label {} and a key {}",
                text::LABEL_PLUGIN,
                text::KEY_WASM
            );
        }
        rollout.inbox.wake.notified().await;
    }
}

async fn process(
    host: &Arc<Host>,
    subscription: &Subscription,
    key: &ObjectKey,
    processed: &mut BTreeMap<ObjectKey, Digest>,
) {
    let Some(object) = subscription.store().view().ok().and_then(|view| view.get(key)) else {
        tracing::warn!(config_map = %key, "the plugin's ConfigMap is gone; its active version keeps running until the host restarts");
        processed.remove(key);
        return;
    };
    let source = match Source::from_config_map(&object) {
        Ok(source) => source,
        Err(error) => return refuse(host, Some(&object), &key.name, &error),
    };
    // A change of metadata alone changes nothing.
    if processed.insert(key.clone(), source.identity()) == Some(source.identity()) {
        return;
    }
    if load_and_report(host, source, Some(object)).await == Loaded::TryAgain {
        processed.remove(key);
        let (inbox, key) = (Arc::clone(&host.rollout.inbox), key.clone());
        tokio::spawn(async move {
            tokio::time::sleep(RETRY_AFTER).await;
            inbox.note(key);
        });
    }
}

async fn watch_file(host: &Arc<Host>, file: PathBuf, settings: Option<PathBuf>) {
    let mut last = None;
    loop {
        match Source::from_file(&file, settings.as_deref()) {
            Ok(source) if last != Some(source.identity()) => {
                last = Some(source.identity());
                load_and_report(host, source, None).await;
            }
            Ok(_) => {}
            Err(error) if last.is_none() => {
                refuse(host, None, "plugin", &error);
                last = Some(Digest::of(b""));
            }
            // A file in the middle of being written: the next look will see it whole.
            Err(error) => tracing::debug!("{}", chain(&error)),
        }
        host.rollout.ready.store(true, Ordering::Relaxed);
        tokio::time::sleep(FILE_POLL).await;
    }
}

/// How a load ended.
#[derive(PartialEq, Eq)]
enum Loaded {
    /// For good: nothing changes before the source does.
    Settled,
    /// For lack of time or memory, which may be there later.
    TryAgain,
}

async fn load_and_report(
    host: &Arc<Host>,
    source: Source,
    object: Option<Arc<StoredObject>>,
) -> Loaded {
    let name = source.name.clone();
    let started = tokio::time::Instant::now();
    match load::load(host, source).await {
        Ok(active) => {
            let message = format!("{} is active", active.label());
            tracing::info!(plugin = name, digest = %active.plugin.id().digest, took = ?started.elapsed(), "{message}");
            host.metrics.loaded(&name, "success");
            watch::start(&active);
            event(
                host,
                object.as_deref(),
                host_core::decision::EventKind::Normal,
                "PluginLoaded",
                &message,
            );
            Loaded::Settled
        }
        Err(error) => {
            refuse(host, object.as_deref(), &name, &error);
            if error.may_pass() { Loaded::TryAgain } else { Loaded::Settled }
        }
    }
}

fn refuse(host: &Host, object: Option<&StoredObject>, name: &str, error: &LoadError) {
    let message = format!("{}; what was active keeps running", chain(error));
    tracing::error!(plugin = name, reason = error.reason(), "the plugin was not loaded: {message}");
    host.metrics.loaded(name, "refused");
    event(host, object, host_core::decision::EventKind::Warning, error.reason(), &message);
}

/// An event on the plugin's `ConfigMap`: where `kubectl describe` shows it.
fn event(
    host: &Host,
    object: Option<&StoredObject>,
    kind: host_core::decision::EventKind,
    reason: &str,
    note: &str,
) {
    let Some(object) = object else { return };
    let regarding =
        Regarding { kind: config_map(), key: object.key.clone(), uid: object.uid.clone() };
    let event = host_core::decision::Event {
        kind,
        reason: reason.to_owned(),
        action: "Load".to_owned(),
        note: host_core::limits::cut(note, host_core::limits::EVENT_NOTE_BYTES_MAX),
    };
    host.record("operator-host", regarding, event);
}
