//! What users see of a rollout in the `Plugin` and its status.
//!
//! **Invariant:** a status that says the same is not written. A standby writes nothing.

use std::sync::Arc;
use std::time::Duration;

use host_core::ident::ObjectId;
use host_core::object::StoredObject;
use host_core::plugin::{self, PluginStatus, RevisionStatus};
use host_core::status::stamp;
use host_core::text;
use host_kube::ApiErrorKind;
use serde_json::{Map, Value, json};

use super::pursuit::Pursuit;
use super::state::State;
use super::subject::Subject;
use super::told::Told;
use super::wanted::Wanted;
use crate::error::chain;
use crate::loaded_plugin::LoadedPlugin;

/// When a status that could not be written is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Writes the status of the `Plugin`, if there is one. Gives when to try again.
pub(super) async fn publish(
    with: &Pursuit,
    wanted: &Wanted,
    state: &State,
    told: &Told,
) -> Option<Duration> {
    let subject = with.subject();
    if !wanted.leading || subject.plugins.store().view().is_err() {
        return None;
    }
    let id = ObjectId { kind: plugin::kind(), key: subject.key() };
    let Some(object) = &wanted.object else {
        // It could not be made: whoever has deleted it together with its source wants none.
        return (!wanted.config_maps.is_empty()).then_some(RETRY_AFTER);
    };
    let mut last = Arc::clone(&with.written.0).lock_owned().await;
    // As it is now: what was looked at may be older than the last write.
    let object = subject.current().unwrap_or_else(|| Arc::clone(object));
    let live = object.status().unwrap_or_default();
    let status = status(with, state, told, &object, &live)?;
    if status == live && last.as_ref().is_none_or(|last| *last == status) {
        return None;
    }
    let body = json!({
        "apiVersion": plugin::API_VERSION, "kind": "Plugin",
        "metadata": {"name": &*id.key.name, "namespace": &*id.key.namespace, "uid": &*object.uid},
        "status": status,
    });
    let (cluster, name) = (subject.cluster.clone(), Arc::clone(&subject.name));
    let write = tokio::spawn(async move {
        match cluster.patch_status(&id, text::MANAGED_BY, &body).await {
            Ok(_) => *last = Some(status),
            Err(error) if error.kind() == ApiErrorKind::NotFound => *last = None,
            Err(error) => {
                tracing::warn!(plugin = &*name, "{}", chain(&error));
                *last = None;
                return Some(RETRY_AFTER);
            }
        }
        None
    });
    write.await.unwrap_or(Some(RETRY_AFTER))
}

fn status(
    with: &Pursuit,
    state: &State,
    told: &Told,
    object: &StoredObject,
    live: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let active = with.active();
    let on_probation = |one: &_| with.cutover.plugins.substitute(one).is_some();
    let on_probation = active.as_ref().is_some_and(on_probation);
    let active = active.as_deref();
    let count = |active: &LoadedPlugin| u32::try_from(active.parent_count());
    let status = PluginStatus {
        active: active.map(|active| RevisionStatus {
            revision: active.revision,
            digest: active.plugin.id().digest.to_string(),
            version: active.plugin.descriptor().version.clone(),
            since: state.history.first().map(|entry| entry.promoted.clone()).unwrap_or_default(),
            on_probation,
        }),
        verdict: verdict(state, told).to_owned(),
        candidate: told.candidate.clone(),
        parents: active.map_or(0, |active| count(active).unwrap_or(u32::MAX)),
        plan: state.plan().cloned(),
        history: state.history.clone(),
        quarantined: state.quarantined.clone(),
    };
    let mut conditions = told.conditions(active, state.plan());
    let generation = Value::from(object.generation);
    stamp(&mut conditions, live, Some(&generation), &with.subject().clock.now());
    let Ok(Value::Object(mut status)) = serde_json::to_value(&status) else { return None };
    status.insert("observedGeneration".to_owned(), generation);
    status.insert("conditions".to_owned(), Value::Array(conditions));
    Some(status)
}

/// In one word, for a column.
fn verdict(state: &State, told: &Told) -> &'static str {
    match (&told.candidate, state.plan()) {
        (None, _) => "Active",
        (Some(_), Some(plan)) => plan.verdict(),
        (Some(candidate), None) => candidate.stage.as_str(),
    }
}

/// A plugin's ConfigMap alone is enough: its `Plugin` appears by itself. Whoever has deleted both wants neither back.
/// False: it was not made, so nothing is to be waited for.
pub(super) async fn create(subject: &Subject, wanted: &Wanted) -> bool {
    let none = wanted.object.is_none() && !wanted.config_maps.is_empty();
    if !none || !wanted.leading || subject.plugins.store().view().is_err() {
        return false;
    }
    let id = ObjectId { kind: plugin::kind(), key: subject.key() };
    let body = json!({
        "apiVersion": plugin::API_VERSION, "kind": "Plugin",
        "metadata": {"name": &*id.key.name, "namespace": &*id.key.namespace},
        "spec": {},
    });
    match subject.cluster.create(&id, text::MANAGED_BY, &body).await {
        Ok(_) => true,
        // Somebody else was quicker.
        Err(error) if error.kind() == ApiErrorKind::Conflict => true,
        Err(error) => {
            tracing::warn!(plugin = &*subject.name, "{}", chain(&error));
            false
        }
    }
}
