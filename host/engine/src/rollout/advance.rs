//! One step of a rollout: takes the newest revision as far as it may go. Loaded → shadowed → held, canary or promoted.
//!
//! **Invariant:** a revision that cannot be loaded changes nothing: the active one keeps running.

use std::sync::Arc;
use std::time::Duration;

use host_core::decision::EventKind;
use host_core::limits;
use host_core::plugin::Stage;
use host_core::rollout::{Canary, CanarySpec, Facts, Next, Policy, QUARANTINED, judge};
use host_core::selector::Selector;
use tokio::time::Instant;

use super::load_error::LoadError;
use super::pursuit::Pursuit;
use super::source::Source;
use super::state::{Candidate, State};
use super::told::Told;
use super::wanted::Wanted;
use super::{load, publish, revisions, shadow, watch};
use crate::loaded_plugin::LoadedPlugin;
use crate::plan_report::PlanReport;
use crate::plugins::Share;

/// When a load that failed for lack of time or memory is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// How soon a candidate whose kinds cannot be observed is looked at again.
const UNOBSERVED_AFTER: Duration = Duration::from_secs(5);

impl State {
    /// Lets a revision act for every parent; `before` is what its fault would lead back to, if nothing acts now.
    pub(super) fn act(
        &mut self,
        with: &Pursuit,
        plugin: &Arc<LoadedPlugin>,
        probation: Duration,
        before: Option<Arc<LoadedPlugin>>,
    ) -> Result<(), LoadError> {
        with.cutover.promote(plugin, probation, before)?;
        self.promoted = Some(Arc::clone(plugin));
        watch::start(&plugin.logic);
        self.candidate = None;
        Ok(())
    }

    /// Takes the newest revision as far as it may go.
    pub(super) async fn advance(&mut self, with: &Pursuit, wanted: &Wanted) -> Told {
        let source = match &wanted.source {
            Some(Ok(source)) => source,
            Some(Err(error)) => {
                self.withdraw(with);
                if wanted.is_pulling() {
                    return Told::pulling(error);
                }
                return refused(with, wanted, None, error);
            }
            None => {
                self.withdraw(with);
                if wanted.object.is_none() && with.subject().plugins.store().is_synced() {
                    self.retire(with);
                }
                return Told::gone(with.name());
            }
        };
        let active = with.active();
        if let Some(active) = active.as_ref().filter(|one| one.revision == source.revision) {
            self.withdraw(with);
            // Again, if the Plugin was deleted and has taken what was kept with it.
            if wanted.leading {
                revisions::keep(with.subject(), wanted, source, active).await;
            }
            return settled(with, active);
        }
        if let Some((revision, signature, error)) = &self.refused
            && (*revision, signature) == (source.revision, &source.signature)
        {
            return Told::refused(Some(source), error);
        }
        if self.candidate.as_ref().is_some_and(|one| one.plugin.revision != source.revision) {
            self.withdraw(with);
        }
        if self.candidate.is_none() {
            let loading =
                Told::stage(source, "", Stage::Loading, "Loading", "being verified and compiled");
            publish::publish(with, wanted, self, &loading).await;
            match load::load(&with.loader, source).await {
                Ok(plugin) => {
                    self.candidate = Some(Candidate { plugin, plan: None, canary_since: None });
                }
                Err(error) => {
                    let error = Arc::new(error);
                    if !error.may_pass() {
                        let signature = source.signature.clone();
                        self.refused = Some((source.revision, signature, Arc::clone(&error)));
                    }
                    return refused(with, wanted, Some(source), &error);
                }
            }
        }
        self.consider(with, wanted, source, active.as_ref()).await
    }

    /// Nothing is left of a plugin, neither source nor `Plugin`: it stops. Its parents and what it made stay.
    fn retire(&mut self, with: &Pursuit) {
        if let Some(last) = with.cutover.plugins.retire(with.lane()) {
            tracing::warn!(
                plugin = with.name(),
                "{} has stopped: its source and its Plugin are gone",
                last.label()
            );
            *self = Self { leading: self.leading, ..Self::default() };
        }
    }

