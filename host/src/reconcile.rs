//! One run of one parent: observe → decide → plan → apply → requeue. Flow 1 in one screen.
//!
//! **Invariant:** a run that fails before it has applied anything writes nothing but the `Reconciled` condition.

mod apply;
pub(crate) mod decide;
mod finalize;
pub(crate) mod observe;
mod report;

use std::sync::Arc;
use std::time::Duration;

use host_core::expectations::Expected;
use host_core::guard::{GuardContext, GuardedPlan, guard};
use host_core::ident::ObjectId;
use host_core::plan::{Memory, PlanContext, plan};
use host_core::queue::{Done, Popped};
use host_core::snapshot::Outcome;
use host_core::{decision::DesiredObject, limits, text};
use tokio::time::Instant;
use tracing::{Instrument as _, field};

use crate::dispatch::Work;
use crate::error::{Class, Error, chain};
use crate::explain::LastRun;
use crate::plugins::LoadedPlugin;
use crate::rollout::trial;
use crate::run::Host;
use observe::Observation;

/// How soon a parent is looked at again when something was refused that no retry mends: an immutable field,
/// another owner.
const REFUSED_HEARTBEAT: Duration = Duration::from_mins(1);

/// What a run has done, for the end of it.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// What became of the decision.
    outcome: Outcome,
    /// What the cache has to show before the next run.
    writes: Vec<(ObjectId, Expected)>,
    /// Something failed that a retry may mend.
    retry: bool,
}

/// Runs one parent. Never fails: how it ended is what the queue needs to know.
pub(crate) async fn reconcile(
    host: &Host,
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
    let ended = observed(host, plugin, work).instrument(span.clone()).await;
    let took = started.elapsed();
    trial::after_run(host, plugin, &key, &ended).instrument(span.clone()).await;
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
    host.metrics.reconciled(plugin.name(), result, took);
    let last = LastRun {
        at: crate::telemetry::now(),
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
async fn observed(
    host: &Host,
    plugin: &Arc<LoadedPlugin>,
    work: &mut Work,
) -> Result<Option<Done>, Error> {
    let key = work.popped.key.clone();
    let looked = staged(host, plugin, "observe", async { observe::observe(host, plugin, &key) });
    let (observation, ended) = match looked.await {
        Ok(None) => {
            host.dispatch.forget(&key);
            host.recordings.forget(&key);
            return Ok(None);
        }
        Ok(Some(observation)) => {
            let ended = run(host, plugin, &observation, work).await;
            (Some(observation), ended)
        }
        Err(error) => (observe::parent_alone(plugin, &key), Err(error)),
    };
    if let Err(error) = &ended {
        if let Some(observation) = observation {
            report::failure(host, plugin, &key, &observation, error).await;
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
    host: &Host,
    plugin: &LoadedPlugin,
    stage: &'static str,
    work: impl Future<Output = T>,
) -> T {
    let started = Instant::now();
    // Below what logs show: five spans a run are for traces.
    let span = tracing::debug_span!(target: crate::telemetry::STAGES, "stage", otel.name = stage);
    let result = work.instrument(span).await;
    host.metrics.stage(plugin.name(), stage, started.elapsed());
    result
}

/// The five stages.
async fn run(
    host: &Host,
    plugin: &Arc<LoadedPlugin>,
    observation: &Observation,
    work: &mut Work,
) -> Result<Done, Error> {
    let Work { popped: Popped { key, hot, .. }, cause, record } = work;
    if !finalize::before(host, plugin, key, observation).await? {
        return Ok(Done::Succeeded(None));
    }
    let deciding = decide::decide(host, plugin, key, observation, record);
    let mut decision = staged(host, plugin, "decide", deciding).await?;
    let desired = std::mem::take(&mut decision.objects);
    let plan = staged(host, plugin, "plan", async {
        planned(host, plugin, observation, desired, &mut record.memory)
    })
    .await;
    let applying = apply::apply(host, plugin, observation, &plan, &decision, &mut record.memory);
    let mut run = staged(host, plugin, "apply", applying).await;
    report::contested(host, plugin, observation, plan.contested());
    report::events(host, plugin, observation, &decision.events);
    let finished = decision.finished;
    let requeue = decision.requeue_after.unwrap_or(host.resync);
    let reconciled = report::reconciled(plugin, observation, &plan, &run, hot.then_some(cause));
    let status = staged(host, plugin, "status", async {
        report::status(plugin, observation, &reconciled, &mut run, decision.status).await
    })
    .await;
    // What is only not created because its parent goes must not keep the parent.
    let problem =
        run.outcome.first_problem().is_some_and(|(_, problem)| problem.reason != "ParentDeleting");
    record.previous = Some(Arc::new(run.outcome));
    host.dispatch.remember_writes(key, run.writes);
    // What was done is remembered first: a status that could not be written does not undo it.
    status?;
    if run.retry {
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

/// Plan and guard: pure, and the only way to something that can be applied.
pub(crate) fn planned(
    host: &Host,
    plugin: &LoadedPlugin,
    observation: &Observation,
    desired: Vec<DesiredObject>,
    memory: &mut Memory,
) -> GuardedPlan {
    let parent = &observation.parent;
    let context = PlanContext {
        plugin: plugin.name(),
        parent,
        children: &observation.children,
        marked: &observation.marked,
        now: host.dispatch.now(),
    };
    let plan = plan(&context, desired, memory, |id| plugin.lookup(id));
    let consent = observation.annotation(text::ANNOTATION_ALLOW_DELETIONS);
    let context = GuardContext {
        grants: &plugin.grants,
        parent_namespace: &parent.object.key.namespace,
        parent_deleting: parent.object.deleting,
        parent_generation: parent.object.generation,
        allow_deletions: consent.as_deref(),
        children: observation.children.len(),
    };
    guard(&context, plan)
}
