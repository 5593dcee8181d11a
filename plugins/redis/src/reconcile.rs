//! One reconcile, top to bottom: desired, current, diff, act, status.

use operator_host_sdk::{Context, Decision, Failure, ObjectMeta, ObjectQuery, ProbeQuery, Stop};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admit::{self, Admitted};
use crate::api::{RedisCluster, Spec, Status};
use crate::current::{self, Pod, PodView};
use crate::desired::Blueprint;
use crate::kinds::{POD, STATEFUL_SET};
use crate::names::{self, ANNOTATION_ACCEPTED, ANNOTATION_ALLOW_DATA_LOSS};
use crate::plan::{Input, Plan};
use crate::provider::{PROVIDER, request};
use crate::status::{self, Report};
use crate::{act, cluster, desired, replication};

/// The StatefulSet as the API has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Workload {
    metadata: ObjectMeta,
    spec: WorkloadSpec,
    status: WorkloadStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WorkloadSpec {
    replicas: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkloadStatus {
    observed_generation: i64,
    update_revision: String,
}

/// What should be, given what is.
pub fn reconcile(ctx: &Context<RedisCluster>) -> Result<Decision, Stop> {
    if ctx.deleting() {
        // Children go with their owner; commands to what is about to go would only hold it up (corpus B48).
        return Ok(Decision::new());
    }
    let cluster = ctx.meta().name.as_str();
    let wanted = &ctx.parent.spec;
    let previous = ctx.parent.status.clone().unwrap_or_default();
    let memory = status::memory(&previous);
    let workload: Option<Workload> = ctx.child(STATEFUL_SET, &names::workload(cluster))?;

    let Admitted { spec, refusal } =
        admit::admit(wanted, accepted(workload.as_ref())?, memory.formed);
    let Some(spec) = spec else {
        return Decision::new().status(&status::unaccepted(refusal.as_ref(), wanted.replicas));
    };

    let pods = observe(ctx, cluster, &spec, workload.as_ref())?;

    let generation = ctx.meta().generation.to_string();
    let input = Input {
        cluster,
        desired: spec.replicas,
        shards: spec.shards(),
        live_replicas: workload.as_ref().map(|workload| workload.spec.replicas),
        update_revision: workload.as_ref().and_then(update_revision),
        pods: &pods,
        memory: &memory,
        now: ctx.now(),
        persistent: spec.storage.is_some(),
        allow_data_loss: ctx.meta().annotation(ANNOTATION_ALLOW_DATA_LOSS) == Some(&generation),
    };
    let plan = diff(&input, &spec, wanted.paused);

    let objects = desired::objects(&Blueprint { cluster, spec: &spec, replicas: plan.replicas });
    let decision = act::carry_over(&input, &plan, &spec, objects)?;
    let requeue = act::requeue_after_ms(&input, &plan, &decision, ctx.previous());
    let decision = decision.requeue_after_ms(requeue);

    let report = Report {
        input: &input,
        plan: &plan,
        spec: &spec,
        refusal: refusal.as_ref(),
        paused: wanted.paused,
        previous: &previous,
    };
    say(decision, &report)
}

fn say(decision: Decision, report: &Report<'_>) -> Result<Decision, Stop> {
    let (status, events): (Status, _) = status::status(report);
    Ok(events.into_iter().fold(decision.status(&status)?, Decision::event))
}

fn diff(input: &Input<'_>, spec: &Spec, paused: bool) -> Plan {
    let plan = if spec.cluster_mode { cluster::plan(input) } else { replication::plan(input) };
    if paused { plan.only_observed(input) } else { plan }
}

/// The spec the StatefulSet was built from. One that exists but does not say is not ours to guess about:
/// to go on without would be to delete or to rebuild it.
fn accepted(workload: Option<&Workload>) -> Result<Option<Spec>, Stop> {
    let Some(workload) = workload else {
        return Ok(None);
    };
    let text = workload.metadata.annotation(ANNOTATION_ACCEPTED).unwrap_or_default();
    serde_json::from_str(text).map(Some).map_err(|error| {
        let message = format!(
            "StatefulSet {}: the annotation {ANNOTATION_ACCEPTED} is not readable ({error}); \
             set it to the spec in force, as JSON",
            workload.metadata.name
        );
        Failure::terminal("AcceptedSpecUnreadable", message).into()
    })
}

/// The revision pods should have, once the controller has seen the current template.
fn update_revision(workload: &Workload) -> Option<&str> {
    let current = workload.status.observed_generation == workload.metadata.generation;
    let revision = workload.status.update_revision.as_str();
    (current && !revision.is_empty()).then_some(revision)
}

/// Pods, with what their Redis says.
fn observe(
    ctx: &Context<RedisCluster>,
    cluster: &str,
    spec: &Spec,
    workload: Option<&Workload>,
) -> Result<Vec<PodView>, Stop> {
    // Asked even before there can be any, so that the first pod wakes this RedisCluster.
    let query = ObjectQuery::of(POD).labels(names::selector_text(cluster));
    let found: Vec<Pod> = ctx.objects(&query)?;
    let Some(workload) = workload else {
        return Ok(Vec::new());
    };
    let mut pods: Vec<PodView> =
        found.iter().filter_map(|pod| PodView::of(cluster, &workload.metadata.uid, pod)).collect();
    pods.sort_unstable_by_key(|pod| pod.ordinal);
    let (asked, probes): (Vec<&mut PodView>, Vec<Value>) = pods
        .iter_mut()
        .filter(|pod| pod.can_be_asked())
        .map(|pod| {
            let request = request(pod, spec, &json!(current::questions(spec.cluster_mode)));
            (pod, request)
        })
        .unzip();
    let probes: Vec<ProbeQuery> = probes
        .iter()
        .map(|request| ProbeQuery::new(PROVIDER, request))
        .collect::<Result<_, _>>()?;
    for (pod, reply) in asked.into_iter().zip(ctx.probes(&probes)?) {
        pod.seen = current::read_reply(reply);
    }
    Ok(pods)
}
