//! One plugin's rollout: looks at what is wanted, does the next thing, tells how far it is, looks again.
//!
//! Level-triggered, like a reconcile: whatever happens between two looks, the next one starts from what is there. When
//! something new is wanted, work in progress is dropped where it waits; what belongs together happens without waiting.
//!
//! **Invariant:** a stale load never replaces a newer one: its result is dropped with the work that waited for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use host_core::decision::EventKind;
use host_core::divergence::PlanSummary;
use host_core::limits;
use host_core::plugin::{HistoryEntry, PluginStatus, Quarantined, Revision, Stage};
use host_core::rollout::{Canary, CanarySpec, Facts, Next, Policy, QUARANTINED, judge};
use host_core::selector::Selector;
use tokio::time::Instant;

use super::eye::Eye;
use super::load::{self, LoadError};
use super::publish::{self, Told};
use super::source::{Source, Wanted};
use super::{PlanReport, revisions, shadow, watch};
use crate::error::chain;
use crate::plugins::{LoadedPlugin, Share};
use crate::signature::Signature;

/// When a load that failed for lack of time or memory, or a status that could not be written, is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// How often the number of parents in a status is brought up to date.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How soon a candidate whose kinds cannot be observed is looked at again.
const UNOBSERVED_AFTER: Duration = Duration::from_secs(5);

/// How far a rollout is.
#[derive(Default)]
pub(super) struct State {
    candidate: Option<Candidate>,
    /// With the signature it came with: another one may be better.
    refused: Option<(Revision, Option<Signature>, Arc<LoadError>)>,
    /// What acts since the last promotion.
    promoted: Option<Arc<LoadedPlugin>>,
    pub(super) history: Vec<HistoryEntry>,
    pub(super) quarantined: Vec<Quarantined>,
    leading: bool,
}

/// A revision that is loaded and does not act, or not everywhere.
struct Candidate {
    plugin: Arc<LoadedPlugin>,
    plan: Option<PlanSummary>,
    canary_since: Option<Instant>,
}

impl Eye {
    /// Pursues what is wanted, for ever.
    pub(super) async fn pursue(self) {
        let mut state = State::default();
        let mut wanted = self.look().await;
        loop {
            let setbacks = self.setbacks.load(Ordering::Acquire);
            let (last, seen) = (wanted.fingerprint(), wanted.outline());
            let work = async {
                let told = state.step(&self, &wanted).await;
                // The bytes are as large as everything else that an idle plugin takes.
                if !wanted.is_pulling() {
                    self.host.rollout.settled(&self.name);
                }
                wanted.source = None;
                state.rest(&self, &wanted, &told).await;
            };
            wanted = tokio::select! {
                next = self.changed(&last, &seen, setbacks) => next,
                () = work => self.look().await,
            };
        }
    }
}

impl State {
    /// Does what is next, and tells.
    async fn step(&mut self, eye: &Eye, wanted: &Wanted) -> Told {
        if wanted.leading && !self.leading {
            self.remember(&wanted.told);
        }
        self.leading = wanted.leading;
        self.take_back(eye, wanted);
        for taken in self.quarantined.iter_mut().filter(|one| !wanted.spec.names(one.revision)) {
            taken.approval_spent = false;
        }
        self.restore(eye, wanted).await;
        let told = self.advance(eye, wanted).await;
        let retry = publish::publish(eye, wanted, self, &told).await;
        let again = [told.again, retry].into_iter().flatten().min();
        told.again_after(again)
    }

    /// Until it is time to come back; keeps what is told true meanwhile: parents come and go.
    async fn rest(&self, eye: &Eye, wanted: &Wanted, told: &Told) {
        let until = told.again.map(|delay| Instant::now() + delay);
        loop {
            let tell = Instant::now() + TELL_EVERY;
            match until.filter(|until| *until <= tell) {
                Some(until) => return tokio::time::sleep_until(until).await,
                None => tokio::time::sleep_until(tell).await,
            }
            publish::publish(eye, wanted, self, told).await;
        }
    }

    /// Goes on where the host before has stopped.
    fn remember(&mut self, told: &PluginStatus) {
        self.history.clone_from(&told.history);
        self.quarantined.clone_from(&told.quarantined);
    }

