//! Small questions to an object as JSON, and small changes of it.

use serde_json::{Map, Value, json};

/// Metadata that only the server sets.
pub(crate) const FIXED: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Metadata that is absent rather than empty.
const NEVER_EMPTY: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// A reference to an owner.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) uid: String,
    /// Whether the owner waits for this dependent.
    pub(crate) blocks: bool,
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).collect()
}

pub(crate) fn owners(object: &Value) -> Vec<Owner> {
    let list = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owner = |owner: &Value| Owner {
        api_version: text(&owner["apiVersion"]),
        kind: text(&owner["kind"]),
        uid: text(&owner["uid"]),
        blocks: owner["blockOwnerDeletion"] == true,
    };
    let owners = list.unwrap_or_default().iter().map(owner);
    owners.filter(|owner| !owner.uid.is_empty()).collect()
}

/// The object without its references to these uids.
pub(crate) fn without_owners(object: &Value, uids: &[String]) -> Value {
    let mut object = object.clone();
    let list = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    if let Some(list) = list {
        list.retain(|owner| !uids.iter().any(|uid| owner["uid"] == uid.as_str()));
    }
    object
}

/// The object without a finalizer.
pub(crate) fn without_finalizer(object: &Value, finalizer: &str) -> Value {
    let mut object = object.clone();
    let list = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
    if let Some(list) = list {
        list.retain(|found| found != finalizer);
    }
    object
}

/// The object, marked as being deleted since `time`.
pub(crate) fn marked(object: &Value, time: String) -> Value {
    let mut object = object.clone();
    object["metadata"]["deletionTimestamp"] = time.into();
    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    raise_generation(&mut object);
    object
}

/// Counts a change, if the object counts.
pub(crate) fn raise_generation(object: &mut Value) {
    if let Some(generation) = object.pointer_mut("/metadata/generation")
        && let Some(count) = generation.as_i64()
    {
        *generation = (count + 1).into();
    }
}

/// The map with a field set, or without it.
pub(crate) fn with_field(map: &Value, field: &str, value: Option<&Value>) -> Value {
    let mut map = map.as_object().cloned().unwrap_or_default();
    match value {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
    Value::Object(map)
}

/// The map without a field.
pub(crate) fn remove(map: &mut Value, field: &str) {
    if let Some(map) = map.as_object_mut() {
        map.remove(field);
    }
}

/// Drops what is kept absent rather than empty: a test for its absence has to pass.
pub(crate) fn drop_empty(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let is_empty = |value: &Value| {
        value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty)
    };
    metadata.retain(|key, value| !NEVER_EMPTY.contains(&key.as_str()) || !is_empty(value));
}

/// As the existence form: metadata only.
pub(crate) fn metadata_only(object: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": object["metadata"]})
}
