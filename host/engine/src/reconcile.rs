//! One run of one parent: observe → decide → plan → apply → requeue. Flow 1 in one screen.
//!
//! **Invariant:** a run that fails before it has applied anything writes nothing but the `Reconciled` condition.
//! **Invariant:** it does not know how revisions come to act: it asks which one does, and says how its run went.

mod apply;
pub(crate) mod decide;
mod effects;
mod finalize;
pub(crate) mod observe;
pub(crate) mod plan;
mod report;
pub(crate) mod revisions;

use std::sync::Arc;
use std::time::Duration;

use host_core::limits;
use host_core::queue::{Done, Popped};
use tokio::time::Instant;
use tracing::{Instrument as _, field};

use crate::dispatch::Work;
use crate::error::{Class, Error, chain};
use crate::last_run::LastRun;
use crate::loaded_plugin::LoadedPlugin;
use crate::outlook::Outlook;
use crate::voice::Voice;
use decide::Acting;
use observe::Observation;
use plan::planned;
use revisions::{Ended, Revisions};

/// The target of the spans of a run's stages.
pub const STAGES: &str = "operator_host::stages";

/// How soon a parent is looked at again when something was refused that no retry mends: an immutable field,
/// another owner.
const REFUSED_HEARTBEAT: Duration = Duration::from_mins(1);

/// What every run needs.
pub(crate) struct Reconciler {
    pub(crate) outlook: Outlook,
    pub(crate) revisions: Arc<dyn Revisions>,
    pub(crate) voice: Voice,
    /// The slowest heartbeat of a parent.
    pub(crate) resync: Duration,
}

/// Runs one parent. Never fails: how it ended is what the queue needs to know.
pub(crate) async fn reconcile(
    with: &Reconciler,
    plugin: &Arc<LoadedPlugin>,
    work: &mut Work,
) -> (Done, LastRun) {
    let key = work.popped.key.clone();
    let span = tracing::info_span!(
        "reconcile",
        plugin = plugin.name(),
        digest = %plugin.plugin.id().digest.short(),
        namespace = &*key.key.namespace,
        name = &*key.key.name,
        cause = %work.cause,
        result = field::Empty,
    );
    let started = Instant::now();
    let ended = observed(with, plugin, work).instrument(span.clone()).await;
    let took = started.elapsed();
    with.revisions.ended(plugin, &key, &ended).instrument(span.clone()).await;
    let (done, result, failure) = match ended {
        // It went through, but not all of it: what failed is in the outcome.
        Ok(Some(Done::Failed)) => (Done::Failed, Class::Transient.as_str(), None),
        Ok(Some(done)) => (done, "success", None),
        Ok(None) => (Done::Succeeded(None), "gone", None),
        Err(error) => {
            let said = Some((error.reason(), chain(&error)));
            (error.requeue(), error.class().as_str(), said)
        }
    };
    span.record("result", result);
    with.voice.meter.reconciled(plugin.name(), result, took);
    let last = LastRun {
        at: with.outlook.clock.now(),
        took,
        cause: work.cause.clone(),
        plugin: plugin.label(),
        result,
        failure,
        outcome: work.record.previous.clone(),
        done,
    };
    (done, last)
}

/// Looks, runs, and tells the user of a failure. None: the parent is gone.
async fn observed(with: &Reconciler, plugin: &Arc<LoadedPlugin>, work: &mut Work) -> Ended {
    let key = work.popped.key.clone();
    let outlook = &with.outlook;
    let looked = staged(with, plugin, "observe", async { observe::observe(outlook, plugin, &key) });
    let (observation, ended) = match looked.await {
        Ok(None) => {
            outlook.dispatch.forget(&key);
            outlook.recordings.forget(&key);
            return Ok(None);
        }
        Ok(Some(observation)) => {
            let ended = stages(with, plugin, &observation, work).await;
            (Some(observation), ended)
        }
        Err(error) => (observe::parent_alone(plugin, &key), Err(error)),
    };
    if let Err(error) = &ended {
        if let Some(observation) = observation {
            report::failure(outlook, plugin, &key, &observation, error).await;
        }
        log(error);
    }
    ended.map(Some)
}

fn log(error: &Error) {
    let class = error.class();
    // A kind that cannot be observed is said once for all its parents (rollout/watch.rs).
    let once = matches!(error, Error::Unobserved { .. });
    if error.is_reported() && !once {
        tracing::warn!(reason = error.reason(), class = class.as_str(), "{}", chain(error));
    } else {
        tracing::debug!(reason = error.reason(), "{error}");
    }
}

/// Measures a stage; its span is a child of the run's.
async fn staged<T>(
    with: &Reconciler,
    plugin: &LoadedPlugin,
    stage: &'static str,
    work: impl Future<Output = T>,
) -> T {
    let started = Instant::now();
    // Below what logs show: five spans a run are for traces.
    let span = tracing::debug_span!(target: STAGES, "stage", otel.name = stage);
    let result = work.instrument(span).await;
    with.voice.meter.stage(plugin.name(), stage, started.elapsed());
    result
}

/// The five stages.
async fn stages(
    with: &Reconciler,
    plugin: &LoadedPlugin,
    observation: &Observation,
    work: &mut Work,
) -> Result<Done, Error> {
    let Reconciler { outlook, revisions: _, voice, resync } = with;
    let Work { popped: Popped { key, hot, .. }, cause, record } = work;
    if !finalize::before(&outlook.dispatch, plugin, key, observation).await? {
        return Ok(Done::Succeeded(None));
    }
    let acting = Acting { key, meter: &*voice.meter };
    let deciding = decide::decide(outlook, &acting, &plugin.logic, observation, record);
    let mut decision = staged(with, plugin, "decide", deciding).await?;
    let desired = std::mem::take(&mut decision.objects);
    let plan = staged(with, plugin, "plan", async {
        planned(outlook.clock.elapsed(), plugin, observation, desired, &mut record.memory)
    })
    .await;
    let applying = apply::apply(voice, plugin, observation, &plan, &decision, &mut record.memory);
    let mut effects = staged(with, plugin, "apply", applying).await;
    report::contested(voice, plugin, observation, plan.contested());
    report::events(voice, plugin, observation, &decision.events);
    let finished = decision.finished;
    let requeue = decision.requeue_after.unwrap_or(*resync);
    let reconciled = report::reconciled(plugin, observation, &plan, &effects, hot.then_some(cause));
    let status = staged(with, plugin, "status", async {
        let desired = decision.status;
        report::status(&outlook.clock, plugin, observation, &reconciled, &mut effects, desired)
            .await
    })
    .await;
    // What is only not created because its parent goes must not keep the parent.
    let problem = effects
        .outcome
        .first_problem()
        .is_some_and(|(_, problem)| problem.reason != "ParentDeleting");
    record.previous = Some(Arc::new(effects.outcome));
    outlook.dispatch.remember_writes(key, effects.writes);
    // What was done is remembered first: a status that could not be written does not undo it.
    status?;
    if effects.retry {
        return Ok(Done::Failed);
    }
    if finished && !problem {
        finalize::after(plugin, observation).await?;
    }
    let requeue = if problem { requeue.min(REFUSED_HEARTBEAT) } else { requeue };
    // What has cooled down or is no longer fought over is told as well.
    let watchful = *hot || !plan.contested().is_empty();
    let requeue = if watchful { requeue.min(limits::CONTEST_WINDOW) } else { requeue };
    Ok(Done::Succeeded(Some(requeue)))
}
