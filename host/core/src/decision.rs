//! From what a plugin returned to a decision that cannot be wrong in form.
//!
//! Everything after this module may rely on: bounded counts and sizes, JSON that parses, names that exist,
//! no field that is the host's to set, no duplicate object.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::grants::Grants;
use crate::ident::{Kind, ObjectId, ObjectKey};
use crate::limits;
use crate::raw_decision::Action;
use crate::text;

pub use crate::invalid_decision::InvalidDecision;
pub use crate::raw_decision::{Event, EventKind, OnImmutable, Ownership, RawDecision, RawObject};

/// A desired object, validated: `body` has apiVersion, kind, name and the right namespace.
#[derive(Clone, Debug)]
pub struct DesiredObject {
    /// Which object.
    pub id: ObjectId,
    /// Whose it is.
    pub ownership: Ownership,
    /// What to do on an immutable field.
    pub on_immutable: OnImmutable,
    /// The apply configuration.
    pub body: Map<String, Value>,
}

/// A decision, validated.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The complete list, in apply order.
    pub objects: Vec<DesiredObject>,
    /// The status.
    pub status: Option<Map<String, Value>>,
    /// What happened.
    pub events: Vec<Event>,
    /// What to do after the objects.
    pub actions: Vec<Action>,
    /// When to call again; never below [`limits::REQUEUE_FLOOR`].
    pub requeue_after: Option<Duration>,
    /// Deletion is done.
    pub finished: bool,
}

fn field(path: impl Into<String>, problem: impl Into<String>) -> InvalidDecision {
    InvalidDecision::Field { path: path.into(), problem: problem.into() }
}

impl RawDecision {
    /// Checks form and grants. `parent` is the key of the parent the decision is for.
    pub fn validate(
        self,
        parent: &ObjectKey,
        grants: &Grants,
    ) -> Result<Decision, InvalidDecision> {
        bounded("objects", self.objects.len(), limits::OBJECTS_MAX)?;
        bounded("events", self.events.len(), limits::EVENTS_MAX)?;
        bounded("actions", self.actions.len(), limits::ACTIONS_MAX)?;
        let mut objects = Vec::with_capacity(self.objects.len());
        let mut seen = BTreeSet::new();
        for (index, raw) in self.objects.iter().enumerate() {
            let object = validate_object(index, raw, parent, grants)?;
            if !seen.insert(object.id.clone()) {
                let problem = format!("{} is returned twice; merge the two", object.id);
                return Err(field(format!("objects[{index}]"), problem));
            }
            objects.push(object);
        }
        for (index, event) in self.events.iter().enumerate() {
            validate_event(index, event)?;
        }
        for (index, action) in self.actions.iter().enumerate() {
            validate_action(index, action, grants)?;
        }
        Ok(Decision {
            objects,
            status: self.status.map(|status| validate_status(&status)).transpose()?,
            events: self.events,
            actions: self.actions,
            requeue_after: self
                .requeue_after_ms
                .map(|ms| Duration::from_millis(ms.into()).max(limits::REQUEUE_FLOOR)),
            finished: self.finished,
        })
    }
}

fn bounded(what: &'static str, count: usize, max: usize) -> Result<(), InvalidDecision> {
    if count > max { Err(InvalidDecision::TooMany { what, count, max }) } else { Ok(()) }
}

fn parse_object(path: &str, json: &str, max: usize) -> Result<Map<String, Value>, InvalidDecision> {
    if json.len() > max {
        return Err(InvalidDecision::TooLarge { what: path.to_owned(), bytes: json.len(), max });
    }
    serde_json::from_str(json).map_err(|error| field(path, format!("not a JSON object: {error}")))
}

/// Fields of an apply configuration that are never a plugin's to set.
const HOST_FIELDS: [&str; 6] = [
    "managedFields",
    "resourceVersion",
    "ownerReferences",
    "uid",
    "generation",
    "creationTimestamp",
];

