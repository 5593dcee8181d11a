//! The parent's status: the plugin's fields, the host's `observedGeneration`, transition times and `Reconciled`.
//!
//! **Invariant:** a transition time moves only when a condition's status flips. **Invariant:** a status that says
//! the same is not written.

use serde_json::{Map, Value, json};

use crate::limits::{CONDITION_MESSAGE_BYTES_MAX, cut};
use crate::text;

/// What the host says about the last run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconciled {
    /// Whether everything went through.
    pub ok: bool,
    /// `CamelCase`.
    pub reason: String,
    /// For people; names the plugin and its digest.
    pub message: String,
}

/// The status to write, or None when the live one already says the same.
///
/// `desired` is the plugin's status; None (no decision, or no opinion) keeps what is live.
/// `observedGeneration` advances only when `reconciled.ok`.
pub fn merge(
    live: Option<&Map<String, Value>>,
    desired: Option<Map<String, Value>>,
    reconciled: &Reconciled,
    generation: i64,
    now: &str,
) -> Option<Map<String, Value>> {
    let empty = Map::new();
    let live = live.unwrap_or(&empty);
    let mut status = desired.unwrap_or_else(|| live.clone());
    let observed = if reconciled.ok {
        Some(Value::from(generation))
    } else {
        live.get("observedGeneration").cloned()
    };
    match observed {
        Some(observed) => status.insert("observedGeneration".to_owned(), observed.clone()),
        None => status.remove("observedGeneration"),
    };
    let observed = status.get("observedGeneration").cloned();
    let mut conditions = match status.remove("conditions") {
        Some(Value::Array(conditions)) => conditions,
        Some(_) | None => Vec::new(),
    };
    conditions.retain(|condition| type_of(condition) != Some(text::CONDITION_RECONCILED));
    if !conditions.iter().any(|condition| type_of(condition) == Some(text::CONDITION_READY))
        && !reconciled.ok
    {
        // kstatus reads an object without Ready as current; one that has never been reconciled is not.
        conditions.push(json!({
            "type": text::CONDITION_READY, "status": "Unknown", "reason": reconciled.reason,
            "message": "has not been reconciled yet",
        }));
    }
    conditions.push(json!({
        "type": text::CONDITION_RECONCILED,
        "status": if reconciled.ok { "True" } else { "False" },
        "reason": reconciled.reason,
        "message": cut(&reconciled.message, CONDITION_MESSAGE_BYTES_MAX),
    }));
    stamp(&mut conditions, live, observed.as_ref(), now);
    status.insert("conditions".to_owned(), Value::Array(conditions));
    (status != *live).then_some(status)
}

/// Gives conditions their transition times, kept from the live status where nothing has flipped, and the generation
/// they are about.
pub fn stamp(
    conditions: &mut [Value],
    live: &Map<String, Value>,
    generation: Option<&Value>,
    now: &str,
) {
    for condition in conditions {
        complete(condition, live, generation, now);
    }
}

fn type_of(condition: &Value) -> Option<&str> {
    condition.get("type").and_then(Value::as_str)
}

fn complete(
    condition: &mut Value,
    live: &Map<String, Value>,
    generation: Option<&Value>,
    now: &str,
) {
    let before = live
        .get("conditions")
        .and_then(Value::as_array)
        .and_then(|conditions| conditions.iter().find(|old| type_of(old) == type_of(condition)));
    let unchanged = before.filter(|old| old.get("status") == condition.get("status"));
    let since = unchanged.and_then(|old| old.get("lastTransitionTime")).cloned();
    let Value::Object(condition) = condition else {
        return;
    };
    condition.entry("message").or_insert_with(|| Value::from(""));
    condition.insert("lastTransitionTime".to_owned(), since.unwrap_or_else(|| Value::from(now)));
    match generation {
        Some(generation) => condition.insert("observedGeneration".to_owned(), generation.clone()),
        None => condition.remove("observedGeneration"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const T1: &str = "2026-01-01T00:00:00Z";
    const T2: &str = "2026-01-01T00:00:09Z";

    fn ok() -> Reconciled {
        Reconciled { ok: true, reason: "Applied".into(), message: "by demo@sha256:1".into() }
    }

    fn failed() -> Reconciled {
        Reconciled { ok: false, reason: "PluginPanicked".into(), message: "boom".into() }
    }

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("an object") };
        map
    }

    fn ready(status: &str, message: &str) -> Map<String, Value> {
        map(
            json!({"size": 3, "conditions": [{"type": "Ready", "status": status, "reason": "R", "message": message}]}),
        )
    }

    #[test]
    fn writes_nothing_when_nothing_is_new() {
        let first = merge(None, Some(ready("True", "")), &ok(), 1, T1).unwrap();
        assert_eq!(merge(Some(&first), Some(ready("True", "")), &ok(), 1, T2), None);
    }

    #[test]
    fn moves_a_transition_time_only_when_the_status_flips() {
        let first = merge(None, Some(ready("True", "")), &ok(), 1, T1).unwrap();
        let message = merge(Some(&first), Some(ready("True", "new")), &ok(), 1, T2).unwrap();
        assert_eq!(message["conditions"][0]["lastTransitionTime"], T1);
        let flipped = merge(Some(&first), Some(ready("False", "")), &ok(), 1, T2).unwrap();
        assert_eq!(flipped["conditions"][0]["lastTransitionTime"], T2);
    }

    #[test]
    fn a_new_generation_is_observed_even_if_nothing_else_changed() {
        let first = merge(None, Some(ready("True", "")), &ok(), 1, T1).unwrap();
        let second = merge(Some(&first), Some(ready("True", "")), &ok(), 2, T2).unwrap();
        assert_eq!(second["observedGeneration"], 2);
        assert_eq!(second["conditions"][0]["observedGeneration"], 2);
    }

    #[test]
    fn a_failed_run_keeps_the_plugins_fields_and_the_old_generation() {
        let first = merge(None, Some(ready("True", "")), &ok(), 1, T1).unwrap();
        let second = merge(Some(&first), None, &failed(), 2, T2).unwrap();
        assert_eq!((&second["size"], &second["observedGeneration"]), (&json!(3), &json!(1)));
        assert_eq!(second["conditions"][1]["reason"], "PluginPanicked");
        assert_eq!(second["conditions"][0]["status"], "True");
    }

    #[test]
    fn a_parent_that_never_worked_is_not_ready() {
        let status = merge(None, None, &failed(), 1, T1).unwrap();
        assert_eq!(status["conditions"][0]["type"], "Ready");
        assert_eq!(status["conditions"][0]["status"], "Unknown");
        assert!(!status.contains_key("observedGeneration"));
    }
}
