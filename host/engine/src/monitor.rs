//! What may be asked of a running engine: is it ready, how is it doing, why did a parent run?
//!
//! **Invariant:** an answer is a value from memory; asking changes nothing.

use std::sync::Arc;

use host_core::queue::LaneReport;
use host_kube::{Gate, InformerReport, Informers};

use crate::dispatch::Dispatch;
use crate::plan_report::PlanReport;
use crate::plugins::Plugins;
use crate::recordings::Recordings;
use crate::rollout::board::Board;

/// Looks at a running engine. Cheap to clone; it does not keep the engine running, only what it has read in memory.
#[derive(Clone)]
pub struct Monitor {
    pub(crate) plugins: Arc<Plugins>,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) recordings: Arc<Recordings>,
    pub(crate) board: Arc<Board>,
    pub(crate) informers: Informers,
    pub(crate) gate: Gate,
}

/// How an engine is doing at one moment.
#[derive(Debug)]
pub struct Gauges {
    /// Every plugin that acts.
    pub plugins: Vec<PluginGauges>,
    /// Parents waiting for a time.
    pub delayed: usize,
    /// Whether this host may write.
    pub leading: bool,
    /// The caches.
    pub informers: Vec<InformerReport>,
}

/// One plugin that acts.
#[derive(Debug)]
pub struct PluginGauges {
    /// Its stable name.
    pub name: String,
    /// As its descriptor says it.
    pub version: String,
    /// `sha256:…` of its component.
    pub digest: String,
    /// Its share of the queue.
    pub queue: Option<LaneReport>,
}

impl Monitor {
    /// Whether every plugin that there was at the start has been loaded or refused; else why not. A bad plugin does
    /// not make a host unready, an unreachable API server does.
    pub fn readiness(&self) -> Result<(), String> {
        self.board.readiness()
    }

    /// The plan of a plugin's candidate, if it has one.
    pub fn planned(&self, plugin: &str) -> Option<Arc<PlanReport>> {
        self.board.planned(plugin)
    }

    /// How the engine is doing.
    pub fn gauges(&self) -> Gauges {
        let plugins = self.plugins.all().into_iter().map(|plugin| PluginGauges {
            name: plugin.name().to_owned(),
            version: plugin.plugin.descriptor().version.clone(),
            digest: plugin.plugin.id().digest.to_string(),
            queue: self.dispatch.report(plugin.lane),
        });
        Gauges {
            plugins: plugins.collect(),
            delayed: self.dispatch.delayed(),
            leading: self.gate.is_open(),
            informers: self.informers.report(),
        }
    }
}
