//! What users see of a run: the parent's status and events.

use host_core::decision::{Event, EventKind};
use host_core::expectations::Expected;
use host_core::guard::GuardedPlan;
use host_core::limits;
use host_core::plan::Contested;
use host_core::queue::ParentKey;
use host_core::status::{Reconciled, merge};
use host_kube::{ApiErrorKind, Regarding};
use serde_json::{Map, Value};

use super::apply::bare;
use super::effects::Effects;
use super::observe::Observation;
use crate::clock::Clock;
use crate::error::{Error, chain};
use crate::last_run::Cause;
use crate::loaded_plugin::LoadedPlugin;
use crate::outlook::Outlook;
use crate::voice::Voice;

/// Records the plugin's events; never waits.
pub(crate) fn events(
    voice: &Voice,
    plugin: &LoadedPlugin,
    observation: &Observation,
    events: &[Event],
) {
    let parent = observation.id();
    for event in events {
        let regarding = Regarding {
            kind: parent.kind.clone(),
            key: parent.key.clone(),
            uid: observation.parent.object.uid.clone(),
        };
        voice.record(plugin.name(), regarding, event.clone());
    }
}

/// Tells that an object is being fought over, when that begins.
pub(crate) fn contested(
    voice: &Voice,
    plugin: &LoadedPlugin,
    observation: &Observation,
    contested: &[Contested],
) {
    let repaired = || contested.iter().filter(|one| one.repaired);
    if repaired().next().is_none() {
        return;
    }
    voice.meter.contested(plugin.name(), repaired().count());
    let begins = repaired().filter(|one| one.repairs == limits::CONTEST_REPAIRS);
    let notes = begins.map(|one| Event {
        kind: EventKind::Warning,
        reason: "Contested".to_owned(),
        action: "Apply".to_owned(),
        note: limits::cut(&fight(one), limits::EVENT_NOTE_BYTES_MAX),
    });
    events(voice, plugin, observation, &notes.collect::<Vec<_>>());
}

/// Who is fought with is in the object's managed fields, which the cache does not keep.
fn fight(contested: &Contested) -> String {
    let Contested { id, path, repairs, repaired: _ } = contested;
    let namespace = match &*id.key.namespace {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    format!(
        "{path} of {id} was set back {repairs} times, the last within {} min: somebody else keeps changing it; `kubectl get {} {}{namespace} --show-managed-fields -o yaml` tells who",
        limits::CONTEST_WINDOW.as_secs() / 60,
        id.kind.kind.to_lowercase(),
        id.key.name,
    )
}

/// Writes the status after a run that has decided.
pub(crate) async fn status(
    clock: &Clock,
    plugin: &LoadedPlugin,
    observation: &Observation,
    reconciled: &Reconciled,
    effects: &mut Effects,
    desired: Option<Map<String, Value>>,
) -> Result<(), Error> {
    if let Some(write) = write(clock, plugin, observation, desired, reconciled).await? {
        effects.writes.push(write);
    }
    Ok(())
}

/// What the host says about a run: failed, held, fought over, slowed down, or simply applied.
/// `hot` is what woke a parent whose breaker is open.
pub(crate) fn reconciled(
    plugin: &LoadedPlugin,
    observation: &Observation,
    plan: &GuardedPlan,
    effects: &Effects,
    hot: Option<&Cause>,
) -> Reconciled {
    if let Some((what, problem)) = effects.outcome.first_problem() {
        let message = format!("{what}: {} (by {})", problem.message, plugin.label());
        return Reconciled { ok: false, reason: problem.reason.clone(), message };
    }
    if let Some(first) = plan.held().first() {
        let parent = &observation.parent.object;
        let message = format!(
            "deleting {} of {} objects ({first} first) needs consent: set the annotation {} to \"{}\" (by {})",
            plan.held().len(),
            observation.children.len(),
            host_core::text::ANNOTATION_ALLOW_DELETIONS,
            parent.generation,
            plugin.label()
        );
        return Reconciled { ok: false, reason: "DeletionHeld".to_owned(), message };
    }
    let by = plugin.label();
    let (reason, message) = match (plan.contested().first(), hot) {
        (Some(contested), _) => ("Contested", format!("{} (by {by})", fight(contested))),
        (None, Some(cause)) => (
            "RunningHot",
            format!(
                "ran {} times in a short while and is slowed down to one run a second; woken last because {cause} (by {by})",
                limits::CIRCUIT_BURST
            ),
        ),
        (None, None) => ("Applied", format!("by {by}")),
    };
    Reconciled { ok: true, reason: reason.to_owned(), message }
}

/// Writes why a run did not go through. A failure to do so is logged: it must not hide the first one.
pub(crate) async fn failure(
    outlook: &Outlook,
    plugin: &LoadedPlugin,
    key: &ParentKey,
    observation: &Observation,
    error: &Error,
) {
    if !error.is_reported() {
        return;
    }
    let message = format!("{} (by {})", chain(error), plugin.label());
    let reconciled = Reconciled { ok: false, reason: error.reason(), message };
    match write(&outlook.clock, plugin, observation, None, &reconciled).await {
        Ok(Some(written)) => outlook.dispatch.remember_writes(key, vec![written]),
        Ok(None) => {}
        Err(error) => tracing::warn!("{}", chain(&error)),
    }
}

/// Writes the status if it says something new. The plugin's field manager owns all of it.
async fn write(
    clock: &Clock,
    plugin: &LoadedPlugin,
    observation: &Observation,
    desired: Option<Map<String, Value>>,
    reconciled: &Reconciled,
) -> Result<Option<(host_core::ident::ObjectId, Expected)>, Error> {
    let parent = &observation.parent.object;
    let live = parent.status();
    let now = clock.now();
    let Some(status) = merge(live.as_ref(), desired, reconciled, parent.generation, &now) else {
        return Ok(None);
    };
    let id = observation.id();
    let mut body = bare(&id, &parent.uid);
    body.insert("status".to_owned(), Value::Object(status));
    match plugin.cluster.patch_status(&id, &plugin.field_manager(), &body).await {
        Ok(object) => Ok(Some((id, Expected::Version(object.resource_version)))),
        // Gone in the meantime: there is nobody left to tell. A conflict is another matter: under a burst of changes the
        // server gives up on an apply, and a status that was not written has to be written later.
        Err(error) if error.kind() == ApiErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Api { doing: format!("writing the status of {id}"), source }),
    }
}
