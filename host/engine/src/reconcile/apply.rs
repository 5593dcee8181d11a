//! Stage *apply*: carries out a guarded plan, then the decision's actions. There is nothing left to choose here.
//!
//! **Invariant:** nothing is released or pruned unless every desired object was applied. **Invariant:** no action is
//! carried out while an object failed in a way that a retry may mend.

use host_core::decision::{Decision, OnImmutable};
use host_core::expectations::Expected;
use host_core::guard::GuardedPlan;
use host_core::ident::ObjectId;
use host_core::plan::{Apply, Memory, Step};
use host_core::snapshot::{ActionOutcome, ObjectOutcome, ObjectResult, Problem};
use host_kube::{ApiError, ApiErrorKind, Propagation};
use serde_json::{Map, Value, json};

use super::effects::Effects;
use super::observe::Observation;
use crate::error::is_terminal;
use crate::loaded_plugin::LoadedPlugin;
use crate::providers;
use crate::voice::Voice;

/// Carries out a plan and the decision's actions.
pub(crate) async fn apply(
    voice: &Voice,
    plugin: &LoadedPlugin,
    observation: &Observation,
    plan: &GuardedPlan,
    decision: &Decision,
    memory: &mut Memory,
) -> Effects {
    let mut effects = Effects::default();
    let mut complete = true;
    for step in plan.steps() {
        let result = match step {
            Step::Keep(_) => ObjectResult::Unchanged,
            Step::Refuse { problem, .. } => ObjectResult::Failed(problem.clone()),
            Step::Apply(apply) => apply_one(plugin, apply, memory, &mut effects).await,
            Step::Release { .. } | Step::Prune { .. } if !complete => continue,
            Step::Release { id, uid } => release(plugin, id, uid, &mut effects).await,
            Step::Prune { id, uid } => {
                delete(plugin, id, uid, Propagation::Background, &mut effects).await
            }
        };
        complete &= !matches!(result, ObjectResult::Failed(_) | ObjectResult::Deleted)
            || matches!(step, Step::Prune { .. });
        effects.outcome.objects.push(ObjectOutcome { id: step.id().clone(), result });
    }
    if !effects.retry {
        act(voice, plugin, observation, decision, &mut effects).await;
    }
    effects
}

async fn apply_one(
    plugin: &LoadedPlugin,
    apply: &Apply,
    memory: &mut Memory,
    effects: &mut Effects,
) -> ObjectResult {
    match plugin.cluster.apply(&apply.id, &plugin.field_manager(), &apply.body).await {
        Ok(object) => {
            memory.learn(apply, &object);
            let before = apply.live.as_ref().map(|live| live.resource_version);
            if before == Some(object.resource_version) {
                return ObjectResult::Unchanged;
            }
            let action = if before.is_none() { "created" } else { "patched" };
            tracing::info!(object = %apply.id, action, "applied");
            effects.writes.push((apply.id.clone(), Expected::Version(object.resource_version)));
            ObjectResult::Applied
        }
        Err(error)
            if error.kind() == ApiErrorKind::Immutable
                && apply.on_immutable != OnImmutable::Report =>
        {
            let propagation = match apply.on_immutable {
                OnImmutable::RecreateOrphan => Propagation::Orphan,
                OnImmutable::Recreate | OnImmutable::Report => Propagation::Background,
            };
            match &apply.live {
                Some(live) => delete(plugin, &apply.id, &live.uid, propagation, effects).await,
                None => ObjectResult::Unchanged,
            }
        }
        Err(error) => failed(&error, effects),
    }
}

/// Applies nothing but the name: the server drops every field this manager had set.
async fn release(
    plugin: &LoadedPlugin,
    id: &ObjectId,
    uid: &str,
    effects: &mut Effects,
) -> ObjectResult {
    let body = bare(id, uid);
    match plugin.cluster.apply(id, &plugin.field_manager(), &body).await {
        Ok(object) => {
            tracing::info!(object = %id, action = "released", "applied");
            effects.writes.push((id.clone(), Expected::Version(object.resource_version)));
            ObjectResult::Applied
        }
        Err(error) => failed(&error, effects),
    }
}

/// The smallest apply configuration: which object, and exactly that one.
pub(super) fn bare(id: &ObjectId, uid: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), Value::from(&*id.key.name));
    metadata.insert("uid".to_owned(), Value::from(uid));
    if !id.key.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), Value::from(&*id.key.namespace));
    }
    let mut body = Map::new();
    body.insert("apiVersion".to_owned(), Value::from(id.kind.api_version.as_str()));
    body.insert("kind".to_owned(), Value::from(id.kind.kind.as_str()));
    body.insert("metadata".to_owned(), Value::Object(metadata));
    body
}

async fn delete(
    plugin: &LoadedPlugin,
    id: &ObjectId,
    uid: &str,
    propagation: Propagation,
    effects: &mut Effects,
) -> ObjectResult {
    match plugin.cluster.delete(id, uid, propagation).await {
        Ok(_) => {
            tracing::info!(object = %id, action = "deleted", "applied");
            effects.writes.push((id.clone(), Expected::Gone(uid.into())));
            ObjectResult::Deleted
        }
        Err(error) => failed(&error, effects),
    }
}

fn failed(error: &ApiError, effects: &mut Effects) -> ObjectResult {
    effects.retry |= !is_terminal(error);
    ObjectResult::Failed(error.into())
}

/// Carries out the actions in order, up to the first that fails.
async fn act(
    voice: &Voice,
    plugin: &LoadedPlugin,
    observation: &Observation,
    decision: &Decision,
    effects: &mut Effects,
) {
    let namespace = &*observation.parent.object.key.namespace;
    for action in &decision.actions {
        let result = if !voice.is_leading() {
            let message = "this host does not lead any more".to_owned();
            Err(Problem { reason: "NotLeader".to_owned(), message })
        } else if action.provider == "kubernetes" {
            delete_action(plugin, namespace, &action.request, effects).await
        } else {
            providers::act(plugin, namespace, action).await
        };
        let failed = result.is_err();
        match &result {
            Ok(_) => tracing::info!(provider = action.provider, request = action.request, "acted"),
            Err(problem) => tracing::warn!(
                provider = action.provider,
                request = action.request,
                reason = problem.reason,
                "action failed: {}",
                problem.message
            ),
        }
        effects.outcome.actions.push(ActionOutcome { action: action.clone(), result });
        if failed {
            return;
        }
    }
}

/// Provider `kubernetes`: deletes one object of a kind the plugin owns or patches, in the parent's namespace.
async fn delete_action(
    plugin: &LoadedPlugin,
    namespace: &str,
    request: &str,
    effects: &mut Effects,
) -> Result<String, Problem> {
    let target = providers::DeleteRequest::parse(request, namespace)?;
    if !plugin.grants.may_delete(&target.id.kind) {
        let message = format!("deleting {} needs the kind among owns or patches", target.id.kind);
        return Err(Problem { reason: "NotGranted".to_owned(), message });
    }
    match delete(plugin, &target.id, &target.uid, Propagation::Background, effects).await {
        ObjectResult::Failed(problem) => Err(problem),
        ObjectResult::Unchanged | ObjectResult::Applied | ObjectResult::Deleted => {
            Ok(json!({ "deleted": target.id.to_string() }).to_string())
        }
    }
}
