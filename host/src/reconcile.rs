//! One run of one parent: observe → decide → plan → apply → requeue. Flow 1 in one screen.
//!
//! **Invariant:** a run that fails before it has applied anything writes nothing but the `Reconciled` condition.

mod apply;
mod decide;
mod finalize;
mod observe;
mod report;

use std::sync::Arc;
use std::time::Duration;

use host_core::expectations::Expected;
use host_core::guard::{GuardContext, GuardedPlan, guard};
use host_core::ident::ObjectId;
use host_core::plan::{Memory, PlanContext, plan};
use host_core::queue::{Done, ParentKey};
use host_core::snapshot::Outcome;
use host_core::{decision::DesiredObject, text};
use tracing::{Instrument as _, Span, field};

use crate::dispatch::Record;
use crate::error::{Error, chain};
use crate::plugins::ActivePlugin;
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
    plugin: &Arc<ActivePlugin>,
    key: &ParentKey,
    record: &mut Record,
) -> Done {
    let span = tracing::info_span!(
        "reconcile",
        plugin = plugin.name(),
        digest = %plugin.plugin.id().digest.short(),
        namespace = &*key.key.namespace,
        name = &*key.key.name,
        result = field::Empty,
    );
    let started = tokio::time::Instant::now();
    let (done, result) = async {
        let observation = match observe::observe(host, plugin, key) {
            Ok(Some(observation)) => observation,
            Ok(None) => {
                host.dispatch.forget(key);
                return (Done::Succeeded(None), "gone");
            }
            Err(error) => {
                if let Some(observation) = observe::parent_alone(plugin, key) {
                    report::failure(host, plugin, key, &observation, &error).await;
                }
                return failed(&error);
            }
        };
        match run(host, plugin, key, &observation, record).await {
            Ok(done) => (done, "success"),
            Err(error) => {
                report::failure(host, plugin, key, &observation, &error).await;
                failed(&error)
            }
        }
    }
    .instrument(span.clone())
    .await;
    span.record("result", result);
    host.metrics.reconciled(plugin.name(), result, started.elapsed());
    done
}

fn failed(error: &Error) -> (Done, &'static str) {
    let class = error.class();
    if error.is_reported() {
        tracing::warn!(reason = error.reason(), class = class.as_str(), "{}", chain(error));
    } else {
        tracing::debug!(reason = error.reason(), "{error}");
    }
    Span::current().record("result", class.as_str());
    (error.requeue(), class.as_str())
}

/// The five stages.
async fn run(
    host: &Host,
    plugin: &Arc<ActivePlugin>,
    key: &ParentKey,
    observation: &Observation,
    record: &mut Record,
) -> Result<Done, Error> {
    if !finalize::before(host, plugin, key, observation).await? {
        return Ok(Done::Succeeded(None));
    }
    let mut decision = decide::decide(host, plugin, key, observation, record).await?;
    let desired = std::mem::take(&mut decision.objects);
    let plan = planned(plugin, observation, desired, &mut record.memory);
    let mut run =
        apply::apply(host, plugin, observation, &plan, &decision, &mut record.memory).await;
    report::events(host, plugin, observation, &decision.events);
    let finished = decision.finished;
    let requeue = decision.requeue_after.unwrap_or(host.resync);
    let status = report::status(host, plugin, observation, &plan, &mut run, decision.status).await;
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
        finalize::after(host, plugin, observation).await?;
    }
    let requeue = if problem { requeue.min(REFUSED_HEARTBEAT) } else { requeue };
    Ok(Done::Succeeded(Some(requeue)))
}

/// Plan and guard: pure, and the only way to something that can be applied.
fn planned(
    plugin: &ActivePlugin,
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