    /// Notes revisions that were taken back.
    fn take_back(&mut self, eye: &Eye, wanted: &Wanted) {
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
            let active = eye.active();
            // A canary has not replaced anything.
            if let Some(active) = &active
                && self.history.first().is_none_or(|entry| entry.revision != active.revision)
            {
                self.began(active);
            }
            self.promoted = active;
            eye.host.metrics.loaded(&eye.name, "rolled_back");
            publish::event(
                eye,
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
    async fn restore(&mut self, eye: &Eye, wanted: &Wanted) {
        let Some(last) = &wanted.told.active else { return };
        let runs = eye.active().map(|active| active.revision);
        let follow = !wanted.leading && runs != Some(last.revision);
        if runs.is_some() && !follow {
            return;
        }
        let source = match &wanted.source {
            Some(Ok(source)) if source.revision == last.revision => Ok(Arc::clone(source)),
            _ => eye.kept(last.revision).await,
        };
        let loaded = eye.load(source).await;
        let (probation, before) = if last.on_probation {
            (wanted.spec.rollout.probation(), self.way_back(eye, &wanted.told).await)
        } else {
            (Duration::ZERO, None)
        };
        let acts = loaded.and_then(|plugin| {
            self.act(eye, &plugin, probation, before).map(|()| plugin).map_err(Arc::new)
        });
        match acts {
            Ok(plugin) => {
                let revision = plugin.revision;
                tracing::info!(plugin = &*eye.name, %revision, "{} is active, as before", plugin.label());
                eye.host.metrics.loaded(&eye.name, "success");
            }
            Err(error) => tracing::warn!(
                plugin = &*eye.name,
                "the revision that ran last, {}, cannot run: {}",
                last.revision,
                chain(&*error)
            ),
        }
    }

    /// What acted before a revision that was on probation when the host before has ended.
    async fn way_back(&self, eye: &Eye, told: &PluginStatus) -> Option<Arc<LoadedPlugin>> {
        let before = told.history.get(1)?.revision;
        if let Some(active) = eye.active().filter(|active| active.revision == before) {
            return Some(active);
        }
        let loaded = eye.load(eye.kept(before).await).await;
        let none = |error: &Arc<LoadError>| {
            tracing::warn!(
                plugin = &*eye.name,
                "there is no way back to revision {before}: {}",
                chain(&**error)
            );
        };
        loaded.inspect_err(none).ok()
    }

    /// Lets a revision act for every parent; `before` is what its fault would lead back to, if nothing acts now.
    fn act(
        &mut self,
        eye: &Eye,
        plugin: &Arc<LoadedPlugin>,
        probation: Duration,
        before: Option<Arc<LoadedPlugin>>,
    ) -> Result<(), LoadError> {
        load::promote(&eye.host, plugin, probation, before)?;
        self.promoted = Some(Arc::clone(plugin));
        watch::start(plugin);
        self.candidate = None;
        Ok(())
    }

    /// Takes the newest revision as far as it may go.
    async fn advance(&mut self, eye: &Eye, wanted: &Wanted) -> Told {
        let source = match &wanted.source {
            Some(Ok(source)) => source,
            Some(Err(error)) => {
                self.withdraw(eye);
                if wanted.is_pulling() {
                    return Told::pulling(error);
                }
                return refused(eye, wanted, None, error);
            }
            None => {
                self.withdraw(eye);
                if wanted.object.is_none() && eye.plugins.store().is_synced() {
                    self.retire(eye);
                }
                return Told::gone(eye);
            }
        };
        let active = eye.active();
        if let Some(active) = active.as_ref().filter(|one| one.revision == source.revision) {
            self.withdraw(eye);
            // Again, if the Plugin was deleted and has taken what was kept with it.
            if wanted.leading {
                revisions::keep(eye, wanted, source, active).await;
            }
            return settled(eye, active);
        }
        if let Some((revision, signature, error)) = &self.refused
            && (*revision, signature) == (source.revision, &source.signature)
        {
            return Told::refused(Some(source), error);
        }
        if self.candidate.as_ref().is_some_and(|one| one.plugin.revision != source.revision) {
            self.withdraw(eye);
        }
        if self.candidate.is_none() {
            let loading =
                Told::stage(source, "", Stage::Loading, "Loading", "being verified and compiled");
            publish::publish(eye, wanted, self, &loading).await;
            match load::load(&eye.host, source).await {
                Ok(plugin) => {
                    self.candidate = Some(Candidate { plugin, plan: None, canary_since: None });
                }
                Err(error) => {
                    let error = Arc::new(error);
                    if !error.may_pass() {
                        let signature = source.signature.clone();
                        self.refused = Some((source.revision, signature, Arc::clone(&error)));
                    }
                    return refused(eye, wanted, Some(source), &error);
                }
            }
        }
        self.consider(eye, wanted, source, active.as_ref()).await
    }

    /// Nothing is left of a plugin, neither source nor `Plugin`: it stops. Its parents and what it made stay.
    fn retire(&mut self, eye: &Eye) {
        if let Some(last) = eye.host.plugins.retire(eye.host.rollout.lane(&eye.name)) {
            tracing::warn!(
                plugin = &*eye.name,
                "{} has stopped: its source and its Plugin are gone",
                last.label()
            );
            *self = Self { leading: self.leading, ..Self::default() };
        }
    }

    /// Takes a candidate out of the way.
    fn withdraw(&mut self, eye: &Eye) {
        self.candidate = None;
        eye.host.rollout.plan(&eye.name, None);
        if eye.host.plugins.end_canary(eye.host.rollout.lane(&eye.name))
            && let Some(active) = eye.active()
        {
            load::rerun(&eye.host, &active);
        }
    }

    /// Runs a candidate without acting, and decides.
    async fn consider(
        &mut self,
        eye: &Eye,
        wanted: &Wanted,
        source: &Arc<Source>,
        active: Option<&Arc<LoadedPlugin>>,
    ) -> Told {
        let Some(candidate) = &mut self.candidate else { return Told::gone(eye) };
        let plugin = Arc::clone(&candidate.plugin);
        let version = plugin.plugin.descriptor().version.clone();
        if !wanted.leading && wanted.object.is_some() {
            // Warm: the leader decides, and its status tells.
            return Told::stage(source, &version, Stage::Held, "Standby", "the leader decides");
        }
        // Who wants it to act whatever it does need not wait for what it would do.
        let asked = wanted.spec.rollout.policy != Policy::Always;
        if let (Some(active), None, true) = (active, &candidate.plan, asked) {
            if let Err(problem) = shadow::ready(&plugin).await {
                let message = format!("it cannot be tried: {problem}");
                let told = Told::stage(source, &version, Stage::Shadowing, "Unobserved", &message);
                return told.again_after(Some(UNOBSERVED_AFTER));
            }
            let started = Instant::now();
            let plan = shadow::fleet(&eye.host, active, &plugin).await;
            candidate.plan = Some(plan.summary(limits::PLAN_DIFFERENCES));
            let summary = plan.summary(usize::MAX);
            tracing::info!(plugin = &*eye.name, revision = %plugin.revision, took = ?started.elapsed(), "plan: {summary}");
            let report = PlanReport::new(&eye.name, active, &plugin, started.elapsed(), summary);
            eye.host.rollout.plan(&eye.name, Some(report));
        }
        let added = active.map(|active| plugin.beyond(active)).unwrap_or_default();
        let quarantined = self.quarantined.iter().find(|one| one.revision == source.revision);
        let bake = wanted.spec.rollout.canary.as_ref().map(CanarySpec::bake).unwrap_or_default();
        let canary = candidate.canary_since.map(|since| bake.saturating_sub(since.elapsed()));
        let next = judge(&Facts {
            spec: &wanted.spec.rollout,
            replaces: active.is_some(),
            approved: wanted.spec.names(source.revision)
                && quarantined.is_none_or(|one| !one.approval_spent),
            paused: wanted.spec.paused,
            quarantined: quarantined.map(|one| &*one.reason),
            added_powers: &added,
            plan: candidate.plan.as_ref(),
            canary: match canary {
                None => Canary::NotYet,
                Some(Duration::ZERO) => Canary::Baked,
                Some(rest) => Canary::Baking(rest),
            },
        });
        match next {
            Next::Promote => self.promote(eye, wanted, source, &plugin).await,
            Next::Hold { reason, message } => {
                let stage = if reason == QUARANTINED { Stage::RolledBack } else { Stage::Held };
                let told = Told::stage(source, &version, stage, reason, &message);
                publish::event(
                    eye,
                    wanted,
                    EventKind::Warning,
                    "PluginHeld",
                    &format!(
                        "{}, revision {}: {reason}: {message}",
                        plugin.label(),
                        source.revision
                    ),
                );
                told
            }
            Next::Canary | Next::Bake(_) => self.canary(eye, wanted, source, &plugin, bake),
        }
    }

    fn canary(
        &mut self,
        eye: &Eye,
        wanted: &Wanted,
        source: &Arc<Source>,
        plugin: &Arc<LoadedPlugin>,
        bake: Duration,
    ) -> Told {
        let version = &plugin.plugin.descriptor().version;
        let spec = wanted.spec.rollout.canary.clone().unwrap_or_default();
        let share = match (spec.percent, spec.selector.as_deref().map(Selector::parse)) {
            (_, Some(Ok(selector))) => Share::Selector(selector),
            (Some(percent), _) => Share::Percent(percent),
            (None, Some(Err(_)) | None) => {
                let message = "spec.rollout.canary needs percent, or a selector such as tier=test";
                return Told::stage(source, version, Stage::Held, "InvalidCanary", message);
            }
        };
        let Some(candidate) = &mut self.candidate else { return Told::gone(eye) };
        let since = *candidate.canary_since.get_or_insert_with(|| {
            eye.host.plugins.canary(plugin, share);
            load::rerun(&eye.host, plugin);
            publish::event(
                eye,
                wanted,
                EventKind::Normal,
                "PluginCanary",
                &format!("{}, revision {}, acts for some parents", plugin.label(), plugin.revision),
            );
            Instant::now()
        });
        let rest = bake.saturating_sub(since.elapsed());
        let message =
            format!("it acts for some parents, for {} s before it acts for all", bake.as_secs());
        let told = Told::stage(source, version, Stage::Canary, "Baking", &message);
        told.again_after(Some(rest))
    }

    async fn promote(
        &mut self,
        eye: &Eye,
        wanted: &Wanted,
        source: &Arc<Source>,
        plugin: &Arc<LoadedPlugin>,
    ) -> Told {
        if wanted.leading {
            revisions::keep(eye, wanted, source, plugin).await;
        }
        let started = Instant::now();
        if let Err(error) = self.act(eye, plugin, wanted.spec.rollout.probation(), None) {
            return refused(eye, wanted, Some(source), &Arc::new(error));
        }
        tracing::debug!(plugin = &*eye.name, took = ?started.elapsed(), "cut over");
        self.quarantined.retain(|one| one.revision != plugin.revision);
        self.began(plugin);
        eye.host.rollout.plan(&eye.name, None);
        eye.host.metrics.loaded(&eye.name, "success");
        let message = format!("{} is active", plugin.label());
        tracing::info!(plugin = &*eye.name, digest = %plugin.plugin.id().digest, revision = %plugin.revision, "{message}");
        publish::event(eye, wanted, EventKind::Normal, "PluginLoaded", &message);
        if wanted.leading {
            revisions::forget_old(eye, self, wanted.spec.history_limit()).await;
        }
        settled(eye, plugin)
    }

    /// Notes that a revision acts from now on.
    fn began(&mut self, plugin: &LoadedPlugin) {
        for entry in self.history.iter_mut().filter(|one| one.ended.is_empty()) {
            "Replaced".clone_into(&mut entry.ended);
        }
        let entry = HistoryEntry {
            revision: plugin.revision,
            digest: plugin.plugin.id().digest.to_string(),
            version: plugin.plugin.descriptor().version.clone(),
            promoted: crate::telemetry::now(),
            ended: String::new(),
        };
        self.history.insert(0, entry);
        self.history.truncate(limits::HISTORY_MAX);
    }

    /// The plan of the candidate.
    pub(super) fn plan(&self) -> Option<&PlanSummary> {
        self.candidate.as_ref()?.plan.as_ref()
    }
}

/// Tells that a revision cannot run.
fn refused(
    eye: &Eye,
    wanted: &Wanted,
    source: Option<&Arc<Source>>,
    error: &Arc<LoadError>,
) -> Told {
    let told = Told::refused(source, error);
    tracing::error!(
        plugin = &*eye.name,
        reason = error.reason(),
        "the plugin was not loaded: {}",
        told.message
    );
    eye.host.metrics.loaded(&eye.name, "refused");
    publish::event(eye, wanted, EventKind::Warning, error.reason(), &told.message);
    told.again_after(error.may_pass().then_some(RETRY_AFTER))
}

/// Nothing is left to do but to wait for the end of probation.
fn settled(eye: &Eye, active: &LoadedPlugin) -> Told {
    let lane = active.lane;
    let rest = eye
        .host
        .plugins
        .probation_end(lane)
        .map(|until| until.saturating_duration_since(Instant::now()));
    if rest == Some(Duration::ZERO) {
        eye.host.plugins.end_probation(lane);
    }
    let rest = rest.filter(|rest| !rest.is_zero());
    Told::active().again_after(rest)
}
