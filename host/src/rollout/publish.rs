//! What users see of a rollout: the `Plugin`'s status, and events.
//!
//! **Invariant:** a status that says the same is not written. A standby writes nothing.

use std::sync::Arc;
use std::time::Duration;

use host_core::decision::{Event, EventKind};
use host_core::ident::ObjectId;
use host_core::limits::{CONDITION_MESSAGE_BYTES_MAX, EVENT_NOTE_BYTES_MAX, cut};
use host_core::object::StoredObject;
use host_core::plugin::{self, CandidateStatus, PluginStatus, RevisionStatus, Stage};
use host_core::status::stamp;
use host_core::text;
use host_kube::{ApiErrorKind, Regarding};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::config_map;
use super::eye::Eye;
use super::load::LoadError;
use super::pursue::State;
use super::source::{Source, Wanted};
use crate::error::chain;
use crate::plugins::LoadedPlugin;

/// When a status that could not be written is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How far a rollout is, to be told.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// The revision that does not act, or not everywhere. None: the newest one acts.
    candidate: Option<CandidateStatus>,
    error: Option<Arc<LoadError>>,
    /// For people.
    pub(super) message: String,
    /// When to look again even if nothing changes.
    pub(super) again: Option<Duration>,
}

impl Told {
    /// The newest revision acts.
    pub(super) fn active() -> Self {
        Self::default()
    }

    /// There is no source any more.
    pub(super) fn gone(eye: &Eye) -> Self {
        let message = format!(
            "there is no ConfigMap with the label {}={}; what was active keeps running",
            text::LABEL_PLUGIN,
            eye.name
        );
        Self::bare(Stage::Refused, "SourceMissing", message)
    }

    /// Nothing has come from the registry yet.
    pub(super) fn pulling(error: &LoadError) -> Self {
        Self::bare(Stage::Loading, error.reason(), error.to_string())
    }

    fn bare(stage: Stage, reason: &str, message: String) -> Self {
        let candidate = CandidateStatus {
            revision: None,
            digest: String::new(),
            version: String::new(),
            stage,
            reason: reason.to_owned(),
            message: cut(&message, CONDITION_MESSAGE_BYTES_MAX),
        };
        Self { candidate: Some(candidate), message, ..Self::default() }
    }

    /// A candidate at some stage.
    pub(super) fn stage(
        source: &Source,
        version: &str,
        stage: Stage,
        reason: &str,
        message: &str,
    ) -> Self {
        let mut told = Self::bare(stage, reason, message.to_owned());
        if let Some(candidate) = &mut told.candidate {
            candidate.revision = Some(source.revision);
            candidate.digest = source.digest();
            version.clone_into(&mut candidate.version);
        }
        told
    }

    /// A candidate that cannot run.
    pub(super) fn refused(source: Option<&Arc<Source>>, error: &Arc<LoadError>) -> Self {
        let message = format!("{}; what was active keeps running", chain(&**error));
        let told = match source {
            Some(source) => Self::stage(source, "", Stage::Refused, error.reason(), &message),
            None => Self::bare(Stage::Refused, error.reason(), message),
        };
        Self { error: Some(Arc::clone(error)), ..told }
    }

    /// To be looked at again after a while.
    pub(super) fn again_after(self, delay: Option<Duration>) -> Self {
        Self { again: delay, ..self }
    }

    fn is_at(&self, stage: Stage) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| candidate.stage == stage)
    }

    fn conditions(&self, eye: &Eye, state: &State) -> Vec<Value> {
        let candidate = self.candidate.as_ref();
        let reason = candidate.map_or("Active", |candidate| &candidate.reason);
        let message = candidate.map_or("", |candidate| &candidate.message);
        let error = self.error.as_deref();
        let at = |stage| self.is_at(stage);
        let refused = at(Stage::Refused);
        let (loaded, compatible, authorized) = match error.map(LoadError::failed_at) {
            Some(load) => load,
            None if at(Stage::Loading) || refused => (None, None, None),
            None => (Some(true), Some(true), Some(true)),
        };
        let passed = |holds: Option<bool>, good: &'static str| match holds {
            Some(true) => (good, ""),
            Some(false) | None => (reason, message),
        };
        let mut conditions = Vec::new();
        for (kind, holds, good) in [
            ("Loaded", loaded, "Compiled"),
            ("Compatible", compatible, "ContractMatches"),
            ("Authorized", authorized, "Granted"),
        ] {
            let (reason, message) = passed(holds, good);
            conditions.push(condition(kind, holds, reason, message));
        }
        let shadowed = state.plan();
        conditions.push(match shadowed {
            Some(plan) => {
                let fine = plan.failed == 0 && plan.unsound.is_none();
                condition("Shadowed", Some(fine), plan.verdict(), &plan.to_string())
            }
            None if candidate.is_none() => {
                condition("Shadowed", Some(true), "NothingToCompare", "")
            }
            None => condition("Shadowed", None, reason, message),
        });
        conditions.push(condition("Promoted", Some(candidate.is_none()), reason, message));
        let degraded = refused || at(Stage::RolledBack);
        let (why, text) = if degraded { (reason, message) } else { ("AsExpected", "") };
        conditions.push(condition("Degraded", Some(degraded), why, text));
        conditions.push(match eye.active() {
            Some(active) => {
                let message = format!("{} is active", active.label());
                condition("Ready", Some(true), "Active", &message)
            }
            None => condition("Ready", Some(false), reason, message),
        });
        conditions
    }
}