fn validate_object(
    index: usize,
    raw: &RawObject,
    parent: &ObjectKey,
    grants: &Grants,
) -> Result<DesiredObject, InvalidDecision> {
    let path = format!("objects[{index}]");
    let mut body = parse_object(&path, &raw.body, limits::OBJECT_BYTES_MAX)?;
    let kind = Kind::new(string(&path, &body, "apiVersion")?, string(&path, &body, "kind")?);
    match raw.ownership {
        Ownership::Owned => grants.check_owns(&kind)?,
        Ownership::Partial => grants.check_patches(&kind)?,
    }
    if body.contains_key("status") {
        return Err(field(
            format!("{path}.status"),
            "a plugin sets no status but its parent's; leave it out",
        ));
    }
    if let Some(null) = find_null(&body) {
        return Err(field(format!("{path}.{null}"), "null claims the field; leave it out instead"));
    }
    let Some(Value::Object(metadata)) = body.get_mut("metadata") else {
        return Err(field(format!("{path}.metadata"), "missing; an object needs metadata.name"));
    };
    if let Some(forbidden) = HOST_FIELDS.iter().find(|name| metadata.contains_key(**name)) {
        return Err(field(
            format!("{path}.metadata.{forbidden}"),
            "is the host's to set; leave it out",
        ));
    }
    let name = string(&format!("{path}.metadata"), metadata, "name")?;
    let namespace = match metadata.get("namespace") {
        Some(Value::String(namespace)) => namespace.clone(),
        Some(_) => {
            return Err(field(format!("{path}.metadata.namespace"), "must be a string"));
        }
        None => parent.namespace.to_string(),
    };
    if !parent.namespace.is_empty() && *namespace != *parent.namespace {
        let problem = format!(
            "is {namespace}, but the parent is in {}; an owner reference cannot cross namespaces",
            parent.namespace
        );
        return Err(field(format!("{path}.metadata.namespace"), problem));
    }
    if !namespace.is_empty() {
        metadata.insert("namespace".to_owned(), Value::String(namespace.clone()));
    }
    Ok(DesiredObject {
        id: ObjectId { kind, key: ObjectKey::new(namespace, name) },
        ownership: raw.ownership,
        on_immutable: raw.on_immutable,
        body,
    })
}

fn string(path: &str, map: &Map<String, Value>, key: &str) -> Result<String, InvalidDecision> {
    match map.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(_) => Err(field(format!("{path}.{key}"), "must be a string that is not empty")),
        None => Err(field(format!("{path}.{key}"), "is missing")),
    }
}

fn find_null(map: &Map<String, Value>) -> Option<String> {
    fn inner(value: &Value) -> Option<String> {
        match value {
            Value::Null => Some(String::new()),
            Value::Object(map) => find_null(map).map(|path| format!(".{path}")),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(index, item)| inner(item).map(|path| format!("[{index}]{path}"))),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
    map.iter().find_map(|(key, value)| inner(value).map(|path| format!("{key}{path}")))
}

fn validate_status(json: &str) -> Result<Map<String, Value>, InvalidDecision> {
    let status = parse_object("status", json, limits::STATUS_BYTES_MAX)?;
    if status.contains_key("observedGeneration") {
        return Err(field("status.observedGeneration", "is the host's to set; leave it out"));
    }
    let conditions = match status.get("conditions") {
        None => return Ok(status),
        Some(Value::Array(conditions)) => conditions,
        Some(_) => return Err(field("status.conditions", "must be a list")),
    };
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let Value::Object(condition) = condition else {
            return Err(field(path, "must be an object"));
        };
        let kind = string(&path, condition, "type")?;
        if kind == text::CONDITION_RECONCILED {
            return Err(field(
                format!("{path}.type"),
                "Reconciled is the host's own condition; choose another",
            ));
        }
        let status = string(&path, condition, "status")?;
        if !["True", "False", "Unknown"].contains(&status.as_str()) {
            return Err(field(format!("{path}.status"), "must be True, False or Unknown"));
        }
        let reason = string(&path, condition, "reason")?;
        if !text::is_reason(&reason) {
            return Err(field(
                format!("{path}.reason"),
                format!("{reason:?} is not a CamelCase word"),
            ));
        }
        if !seen.insert(kind.clone()) {
            return Err(field(format!("{path}.type"), format!("{kind} is returned twice")));
        }
    }
    Ok(status)
}

