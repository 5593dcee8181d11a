//! Snapshots for native unit tests of a plugin's logic. To test the built component, use `operator-host-kit`.

use serde_json::Value;

use crate::{Failure, Object, Plugin, Snapshot, Verdict};

/// A snapshot with a parent, and nothing else known. Fill in the rest by its public fields.
pub fn snapshot(parent: &Value) -> Snapshot {
    Snapshot {
        now: "2026-01-31T08:00:00Z".to_owned(),
        parent: object(parent),
        children: Vec::new(),
        answers: Vec::new(),
        previous: None,
        config: Vec::new(),
    }
}

/// An object as the host would hand it over.
pub fn object(body: &Value) -> Object {
    let text = |pointer: &str| {
        body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    Object {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        body: body.to_string(),
    }
}

/// One call, without a component around it.
pub fn call<P: Plugin>(snapshot: Snapshot) -> Result<Verdict, Failure> {
    crate::guest::reconcile::<P>(snapshot)
}
