//! The plugins that are running: one active revision each, and perhaps one more for some of the parents.
//!
//! **Invariant:** a run holds one `Arc<LoadedPlugin>` from beginning to end, and a lane runs a key once at a time,
//! so no parent is ever run by two revisions at once.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use host_core::ident::{ObjectId, ObjectKey};
use host_core::queue::Lane;
use host_core::rollout::is_in_share;
use host_core::selector::Selector;
use tokio::time::Instant;

use crate::loaded_plugin::LoadedPlugin;

/// Which parents a canary acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// So many in a hundred.
    Percent(u8),
    /// Those with these labels.
    Selector(Selector),
}

impl Share {
    fn includes(&self, plugin: &LoadedPlugin, parent: &ObjectKey) -> bool {
        match self {
            Self::Percent(percent) => is_in_share(parent, *percent),
            Self::Selector(selector) => {
                let kind = plugin.plugin.descriptor().parent.clone();
                let parent = plugin.lookup(&ObjectId { kind, key: parent.clone() });
                parent.is_some_and(|parent| selector.matches(&parent.labels))
            }
        }
    }
}

/// The revisions of one plugin that act.
struct Running {
    active: Arc<LoadedPlugin>,
    /// Acts for some parents in place of the active one.
    canary: Option<(Arc<LoadedPlugin>, Share)>,
    /// Takes over at once if the active one fails before this time.
    before: Option<(Arc<LoadedPlugin>, Instant)>,
}

#[derive(Default)]
struct Lanes {
    /// Given out once, kept for all revisions of a plugin.
    names: BTreeMap<String, Lane>,
    running: BTreeMap<Lane, Running>,
    /// How often a revision was taken back.
    setbacks: BTreeMap<Lane, u64>,
}

/// All running plugins.
#[derive(Default)]
pub(crate) struct Plugins(RwLock<Lanes>);

impl Plugins {
    fn read(&self) -> RwLockReadGuard<'_, Lanes> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Lanes> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane of a plugin, by its name.
    pub(crate) fn lane(&self, name: &str) -> Lane {
        if let Some(lane) = self.read().names.get(name) {
            return *lane;
        }
        let names = &mut self.write().names;
        let next = Lane::try_from(names.len()).unwrap_or(Lane::MAX);
        *names.entry(name.to_owned()).or_insert(next)
    }

    /// How often a revision of a plugin was taken back.
    pub(crate) fn setbacks(&self, lane: Lane) -> u64 {
        self.read().setbacks.get(&lane).copied().unwrap_or_default()
    }

    /// The revision that runs a parent.
    pub(crate) fn get(&self, lane: Lane, parent: &ObjectKey) -> Option<Arc<LoadedPlugin>> {
        let lanes = self.read();
        let running = lanes.running.get(&lane)?;
        let canary =
            running.canary.as_ref().filter(|(canary, share)| share.includes(canary, parent));
        let plugin = canary.map_or(&running.active, |(canary, _)| canary);
        plugin.is_for(parent).then(|| Arc::clone(plugin))
    }

    /// The active revision of a lane.
    pub(crate) fn active(&self, lane: Lane) -> Option<Arc<LoadedPlugin>> {
        self.read().running.get(&lane).map(|running| Arc::clone(&running.active))
    }

    /// Every active revision.
    pub(crate) fn all(&self) -> Vec<Arc<LoadedPlugin>> {
        self.read().running.values().map(|running| Arc::clone(&running.active)).collect()
    }

    /// Makes a revision the active one. The one before takes over again if it fails within `probation`: the one that
    /// is active, or where none is, `before`. An error is the plugin that has its parent kind already.
    pub(crate) fn promote(
        &self,
        plugin: &Arc<LoadedPlugin>,
        probation: Duration,
        before: Option<Arc<LoadedPlugin>>,
    ) -> Result<(), Arc<LoadedPlugin>> {
        let lanes = &mut self.write().running;
        let parent = &plugin.plugin.descriptor().parent;
        let others = lanes.iter().filter(|(lane, _)| **lane != plugin.lane);
        let mut others = others.map(|(_, running)| &running.active);
        if let Some(other) = others.find(|other| other.plugin.descriptor().parent == *parent) {
            return Err(Arc::clone(other));
        }
        let before = lanes.remove(&plugin.lane).map(|running| running.active).or(before);
        let before = before.map(|before| (before, Instant::now() + probation));
        let running = Running { active: Arc::clone(plugin), canary: None, before };
        lanes.insert(plugin.lane, running);
        Ok(())
    }

    /// Nothing acts for a lane any more; gives what did.
    pub(crate) fn retire(&self, lane: Lane) -> Option<Arc<LoadedPlugin>> {
        self.write().running.remove(&lane).map(|running| running.active)
    }

    /// Lets a revision act for some parents.
    pub(crate) fn canary(&self, plugin: &Arc<LoadedPlugin>, share: Share) {
        if let Some(running) = self.write().running.get_mut(&plugin.lane) {
            running.canary = Some((Arc::clone(plugin), share));
        }
    }

    /// Ends a canary, whichever it is. False: there was none.
    pub(crate) fn end_canary(&self, lane: Lane) -> bool {
        self.write().running.get_mut(&lane).is_some_and(|running| running.canary.take().is_some())
    }

    /// Lets go of the revision before, once its successor has proved itself.
    pub(crate) fn end_probation(&self, lane: Lane) {
        if let Some(running) = self.write().running.get_mut(&lane) {
            running.before = None;
        }
    }

    /// Until when the active revision is on probation.
    pub(crate) fn probation_end(&self, lane: Lane) -> Option<Instant> {
        self.read().running.get(&lane)?.before.as_ref().map(|(_, until)| *until)
    }

    /// Who would take over from a revision that is on trial.
    pub(crate) fn substitute(&self, plugin: &Arc<LoadedPlugin>) -> Option<Arc<LoadedPlugin>> {
        self.read().running.get(&plugin.lane)?.substitute(plugin)
    }

    /// Takes a revision on trial back: its substitute acts from here on. False: it is not on trial (any more).
    pub(crate) fn condemn(&self, plugin: &Arc<LoadedPlugin>, why: &str) -> bool {
        let mut lanes = self.write();
        let Some(running) = lanes.running.get_mut(&plugin.lane) else { return false };
        let Some(substitute) = running.substitute(plugin) else { return false };
        plugin.record.condemn(why);
        running.active = substitute;
        running.canary = None;
        running.before = None;
        *lanes.setbacks.entry(plugin.lane).or_default() += 1;
        true
    }
}

impl Running {
    fn substitute(&self, plugin: &Arc<LoadedPlugin>) -> Option<Arc<LoadedPlugin>> {
        if let Some((canary, _)) = &self.canary
            && Arc::ptr_eq(canary, plugin)
        {
            return Some(Arc::clone(&self.active));
        }
        let (before, until) = self.before.as_ref()?;
        let on_trial = Arc::ptr_eq(&self.active, plugin) && Instant::now() < *until;
        on_trial.then(|| Arc::clone(before))
    }
}