fn validate_event(index: usize, event: &Event) -> Result<(), InvalidDecision> {
    let path = format!("events[{index}]");
    if !text::is_reason(&event.reason) {
        return Err(field(
            format!("{path}.reason"),
            format!("{:?} is not a CamelCase word", event.reason),
        ));
    }
    if !text::is_reason(&event.action) {
        return Err(field(
            format!("{path}.action"),
            format!("{:?} is not a CamelCase word", event.action),
        ));
    }
    if event.note.len() > limits::EVENT_NOTE_BYTES_MAX {
        let what = format!("{path}.note");
        let (bytes, max) = (event.note.len(), limits::EVENT_NOTE_BYTES_MAX);
        return Err(InvalidDecision::TooLarge { what, bytes, max });
    }
    Ok(())
}

fn validate_action(index: usize, action: &Action, grants: &Grants) -> Result<(), InvalidDecision> {
    parse_object(&format!("actions[{index}].request"), &action.request, limits::OBJECT_BYTES_MAX)?;
    if action.provider == "kubernetes" { Ok(()) } else { grants.check_provider(&action.provider) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::tests::grants_for_tests;

    fn parent() -> ObjectKey {
        ObjectKey::new("shop", "cart")
    }

    fn owned(body: &str) -> RawDecision {
        RawDecision {
            objects: vec![RawObject {
                ownership: Ownership::Owned,
                on_immutable: OnImmutable::Report,
                body: body.to_owned(),
            }],
            ..RawDecision::default()
        }
    }

    fn refused(raw: RawDecision) -> String {
        raw.validate(&parent(), &grants_for_tests()).unwrap_err().to_string()
    }

    #[test]
    fn fills_in_the_parents_namespace() {
        let raw = owned(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#);
        let decision = raw.validate(&parent(), &grants_for_tests()).unwrap();
        assert_eq!(decision.objects[0].id.to_string(), "ConfigMap shop/a");
        assert_eq!(decision.objects[0].body["metadata"]["namespace"], "shop");
    }

    #[test]
    fn names_the_field_that_is_wrong() {
        let missing = refused(owned(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#));
        assert_eq!(missing, "objects[0].metadata.name: is missing");
        let null = refused(owned(
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":[1,null]}}"#,
        ));
        assert!(null.starts_with("objects[0].data.k[1]: null claims"), "{null}");
        let foreign = refused(owned(
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"other"}}"#,
        ));
        assert!(foreign.contains("cannot cross namespaces"), "{foreign}");
    }

    #[test]
    fn refuses_fields_that_are_the_hosts() {
        for field in HOST_FIELDS {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","{field}":[]}}}}"#
            );
            assert!(refused(owned(&body)).contains(field));
        }
        let raw = RawDecision {
            status: Some(r#"{"observedGeneration":1}"#.into()),
            ..RawDecision::default()
        };
        assert!(refused(raw).contains("observedGeneration"));
    }

    #[test]
    fn refuses_kinds_that_are_not_granted() {
        let message =
            refused(owned(r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#));
        assert!(message.contains("v1/Secret") && message.contains("grants.owns"), "{message}");
    }

    #[test]
    fn refuses_the_same_object_twice() {
        let mut raw = owned(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#);
        raw.objects.push(raw.objects[0].clone());
        assert!(refused(raw).contains("returned twice"));
    }

    #[test]
    fn raises_a_requeue_to_the_floor() {
        let raw = RawDecision { requeue_after_ms: Some(0), ..RawDecision::default() };
        let decision = raw.validate(&parent(), &grants_for_tests()).unwrap();
        assert_eq!(decision.requeue_after, Some(limits::REQUEUE_FLOOR));
    }

    #[test]
    fn checks_conditions() {
        let with = |condition: &str| RawDecision {
            status: Some(format!(r#"{{"conditions":[{condition}]}}"#)),
            ..RawDecision::default()
        };
        assert!(
            refused(with(r#"{"type":"Ready","status":"Yes","reason":"A"}"#)).contains("status")
        );
        assert!(
            refused(with(r#"{"type":"Ready","status":"True","reason":"not so"}"#))
                .contains("CamelCase")
        );
        assert!(
            refused(with(r#"{"type":"Reconciled","status":"True","reason":"A"}"#))
                .contains("host's own")
        );
    }
}