    /// Takes a candidate out of the way.
    fn withdraw(&mut self, with: &Pursuit) {
        self.candidate = None;
        with.board.plan(with.name(), None);
        if with.cutover.plugins.end_canary(with.lane())
            && let Some(active) = with.active()
        {
            with.cutover.rerun(&active);
        }
    }

    /// Runs a candidate without acting, and decides.
    async fn consider(
        &mut self,
        with: &Pursuit,
        wanted: &Wanted,
        source: &Arc<Source>,
        active: Option<&Arc<LoadedPlugin>>,
    ) -> Told {
        let Some(candidate) = &mut self.candidate else { return Told::gone(with.name()) };
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
            let plan = shadow::fleet(&with.outlook, &active.logic, &plugin.logic).await;
            candidate.plan = Some(plan.summary(limits::PLAN_DIFFERENCES));
            let summary = plan.summary(usize::MAX);
            tracing::info!(plugin = with.name(), revision = %plugin.revision, took = ?started.elapsed(), "plan: {summary}");
            let report = PlanReport::new(with.name(), active, &plugin, started.elapsed(), summary);
            with.board.plan(with.name(), Some(report));
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
            Next::Promote => self.promote(with, wanted, source, &plugin).await,
            Next::Hold { reason, message } => {
                let stage = if reason == QUARANTINED { Stage::RolledBack } else { Stage::Held };
                let told = Told::stage(source, &version, stage, reason, &message);
                with.tell(
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
            Next::Canary | Next::Bake(_) => self.canary(with, wanted, source, &plugin, bake),
        }
    }

    fn canary(
        &mut self,
        with: &Pursuit,
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
        let Some(candidate) = &mut self.candidate else { return Told::gone(with.name()) };
        let since = *candidate.canary_since.get_or_insert_with(|| {
            with.cutover.plugins.canary(plugin, share);
            with.cutover.rerun(plugin);
            with.tell(
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
        with: &Pursuit,
        wanted: &Wanted,
        source: &Arc<Source>,
        plugin: &Arc<LoadedPlugin>,
    ) -> Told {
        if wanted.leading {
            revisions::keep(with.subject(), wanted, source, plugin).await;
        }
        let started = Instant::now();
        if let Err(error) = self.act(with, plugin, wanted.spec.rollout.probation(), None) {
            return refused(with, wanted, Some(source), &Arc::new(error));
        }
        tracing::debug!(plugin = with.name(), took = ?started.elapsed(), "cut over");
        self.quarantined.retain(|one| one.revision != plugin.revision);
        self.began(&with.subject().clock, plugin);
        with.board.plan(with.name(), None);
        with.loaded("success");
        let message = format!("{} is active", plugin.label());
        tracing::info!(plugin = with.name(), digest = %plugin.plugin.id().digest, revision = %plugin.revision, "{message}");
        with.tell(wanted, EventKind::Normal, "PluginLoaded", &message);
        if wanted.leading {
            revisions::forget_old(with.subject(), &self.history, wanted.spec.history_limit()).await;
        }
        settled(with, plugin)
    }
}

/// Tells that a revision cannot run.
fn refused(
    with: &Pursuit,
    wanted: &Wanted,
    source: Option<&Arc<Source>>,
    error: &Arc<LoadError>,
) -> Told {
    let told = Told::refused(source, error);
    tracing::error!(
        plugin = with.name(),
        reason = error.reason(),
        "the plugin was not loaded: {}",
        told.message
    );
    with.loaded("refused");
    with.tell(wanted, EventKind::Warning, error.reason(), &told.message);
    told.again_after(error.may_pass().then_some(RETRY_AFTER))
}

/// Nothing is left to do but to wait for the end of probation.
fn settled(with: &Pursuit, active: &LoadedPlugin) -> Told {
    let lane = active.lane;
    let plugins = &with.cutover.plugins;
    let until = plugins.probation_end(lane);
    let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
    if rest == Some(Duration::ZERO) {
        plugins.end_probation(lane);
    }
    let rest = rest.filter(|rest| !rest.is_zero());
    Told::default().again_after(rest)
}
