//! Puts the engine together and runs it.

use std::sync::Arc;
use std::time::Duration;

use host_core::limits;
use host_kube::{Change, Client, Informers, Recorder, Scope};
use host_wasm::{EngineConfig, EngineError};
use tokio::task::{JoinHandle, JoinSet};

use crate::calls::Calls;
use crate::clock::Clock;
use crate::dispatch::Dispatch;
use crate::election::Election;
use crate::meter::Meter;
use crate::monitor::Monitor;
use crate::outlook::Outlook;
use crate::plugins::Plugins;
use crate::reconcile::Reconciler;
use crate::recordings::Recordings;
use crate::registry::Registries;
use crate::rollout::board::Board;
use crate::rollout::compilation::Compilation;
use crate::rollout::cutover::Cutover;
use crate::rollout::inbox::Inbox;
use crate::rollout::load::{Loader, Turns};
use crate::rollout::trial::Trial;
use crate::rollout::{self, Rollout, Sources};
use crate::signature::Keys;
use crate::voice::Voice;
use crate::workers::{self, Lost};

/// What an engine works with.
pub struct Parts {
    /// The cluster.
    pub client: Client,
    /// Where plugins come from.
    pub sources: Sources,
    /// How they are compiled.
    pub compilation: Arc<dyn Compilation>,
    /// Who has to have signed them; no keys: nobody.
    pub keys: Keys,
    /// How OCI registries are reached.
    pub registries: Registries,
    /// What time it is.
    pub clock: Clock,
    /// Where measurements go; `Arc::new(())` drops them.
    pub meter: Arc<dyn Meter>,
}

/// How an engine works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The host's own namespace: where its plugins, their kept revisions and its Lease are.
    pub namespace: String,
    /// Namespaces that are watched; none: all.
    pub watch_namespaces: Vec<String>,
    /// What this replica is called in events and in the Lease.
    pub instance: String,
    /// Act only while holding the Lease.
    pub leader_elect: bool,
    /// Every parent runs at least this often.
    pub resync: Duration,
    /// Runs in progress at once, of all plugins together.
    pub max_concurrent_reconciles: usize,
    /// How long running reconciles may take to end at a stop.
    pub drain: Duration,
    /// Processors that calls into plugins may take.
    pub cores: usize,
    /// Spreads waits, and tells two processes of one machine apart.
    pub seed: u64,
}

impl Settings {
    /// The usual ones, for a replica of this name. `seed` has to be another one in each process: with the name it is who
    /// stands for election.
    pub fn new(instance: impl Into<String>, seed: u64) -> Self {
        Self {
            namespace: "operator-host".to_owned(),
            watch_namespaces: Vec::new(),
            instance: instance.into(),
            leader_elect: false,
            resync: Duration::from_hours(10),
            max_concurrent_reconciles: limits::RUNS_AT_ONCE,
            drain: Duration::from_secs(20),
            cores: 2,
            seed,
        }
    }
}

/// A controller engine: watches, reconciles what its plugins decide, and swaps them as rollouts.
pub struct Engine {
    reconciler: Arc<Reconciler>,
    rollout: Rollout,
    sources: Sources,
    election: Election,
    monitor: Monitor,
    recording: JoinHandle<()>,
    drain: Duration,
}

impl Engine {
    /// Puts an engine together. To be called inside a tokio runtime: its caches begin to fill.
    pub fn new(parts: Parts, settings: Settings) -> Result<Self, EngineError> {
        let Parts { client, sources, compilation, keys, registries, clock, meter } = parts;
        let Settings {
            namespace,
            watch_namespaces,
            instance,
            leader_elect,
            resync,
            max_concurrent_reconciles,
            drain,
            cores,
            seed,
        } = settings;
        let max_concurrent_calls = u16::try_from(Calls::at_once(cores)).unwrap_or(u16::MAX);
        let engine = host_wasm::Engine::new(EngineConfig { max_concurrent_calls })?;
        let election = Election::new(leader_elect, &client, &namespace, &instance, seed);
        let client = client.gated(election.gate.clone());
        let dispatch = Arc::new(Dispatch::new(max_concurrent_reconciles, seed, clock.clone()));
        let inbox = Arc::new(Inbox::new(namespace.clone()));
        let informers = informers(&client, seed, Arc::clone(&dispatch), Arc::clone(&inbox));
        let (recorder, recording) = Recorder::start(client.clone(), clock.wall());
        let voice = Voice::new(meter, recorder, election.gate.clone(), &instance);
        let recordings = Arc::<Recordings>::default();
        let plugins = Arc::<Plugins>::default();
        let board = Arc::<Board>::default();
        let calls = Calls::new(cores);
        let outlook = Outlook {
            calls: calls.clone(),
            clock,
            dispatch: Arc::clone(&dispatch),
            recordings: Arc::clone(&recordings),
        };
        let cutover = Cutover { plugins: Arc::clone(&plugins), dispatch: Arc::clone(&dispatch) };
        let trial =
            Trial { cutover: cutover.clone(), outlook: outlook.clone(), inbox: Arc::clone(&inbox) };
        let monitor = Monitor {
            plugins: Arc::clone(&plugins),
            dispatch,
            recordings,
            board: Arc::clone(&board),
            informers: informers.clone(),
            gate: election.gate.clone(),
        };
        let loader = Arc::new(Loader {
            engine,
            compilation,
            turns: Turns::default(),
            keys,
            scopes: scopes(watch_namespaces),
            namespace,
            informers,
            cluster: client,
            plugins,
            calls,
        });
        let reconciler = Arc::new(Reconciler {
            outlook: outlook.clone(),
            revisions: Arc::new(trial),
            voice: voice.clone(),
            resync,
        });
        let rollout = Rollout { loader, cutover, outlook, board, inbox, registries, voice };
        Ok(Self { reconciler, rollout, sources, election, monitor, recording, drain })
    }

    /// Looks at the engine while it runs.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Runs until `stop`, then drains; or until another host may act.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Lost> {
        let Self { reconciler, rollout, sources, election, monitor: _, recording, drain } = self;
        let (gate, leadership) = (election.gate.clone(), election.leadership.clone());
        let release = election.start();
        // They end with this future, whoever drops it.
        let mut rollouts = JoinSet::new();
        rollouts.spawn(rollout::run(rollout, sources, leadership.clone()));
        let running = workers::work(&reconciler, &gate, leadership, stop).await?;
        rollouts.shutdown().await;
        workers::drain(running, drain).await;
        drop(reconciler);
        // Others may still hold the recorder: what is waiting is sent, and then it ends.
        let _ = tokio::time::timeout(Duration::from_millis(500), recording).await;
        release.await;
        Ok(())
    }
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

fn scopes(namespaces: Vec<String>) -> Vec<Scope> {
    if namespaces.is_empty() {
        return vec![Scope::All];
    }
    namespaces.into_iter().map(Scope::Namespace).collect()
}
