//! The fields of an object as paths. A leaf is whatever is not a map, or an empty one: a list is one leaf.

use std::collections::BTreeSet;

use serde_json::Value;

/// From the top of the object to a field.
pub(crate) type Path = Vec<String>;

/// What nobody owns: it names the object, or is the server's.
const UNOWNED: [&str; 11] = [
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// The leaves that somebody can own.
pub(crate) fn leaves(object: &Value) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    collect(object, &mut Vec::new(), &mut found);
    found
}

fn collect(value: &Value, path: &mut Path, found: &mut BTreeSet<Path>) {
    let Some(map) = value.as_object().filter(|map| !map.is_empty()) else {
        if !path.is_empty() && *path != ["metadata"] {
            found.insert(path.clone());
        }
        return;
    };
    for (key, value) in map {
        let unowned = match path.as_slice() {
            [] => key == "apiVersion" || key == "kind",
            [only] => only == "metadata" && UNOWNED.contains(&key.as_str()),
            _ => false,
        };
        if !unowned {
            path.push(key.clone());
            collect(value, path, found);
            path.pop();
        }
    }
}

/// What is at a path.
pub(crate) fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.as_object()?.get(key))
}

/// Takes a field away. True: the map that it was in is empty now.
pub(crate) fn take(object: &mut Value, path: &[String]) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    let map = parents.iter().try_fold(object, |value, key| value.as_object_mut()?.get_mut(key));
    let Some(map) = map.and_then(Value::as_object_mut) else { return false };
    map.remove(last).is_some() && map.is_empty()
}

/// Puts the fields of `body` over `live`: maps are merged, all else is replaced.
pub(crate) fn merge(live: &mut Value, body: &Value) {
    match (live.as_object_mut(), body.as_object()) {
        (Some(live), Some(body)) => {
            for (key, value) in body {
                merge(live.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *live = body.clone(),
    }
}

/// Drops fields that are null: to apply them says nothing.
pub(crate) fn drop_nulls(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}
