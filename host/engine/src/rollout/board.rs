//! What outsiders may ask of flow 2: is it ready, and what would a candidate do?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::plan_report::PlanReport;

/// Readiness and plans.
#[derive(Debug)]
pub(crate) struct Board(Mutex<State>);

#[derive(Debug)]
struct State {
    /// What is wrong with the sources; None: they have been read.
    waiting_for: Option<String>,
    /// Plugins whose first load is not over.
    unsettled: BTreeSet<String>,
    plans: BTreeMap<String, Arc<PlanReport>>,
}

impl Default for Board {
    fn default() -> Self {
        Self(Mutex::new(State {
            waiting_for: Some("the plugins have not been read yet".to_owned()),
            unsettled: BTreeSet::new(),
            plans: BTreeMap::new(),
        }))
    }
}

impl Board {
    /// Whether every plugin that there was at the start has been loaded or refused; else why not.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let state = lock(&self.0);
        match (&state.waiting_for, state.unsettled.first()) {
            (Some(reason), _) => Err(reason.clone()),
            (None, Some(plugin)) => Err(format!("plugin {plugin} is being loaded")),
            (None, None) => Ok(()),
        }
    }

    /// The sources are still waited for.
    pub(super) fn waits_for(&self, reason: String) {
        lock(&self.0).waiting_for = Some(reason);
    }

    /// The sources have been read. False: that was known.
    pub(super) fn has_read(&self) -> bool {
        lock(&self.0).waiting_for.take().is_some()
    }

    /// A plugin is there; what appears later than the start does not make a host unready.
    pub(super) fn appeared(&self, plugin: &str) {
        let mut state = lock(&self.0);
        if state.waiting_for.is_some() {
            state.unsettled.insert(plugin.to_owned());
        }
    }

    /// Its first load is over.
    pub(super) fn settled(&self, plugin: &str) {
        lock(&self.0).unsettled.remove(plugin);
    }

    /// What its candidate would do; None: there is none.
    pub(super) fn plan(&self, plugin: &str, report: Option<PlanReport>) {
        let plans = &mut lock(&self.0).plans;
        match report {
            Some(report) => plans.insert(plugin.to_owned(), Arc::new(report)),
            None => plans.remove(plugin),
        };
    }

    /// The plan of a plugin's candidate, if it has one.
    pub(crate) fn planned(&self, plugin: &str) -> Option<Arc<PlanReport>> {
        lock(&self.0).plans.get(plugin).cloned()
    }
}
