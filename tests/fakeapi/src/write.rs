//! Creations, updates and applies of one object, as far as an API server that knows no schema can check them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::fields::{self, Path};
use crate::kind::{DEFINITION, Id, Kind};
use crate::managers::{Manager, Managers};
use crate::object::{self, FIXED, finalizers, raise_generation, with_field};
use crate::refusal::Refusal;
use crate::state::{State, Stored};

/// What a CRD gets, so that it outlives its objects.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Which object is written, by whom and how.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) id: Id,
    /// Whether its status subresource is meant.
    pub(crate) status: bool,
    pub(crate) manager: String,
    /// Whether it is only tried.
    pub(crate) dry_run: bool,
}

/// An object as somebody wants it, and the leaves that an apply named.
struct Wanted {
    object: Value,
    applied: Option<BTreeSet<Path>>,
}

impl Target {
    fn resource(&self) -> String {
        self.kind.resource()
    }

    fn manager(&self, applies: bool) -> Manager {
        Manager { name: self.manager.clone(), applies, status: self.status }
    }

    fn conflict(&self, why: &str) -> Refusal {
        Refusal::conflict(&self.resource(), &self.id.name, why)
    }

    pub(crate) fn stored<'a>(&self, state: &'a State) -> Result<&'a Stored, Refusal> {
        let absent = || Refusal::no_such_object(&self.resource(), &self.id.name);
        state.get(&self.id).ok_or_else(absent)
    }

    /// Whether a body is about this object.
    fn check_names(&self, body: &Value) -> Result<(), Refusal> {
        let metadata = &body["metadata"];
        if !metadata.is_object() {
            return Err(Refusal::bad("the body has no metadata"));
        }
        let names = (body["apiVersion"].as_str(), body["kind"].as_str());
        if names != (Some(&self.id.api_version), Some(&self.id.kind)) {
            let (api_version, kind) = self.kind.names();
            let message = format!("the body is not a {api_version} {kind}: {names:?}");
            return Err(Refusal::bad(message));
        }
        let same = |field: &str, is: &str| metadata[field].as_str().is_none_or(|said| said == is);
        if !same("name", &self.id.name) || !same("namespace", &self.id.namespace) {
            let message = "the name or namespace of the object does not match that of the URL";
            return Err(Refusal::bad(message));
        }
        Ok(())
    }

    /// Whether uid and resourceVersion, where they are given, are those of the object that exists.
    pub(crate) fn check_identity(&self, given: &Value, old: &Value) -> Result<(), Refusal> {
        let differs = |field: &str| {
            let given = given[field].as_str().filter(|given| !given.is_empty())?;
            let is = old["metadata"][field].as_str().unwrap_or_default();
            (given != is).then(|| (given.to_owned(), is.to_owned()))
        };
        if let Some((given, is)) = differs("uid") {
            let why = format!(
                "Precondition failed: UID in precondition: {given}, UID in object meta: {is}"
            );
            return Err(self.conflict(&why));
        }
        if differs("resourceVersion").is_some() {
            return Err(self.conflict(
                "the object has been modified; please apply your changes to the latest version \
                 and try again",
            ));
        }
        Ok(())
    }
}

/// Creates an object.
pub(crate) fn create(
    state: &mut State,
    target: &Target,
    body: Value,
) -> Result<Arc<Value>, Refusal> {
    target.check_names(&body)?;
    if state.get(&target.id).is_some() {
        return Err(Refusal::exists(&target.resource(), &target.id.name));
    }
    if body["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
        return Err(Refusal::bad("resourceVersion should not be set on objects to be created"));
    }
    Ok(insert(state, target, body, None))
}

fn insert(
    state: &mut State,
    target: &Target,
    mut object: Value,
    applied: Option<BTreeSet<Path>>,
) -> Arc<Value> {
    if target.kind.status
        && let Some(object) = object.as_object_mut()
    {
        object.remove("status");
    }
    let metadata = &mut object["metadata"];
    for field in FIXED.into_iter().chain(["managedFields", "selfLink"]) {
        object::remove(metadata, field);
    }
    metadata["name"] = target.id.name.as_str().into();
    if target.kind.namespaced {
        metadata["namespace"] = target.id.namespace.as_str().into();
    }
    metadata["uid"] = state.next_uid().into();
    metadata["creationTimestamp"] = state.next_time().into();
    if target.kind.generation {
        metadata["generation"] = 1.into();
    }
    if target.kind.names() == DEFINITION {
        metadata["finalizers"] = json!([CLEANUP]);
    }
    object::drop_empty(&mut object);
    let me = target.manager(applied.is_some());
    let managers = Managers::default().after(&me, &Value::Null, &object, applied);
    if target.dry_run {
        return Arc::new(object);
    }
    state.put(&target.id, object, managers)
}

