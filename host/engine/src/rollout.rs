//! Flow 2: from new bytes to the revision that acts.
//! Captured → verified → compiled → described → granted → shadowed → promoted, or held; and back, if it fails.
//!
//! Sources are labelled `ConfigMaps` in the host's namespace, each with a `Plugin` that says how (ADR 0004, ADR 0011);
//! or one file for development. Each plugin's rollout goes on by itself, so none waits for another's.
//!
//! **Invariant:** a revision that cannot be loaded changes nothing: the active one keeps running.

mod advance;
pub(crate) mod board;
pub(crate) mod compilation;
mod config_map;
pub(crate) mod cutover;
mod eye;
mod file;
pub(crate) mod inbox;
pub(crate) mod load;
mod load_error;
mod publish;
mod pull;
mod pursue;
mod pursuit;
mod revisions;
mod shadow;
mod source;
mod state;
mod subject;
mod told;
pub(crate) mod trial;
mod wanted;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use host_core::plugin;
use host_core::text;
use host_kube::{Leadership, Scope, Status, Subscription};
use tokio::sync::watch as channel;
use tokio::task::JoinSet;

use crate::kinds::config_map;
use crate::outlook::Outlook;
use crate::registry::Registries;
use crate::voice::Voice;
use board::Board;
use cutover::Cutover;
use eye::Eye;
use inbox::Inbox;
use load::Loader;
use pull::Pulls;
use pursuit::{LastWritten, Pursuit};
use subject::Subject;

/// How often the start looks whether the plugins' source has been read.
const SYNC_POLL: Duration = Duration::from_millis(50);

/// Where plugins come from.
#[derive(Clone, Debug)]
pub enum Sources {
    /// Labelled `ConfigMaps` and `Plugins` in the host's namespace.
    Cluster,
    /// One component, for development: it acts with what it asks for, or with the settings of a file beside it, and is
    /// loaded again when it changes.
    File {
        /// The component, plain, gzip or zstd.
        plugin: PathBuf,
        /// Its settings, as in the `plugin.yaml` of a ConfigMap.
        settings: Option<PathBuf>,
    },
}

/// What rolling out needs: one for all plugins.
pub(crate) struct Rollout {
    pub(crate) loader: Arc<Loader>,
    pub(crate) cutover: Cutover,
    pub(crate) outlook: Outlook,
    pub(crate) board: Arc<Board>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) registries: Registries,
    pub(crate) voice: Voice,
}

/// Loads what is there, and whatever changes, for ever.
pub(crate) async fn run(
    rollout: Rollout,
    sources: Sources,
    leadership: channel::Receiver<Leadership>,
) {
    match sources {
        Sources::Cluster => {
            let inbox = Arc::clone(&rollout.inbox);
            tokio::join!(watch_cluster(&rollout), follow_leadership(inbox, leadership));
        }
        Sources::File { plugin, settings } => {
            let Rollout { loader, cutover, board, voice, .. } = &rollout;
            file::watch(loader, cutover, board, voice, &plugin, settings.as_deref()).await;
        }
    }
}

async fn watch_cluster(rollout: &Rollout) {
    let Rollout { loader, board, inbox, .. } = rollout;
    let scope = Scope::Namespace(loader.namespace.clone());
    // Components and what is kept of them would be most of an idle host: they are read when they are needed.
    let config_maps = loader.informers.subscribe_to_existence(config_map(), scope.clone());
    let plugins = loader.informers.subscribe(plugin::kind(), scope);
    let (config_maps, plugins) = (Arc::new(config_maps), Arc::new(plugins));
    synced(board, ("ConfigMaps", &loader.namespace), &config_maps, |status| {
        *status == Status::Synced
    })
    .await;
    // Without the kind, or the right to see it, plugins run with what comes with their bytes.
    synced(board, ("Plugins", &loader.namespace), &plugins, |status| {
        matches!(status, Status::Synced | Status::Missing | Status::Forbidden(_))
    })
    .await;
    let status = plugins.store().status();
    if status != Status::Synced {
        tracing::warn!(
            "Plugins cannot be read ({status}): nothing is told in their status, and no revision survives a restart; `operator-host crds | kubectl apply --server-side -f -`"
        );
    }
    // They end with this task.
    let mut rollouts = JoinSet::new();
    loop {
        while let Some((name, wake)) = inbox.take_new() {
            board.appeared(&name);
            let subject = Subject {
                name: name.into(),
                namespace: loader.namespace.as_str().into(),
                wake,
                config_maps: Arc::clone(&config_maps),
                plugins: Arc::clone(&plugins),
                cluster: loader.cluster.clone(),
                voice: rollout.voice.clone(),
                clock: rollout.outlook.clock.clone(),
            };
            rollouts.spawn(pursue::pursue(rollout.pursuit(subject)));
        }
        if board.has_read() && inbox.is_idle() {
            tracing::warn!(
                namespace = loader.namespace,
                "no plugin yet: waiting for a ConfigMap with the label {} and a key {}",
                text::LABEL_PLUGIN,
                text::KEY_WASM
            );
        }
        inbox.new_ones().await;
    }
}

/// Waits until a kind of the host's own namespace is as far as it has to be; says what it waits for.
async fn synced(
    board: &Board,
    (what, namespace): (&str, &str),
    subscription: &Subscription,
    enough: impl Fn(&Status) -> bool,
) {
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
        board.waits_for(state);
        tokio::time::sleep(SYNC_POLL).await;
    }
}

/// A host that begins to lead takes its rollouts over.
async fn follow_leadership(inbox: Arc<Inbox>, mut leadership: channel::Receiver<Leadership>) {
    while leadership.changed().await.is_ok() {
        inbox.wake_all();
    }
}

impl Rollout {
    fn pursuit(&self, subject: Subject) -> Pursuit {
        let Self { loader, cutover, outlook, board, inbox, registries, voice: _ } = self;
        Pursuit {
            eye: Eye { subject, inbox: Arc::clone(inbox), pulls: Pulls::from(registries.clone()) },
            loader: Arc::clone(loader),
            outlook: outlook.clone(),
            cutover: cutover.clone(),
            board: Arc::clone(board),
            written: LastWritten::default(),
        }
    }
}
