//! A revision that can act: its logic, the client that writes for it, and how its runs have gone.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use host_core::rollout::Runs;
use host_kube::Client;

use crate::logic::Logic;

/// One revision of a plugin, granted and ready to run.
pub(crate) struct LoadedPlugin {
    /// What it knows: all that a run without acting has to hand.
    pub(crate) logic: Arc<Logic>,
    /// Writes for it, by the account it is set up for.
    pub(crate) cluster: Client,
    /// How its runs have gone.
    pub(crate) record: TrackRecord,
}

impl Deref for LoadedPlugin {
    type Target = Logic;

    fn deref(&self) -> &Logic {
        &self.logic
    }
}

/// How a revision has done so far.
#[derive(Debug, Default)]
pub(crate) struct TrackRecord {
    runs: Mutex<Runs>,
    condemned: OnceLock<String>,
}

impl TrackRecord {
    /// Counts a run; gives all so far.
    pub(crate) fn count(&self, failed: bool) -> Runs {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.count(failed);
        *runs
    }

    /// All runs so far.
    pub(crate) fn runs(&self) -> Runs {
        *self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it was taken back, if it was.
    pub(crate) fn condemned(&self) -> Option<&str> {
        self.condemned.get().map(String::as_str)
    }

    /// Takes it back; the first reason counts.
    pub(crate) fn condemn(&self, why: &str) {
        let _ = self.condemned.set(why.to_owned());
    }
}