/// Changes an object that exists into what `edit` makes of it.
pub(crate) fn update(
    state: &mut State,
    target: &Target,
    edit: impl FnOnce(&Value) -> Result<Value, Refusal>,
) -> Result<Arc<Value>, Refusal> {
    let object = edit(&target.stored(state)?.object)?;
    write(state, target, Wanted { object, applied: None })
}

/// Server-side apply. True: it created the object.
pub(crate) fn apply(
    state: &mut State,
    target: &Target,
    mut body: Value,
    force: bool,
) -> Result<(bool, Arc<Value>), Refusal> {
    target.check_names(&body)?;
    fields::drop_nulls(&mut body);
    restrict(target, &mut body);
    let me = target.manager(true);
    let Ok(Stored { object, managers }) = target.stored(state) else {
        if target.status {
            return Err(Refusal::no_such_object(&target.resource(), &target.id.name));
        }
        if let Some(uid) = body["metadata"]["uid"].as_str() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(target.conflict(&why));
        }
        let leaves = fields::leaves(&body);
        return Ok((true, insert(state, target, body, Some(leaves))));
    };
    target.check_identity(&body["metadata"], object)?;
    let conflicts = managers.conflicts(&me, object, &body);
    if !force && !conflicts.is_empty() {
        let all = conflicts.iter().map(|(name, field)| format!("\"{name}\": {field}"));
        let all = all.collect::<Vec<_>>().join(", ");
        let message =
            format!("Apply failed with {} conflict(s): conflict with {all}", conflicts.len());
        let refusal = Refusal::new(409, "Conflict", message);
        let refused = conflicts.iter().fold(refusal, |refusal, (name, field)| {
            refusal.because("FieldManagerConflict", field, &format!("conflict with \"{name}\""))
        });
        return Err(refused);
    }
    let wanted = Wanted {
        object: managers.applied(&me, object, &body),
        applied: Some(fields::leaves(&body)),
    };
    write(state, target, wanted).map(|object| (false, object))
}

/// Leaves of a body that is applied only what the target is about.
fn restrict(target: &Target, body: &mut Value) {
    if let Some(map) = body.as_object_mut() {
        if target.status {
            map.retain(|key, _| {
                ["apiVersion", "kind", "metadata", "status"].contains(&key.as_str())
            });
        } else if target.kind.status {
            map.remove("status");
        }
    }
    if let Some(metadata) = body["metadata"].as_object_mut() {
        if target.status {
            metadata.retain(|key, _| FIXED.contains(&key.as_str()));
        }
        metadata.remove("managedFields");
    }
}

fn write(state: &mut State, target: &Target, wanted: Wanted) -> Result<Arc<Value>, Refusal> {
    let Wanted { object: mut new, applied } = wanted;
    let Stored { object: old, managers } = target.stored(state)?.clone();
    target.check_names(&new)?;
    target.check_identity(&new["metadata"], &old)?;
    if target.status {
        new = with_field(&old, "status", new.get("status"));
    } else if target.kind.status {
        new = with_field(&new, "status", old.get("status"));
    }
    for field in FIXED {
        new["metadata"] = with_field(&new["metadata"], field, old["metadata"].get(field));
    }
    object::remove(&mut new["metadata"], "managedFields");
    object::drop_empty(&mut new);
    check_finalizers(target, &old, &new)?;
    let managers_after = managers.after(&target.manager(applied.is_some()), &old, &new, applied);
    if new == *old && managers_after == managers {
        return Ok(old);
    }
    if target.kind.generation && !target.status && content(target, &old) != content(target, &new) {
        raise_generation(&mut new);
    }
    if target.dry_run {
        return Ok(Arc::new(new));
    }
    if new["metadata"]["deletionTimestamp"].is_string() && finalizers(&new).is_empty() {
        return Ok(state.remove(&target.id, new));
    }
    Ok(state.put(&target.id, new, managers_after))
}

fn check_finalizers(target: &Target, old: &Value, new: &Value) -> Result<(), Refusal> {
    if !old["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let (old, mut added) = (finalizers(old), finalizers(new));
    added.retain(|finalizer| !old.contains(finalizer));
    if added.is_empty() {
        return Ok(());
    }
    let why = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{{\"{}\"}}",
        added.join("\", \"")
    );
    Err(Refusal::invalid(&target.resource(), &target.id.name, "metadata.finalizers", &why))
}

/// What a generation counts the changes of.
fn content(target: &Target, object: &Value) -> Map<String, Value> {
    let mut content = object.as_object().cloned().unwrap_or_default();
    content.remove("metadata");
    if target.kind.status {
        content.remove("status");
    }
    content
}