/// One condition: what it is called, whether it holds, and why.
fn condition(kind: &str, holds: Option<bool>, reason: &str, message: &str) -> Value {
    let status = match holds {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    json!({
        "type": kind, "status": status, "reason": reason,
        "message": cut(message, CONDITION_MESSAGE_BYTES_MAX),
    })
}

/// What was written last, and whose turn it is to write. A write that has begun is brought to its end, whatever becomes
/// of the work that wanted it: otherwise an older one could arrive after a newer one.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWritten(Arc<Mutex<Option<Map<String, Value>>>>);

/// Writes the status of the `Plugin`, and makes the `Plugin` if there is none. Gives when to try again.
pub(super) async fn publish(
    eye: &Eye,
    wanted: &Wanted,
    state: &State,
    told: &Told,
) -> Option<Duration> {
    if !wanted.leading || eye.plugins.store().view().is_err() {
        return None;
    }
    let id = ObjectId { kind: plugin::kind(), key: eye.key() };
    let Some(object) = &wanted.object else {
        // Whoever has deleted both wants neither back.
        if wanted.config_maps.is_empty() {
            return None;
        }
        return create(eye, &id).await;
    };
    let mut last = Arc::clone(&eye.written.0).lock_owned().await;
    // As it is now: what was looked at may be older than the last write.
    let object = eye.current().unwrap_or_else(|| Arc::clone(object));
    let live = object.status().unwrap_or_default();
    let status = status(eye, state, told, &object, &live)?;
    if status == live && last.as_ref().is_none_or(|last| *last == status) {
        return None;
    }
    let body = json!({
        "apiVersion": plugin::API_VERSION, "kind": "Plugin",
        "metadata": {"name": &*id.key.name, "namespace": &*id.key.namespace, "uid": &*object.uid},
        "status": status,
    });
    let (cluster, name) = (eye.host.cluster.clone(), Arc::clone(&eye.name));
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
    eye: &Eye,
    state: &State,
    told: &Told,
    object: &StoredObject,
    live: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let active = eye.active();
    let count = |active: &Arc<LoadedPlugin>| u32::try_from(active.parent_count());
    let status = PluginStatus {
        active: active.as_ref().map(|active| RevisionStatus {
            revision: active.revision,
            digest: active.plugin.id().digest.to_string(),
            version: active.plugin.descriptor().version.clone(),
            since: state.history.first().map(|entry| entry.promoted.clone()).unwrap_or_default(),
            on_probation: eye.host.plugins.substitute(active).is_some(),
        }),
        verdict: verdict(state, told).to_owned(),
        candidate: told.candidate.clone(),
        parents: active.as_ref().map_or(0, |active| count(active).unwrap_or(u32::MAX)),
        plan: state.plan().cloned(),
        history: state.history.clone(),
        quarantined: state.quarantined.clone(),
    };
    let mut conditions = told.conditions(eye, state);
    let generation = Value::from(object.generation);
    stamp(&mut conditions, live, Some(&generation), &crate::telemetry::now());
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

/// A plugin's ConfigMap alone is enough: its `Plugin` appears by itself.
async fn create(eye: &Eye, id: &ObjectId) -> Option<Duration> {
    let body = json!({
        "apiVersion": plugin::API_VERSION, "kind": "Plugin",
        "metadata": {"name": &*id.key.name, "namespace": &*id.key.namespace},
        "spec": {},
    });
    match eye.host.cluster.create(id, text::MANAGED_BY, &body).await {
        Ok(_) => None,
        // Somebody else was quicker.
        Err(error) if error.kind() == ApiErrorKind::Conflict => None,
        Err(error) => {
            tracing::warn!(plugin = &*eye.name, "{}", chain(&error));
            Some(RETRY_AFTER)
        }
    }
}

/// An event on the `Plugin`, or on its ConfigMap while there is none: where `kubectl describe` shows it.
pub(super) fn event(eye: &Eye, wanted: &Wanted, kind: EventKind, reason: &str, note: &str) {
    let plugin = wanted.object.as_ref().map(|object| (plugin::kind(), object));
    let source = wanted.config_maps.first().map(|object| (config_map(), object));
    let Some((of, object)) = plugin.or(source) else { return };
    let regarding = Regarding { kind: of, key: object.key.clone(), uid: object.uid.clone() };
    let event = Event {
        kind,
        reason: reason.to_owned(),
        action: "Rollout".to_owned(),
        note: cut(note, EVENT_NOTE_BYTES_MAX),
    };
    eye.host.record(text::MANAGED_BY, regarding, event);
}
