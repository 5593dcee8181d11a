//! One plugin's rollout: looks at what is wanted, does the next thing, tells how far it is, looks again.
//!
//! Level-triggered, like a reconcile: whatever happens between two looks, the next one starts from what is there. When
//! something new is wanted, work in progress is dropped where it waits; what belongs together happens without waiting.
//!
//! **Invariant:** a stale load never replaces a newer one: its result is dropped with the work that waited for it.

use std::sync::Arc;
use std::time::Duration;

use host_core::decision::EventKind;
use host_core::limits;
use host_core::plugin::{PluginStatus, Quarantined, Stage};
use tokio::time::Instant;

use super::load_error::LoadError;
use super::publish;
use super::pursuit::Pursuit;
use super::state::State;
use super::told::Told;
use super::wanted::Wanted;
use crate::error::chain;
use crate::loaded_plugin::LoadedPlugin;

/// How often the number of parents in a status is brought up to date.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How soon it is looked again for a `Plugin` that was made and has not been seen yet.
const SEEN_AFTER: Duration = Duration::from_secs(5);

/// Pursues what is wanted of a plugin, for ever.
pub(super) async fn pursue(with: Pursuit) {
    let mut state = State::default();
    let mut wanted = with.eye.look().await;
    loop {
        let setbacks = with.setbacks();
        let (last, seen) = (wanted.fingerprint(), wanted.outline());
        let work = async {
            let told = state.step(&with, &wanted).await;
            if !told.is_at(Stage::Loading) {
                with.board.settled(with.name());
            }
            // The bytes are as large as everything else that an idle plugin takes.
            wanted.source = None;
            state.rest(&with, &wanted, &told).await;
        };
        let was_taken_back = || with.setbacks() != setbacks;
        wanted = tokio::select! {
            next = with.eye.changed(&last, &seen, was_taken_back) => next,
            () = work => with.eye.look().await,
        };
    }
}

impl State {
    /// Does what is next, and tells.
    async fn step(&mut self, with: &Pursuit, wanted: &Wanted) -> Told {
        if wanted.leading && !self.leading {
            self.remember(&wanted.told);
        }
        self.leading = wanted.leading;
        // Loading waits for the `Plugin`: it says how, and what is loaded before it is seen would be loaded again.
        if publish::create(with.subject(), wanted).await {
            return Told::appearing().again_after(Some(SEEN_AFTER));
        }
        self.take_back(with, wanted);
        for taken in self.quarantined.iter_mut().filter(|one| !wanted.spec.names(one.revision)) {
            taken.approval_spent = false;
        }
        self.restore(with, wanted).await;
        let told = self.advance(with, wanted).await;
        let retry = publish::publish(with, wanted, self, &told).await;
        let again = [told.again, retry].into_iter().flatten().min();
        told.again_after(again)
    }

    /// Until it is time to come back; keeps what is told true meanwhile: parents come and go.
    async fn rest(&self, with: &Pursuit, wanted: &Wanted, told: &Told) {
        let until = told.again.map(|delay| Instant::now() + delay);
        loop {
            let tell = Instant::now() + TELL_EVERY;
            match until.filter(|until| *until <= tell) {
                Some(until) => return tokio::time::sleep_until(until).await,
                None => tokio::time::sleep_until(tell).await,
            }
            publish::publish(with, wanted, self, told).await;
        }
    }

    /// Notes revisions that were taken back.
    fn take_back(&mut self, with: &Pursuit, wanted: &Wanted) {
        let canary = self.candidate.as_ref().map(|candidate| &candidate.plugin);
        let taken = canary.into_iter().chain(&self.promoted);
        let taken = taken.filter_map(|plugin| {
            Some((plugin.revision, plugin.label(), plugin.record.condemned()?.to_owned()))
        });
        let taken: Vec<_> = taken.collect();
        for (revision, label, why) in taken {
            if self.quarantined.iter().any(|one| one.revision == revision) {
                continue;
            }
            for entry in self.history.iter_mut().filter(|one| one.revision == revision) {
                entry.ended.clone_from(&why);
            }
            self.quarantined.insert(
                0,
                Quarantined {
                    revision,
                    reason: why.clone(),
                    approval_spent: wanted.spec.names(revision),
                },
            );
            self.quarantined.truncate(limits::HISTORY_MAX);
            let active = with.active();
            // A canary has not replaced anything.
            if let Some(active) = &active
                && self.history.first().is_none_or(|entry| entry.revision != active.revision)
            {
                self.began(&with.subject().clock, active);
            }
            self.promoted = active;
            with.loaded("rolled_back");
            with.tell(
                wanted,
                EventKind::Warning,
                "PluginRolledBack",
                &format!("{label}, revision {revision}, was taken back: {why}"),
            );
        }
        if self.candidate.as_ref().is_some_and(|one| one.plugin.record.condemned().is_some()) {
            self.candidate = None;
        }
    }

    /// Runs what ran last, if nothing does: a host that starts with a bad source runs the last good revision.
    async fn restore(&mut self, with: &Pursuit, wanted: &Wanted) {
        let Some(last) = &wanted.told.active else { return };
        let runs = with.active().map(|active| active.revision);
        let follow = !wanted.leading && runs != Some(last.revision);
        if runs.is_some() && !follow {
            return;
        }
        let source = match &wanted.source {
            Some(Ok(source)) if source.revision == last.revision => Ok(Arc::clone(source)),
            _ => with.eye.kept(last.revision).await,
        };
        let loaded = with.load(source).await;
        let (probation, before) = if last.on_probation {
            (wanted.spec.rollout.probation(), self.way_back(with, &wanted.told).await)
        } else {
            (Duration::ZERO, None)
        };
        let acts = loaded.and_then(|plugin| {
            self.act(with, &plugin, probation, before).map(|()| plugin).map_err(Arc::new)
        });
        match acts {
            Ok(plugin) => {
                let revision = plugin.revision;
                tracing::info!(plugin = with.name(), %revision, "{} is active, as before", plugin.label());
                with.loaded("success");
            }
            Err(error) => tracing::warn!(
                plugin = with.name(),
                "the revision that ran last, {}, cannot run: {}",
                last.revision,
                chain(&*error)
            ),
        }
    }

    /// What acted before a revision that was on probation when the host before has ended.
    async fn way_back(&self, with: &Pursuit, told: &PluginStatus) -> Option<Arc<LoadedPlugin>> {
        let before = told.history.get(1)?.revision;
        if let Some(active) = with.active().filter(|active| active.revision == before) {
            return Some(active);
        }
        let loaded = with.load(with.eye.kept(before).await).await;
        let none = |error: &Arc<LoadError>| {
            tracing::warn!(
                plugin = with.name(),
                "there is no way back to revision {before}: {}",
                chain(&**error)
            );
        };
        loaded.inspect_err(none).ok()
    }
}
