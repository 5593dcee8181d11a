//! Deletions: a mark first where there are finalizers, the end at once where there are none.
//!
//! Nothing has a grace period, pods neither.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object::{self, finalizers, is_deleting};
use crate::refusal::Refusal;
use crate::state::{State, Stored};
use crate::write::Target;

/// Makes an owner wait for its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Makes an owner wait until its dependents are not its own any more.
pub(crate) const ORPHAN: &str = "orphan";

/// Deletes an object, or marks it. `options` are `DeleteOptions`. The answer is a `Status` or what is left.
pub(crate) fn delete(
    state: &mut State,
    target: &Target,
    options: &Value,
) -> Result<Arc<Value>, Refusal> {
    let Stored { object: old, managers } = target.stored(state)?.clone();
    target.check_identity(&options["preconditions"], &old)?;
    let waits_for = match options["propagationPolicy"].as_str() {
        None | Some("Background") => None,
        Some("Foreground") => Some(FOREGROUND),
        Some("Orphan") => Some(ORPHAN),
        Some(other) => {
            return Err(Refusal::bad(format!("there is no propagationPolicy {other}")));
        }
    };
    let mut all = finalizers(&old);
    all.extend(waits_for.filter(|waits_for| !all.contains(waits_for)));
    if all.is_empty() {
        if !target.dry_run {
            state.remove(&target.id, (*old).clone());
        }
        return Ok(Arc::new(json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success",
            "details": {"name": target.id.name, "group": target.kind.group(),
                "kind": target.kind.plural, "uid": object::uid(&old)},
        })));
    }
    let mut new =
        if is_deleting(&old) { (*old).clone() } else { object::marked(&old, state.next_time()) };
    new["metadata"]["finalizers"] = json!(all);
    if target.dry_run || new == *old {
        return Ok(Arc::new(new));
    }
    Ok(state.put(&target.id, new, managers))
}
