//! A run as YAML: keys sorted, JSON texts opened, what is empty left out.
//!
//! **Invariant:** equal runs give equal bytes.

use host_core::decision::{Event, OnImmutable, Ownership, RawDecision, RawObject};
use host_core::snapshot::{Action, Failure, FailureKind, Query};
use serde_json::{Map, Value, json};

/// What was decided.
pub(crate) fn outcome(outcome: &Result<RawDecision, Failure>) -> Value {
    match outcome {
        Ok(decision) => json!({"decision": self::decision(decision)}),
        Err(failure) => json!({"failure": {
            "kind": match failure.kind {
                FailureKind::Transient => "transient",
                FailureKind::Terminal => "terminal",
            },
            "reason": failure.reason,
            "message": failure.message,
        }}),
    }
}

/// What was asked, round by round.
pub(crate) fn rounds(rounds: &[Vec<Query>]) -> Value {
    rounds.iter().map(|queries| queries.iter().map(query).collect::<Value>()).collect()
}

/// YAML with sorted keys.
pub(crate) fn to_yaml(value: &Value) -> Result<String, serde_norway::Error> {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    serde_norway::to_string(&sorted)
}

fn decision(decision: &RawDecision) -> Value {
    // Destructured, so that a new field cannot be forgotten here.
    let RawDecision { objects, status, events, actions, requeue_after_ms, finished } = decision;
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| {
        let empty = value.as_array().is_some_and(Vec::is_empty);
        if !empty && !value.is_null() && value != Value::Bool(false) {
            map.insert(key.to_owned(), value);
        }
    };
    put("objects", objects.iter().map(object).collect());
    put("status", status.as_deref().map(opened).unwrap_or_default());
    put("events", events.iter().map(event).collect());
    put("actions", actions.iter().map(action).collect());
    put("requeueAfterMs", json!(requeue_after_ms));
    put("finished", json!(finished));
    Value::Object(map)
}

/// A JSON text as a value; one that does not parse stays a text, so that it is seen.
fn opened(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| Value::from(json))
}

fn object(object: &RawObject) -> Value {
    let ownership = match object.ownership {
        Ownership::Owned => "owned",
        Ownership::Partial => "partial",
    };
    let on_immutable = match object.on_immutable {
        OnImmutable::Report => return json!({ownership: opened(&object.body)}),
        OnImmutable::Recreate => "recreate",
        OnImmutable::RecreateOrphan => "recreateOrphan",
    };
    json!({ownership: opened(&object.body), "onImmutable": on_immutable})
}

fn event(event: &Event) -> Value {
    json!({
        "type": event.kind.as_str(),
        "reason": event.reason,
        "action": event.action,
        "note": event.note,
    })
}

fn action(action: &Action) -> Value {
    json!({"provider": action.provider, "request": opened(&action.request)})
}

fn query(query: &Query) -> Value {
    match query {
        Query::Probe(query) => {
            json!({"provider": query.provider, "request": opened(&query.request)})
        }
        Query::Objects(query) => {
            let mut map = Map::new();
            map.insert("kind".to_owned(), json!(query.kind.to_string()));
            let fields = [
                ("namespace", &query.namespace),
                ("name", &query.name),
                ("labels", &query.label_selector),
            ];
            for (key, value) in fields {
                if let Some(value) = value {
                    map.insert(key.to_owned(), json!(value));
                }
            }
            Value::Object(map)
        }
    }
}
