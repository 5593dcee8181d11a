//! Desired × live → an ordered plan that leaves nothing to choose. Stage *plan*.
//! What is applied carries a mark, and what carries the right mark is compared before it is written (ADR 0002).
//!
//! **Invariant:** equal things are not written. **Invariant:** only what this parent owns and this plugin has
//! applied is ever pruned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::decision::{DesiredObject, Ownership};
use crate::diff;
use crate::ident::{Kind, ObjectId, hex};
use crate::moment::Moment;
use crate::object::StoredObject;
use crate::snapshot::{Observed, Problem};
use crate::text;

mod memory;
mod step;

pub use memory::{Contested, Memory};
pub use step::{Apply, Live, Step};

/// What the plan is made for.
#[derive(Clone, Debug)]
pub struct PlanContext<'a> {
    /// The plugin's name.
    pub plugin: &'a str,
    /// The parent.
    pub parent: &'a Observed,
    /// Every live object of an owned kind whose controller is the parent.
    pub children: &'a [Observed],
    /// Every other live object that carries this parent's mark: patched ones, and owned ones that have lost their
    /// owner reference.
    pub marked: &'a [Observed],
    /// When the plan is made: tells an accident from a fight over an object.
    pub now: Moment,
}

/// A plan: steps in order. Not yet allowed: that is the guard's to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Applies in the plugin's order, then releases, then prunes.
    pub steps: Vec<Step>,
    /// Objects that somebody else keeps changing back. They are set back all the same.
    pub contested: Vec<Contested>,
}

/// Makes the plan. `live` looks a desired object up in the cache.
pub fn plan(
    context: &PlanContext<'_>,
    desired: Vec<DesiredObject>,
    memory: &mut Memory,
    live: impl Fn(&ObjectId) -> Option<Arc<StoredObject>>,
) -> Plan {
    let ids: BTreeSet<ObjectId> = desired.iter().map(|object| object.id.clone()).collect();
    memory.retain(&ids);
    let mut steps = Vec::with_capacity(desired.len());
    for object in desired {
        let found = live(&object.id);
        steps.push(step(context, object, found.as_deref(), memory));
    }
    let ours = |observed: &&Observed| {
        let mark = observed.object.applied.as_ref();
        mark.is_some_and(|mark| mark.parent_uid == context.parent.object.uid)
    };
    let named = |observed: &Observed| {
        let id = ObjectId { kind: Kind::clone(&observed.kind), key: observed.object.key.clone() };
        (id, observed.object.uid.clone())
    };
    let mut prunes = Vec::new();
    // `kubectl delete --cascade=orphan`: what the user keeps is not removed one by one either.
    let orphaning = context.parent.object.finalizers.iter().any(|name| **name == *text::ORPHAN);
    for observed in context.marked.iter().chain(context.children).filter(ours) {
        let (id, uid) = named(observed);
        if ids.contains(&id) || observed.object.deleting {
            continue;
        }
        let owner = observed.object.controller().map(|owner| &owner.uid);
        let ours = owner == Some(&context.parent.object.uid);
        let label = observed.object.labels.get(text::LABEL_PLUGIN);
        match label {
            // Ours, or ours once: its owner reference was removed, and nobody else has taken it.
            Some(plugin) if plugin == context.plugin && (ours || owner.is_none()) => {
                if !orphaning {
                    prunes.push(Step::Prune { id, uid });
                }
            }
            None if !ours => steps.push(Step::Release { id, uid }),
            Some(_) | None => {}
        }
    }
    steps.extend(prunes);
    Plan { steps, contested: memory.contested(context.now) }
}

fn step(
    context: &PlanContext<'_>,
    object: DesiredObject,
    live: Option<&StoredObject>,
    memory: &mut Memory,
) -> Step {
    if let Some(problem) = obstacle(context, &object, live) {
        return Step::Refuse { id: object.id, problem };
    }
    let hash = hash(&object.body);
    let body = complete(context, &object, live, &hash);
    if let Some(live) = live {
        let mark = live.applied.as_ref();
        let marked = mark.is_some_and(|mark| {
            *mark.hash == *hash && mark.parent_uid == context.parent.object.uid
        });
        if marked && memory.knows(&object.id, &hash, live) {
            return Step::Keep(object.id);
        }
        let differences = serde_json::from_str(&live.json)
            .map(|live| diff::differences(&body, &live))
            .unwrap_or_default();
        if marked && memory.tolerates(&object.id, &hash, &differences) {
            memory.keep(&object.id, &hash, live.resource_version);
            return Step::Keep(object.id);
        }
        memory.drifted(&object.id, &hash, &differences, context.now);
    }
    Step::Apply(Apply {
        id: object.id,
        body,
        live: live
            .map(|live| Live { uid: live.uid.clone(), resource_version: live.resource_version }),
        on_immutable: object.on_immutable,
        ownership: object.ownership,
        hash,
    })
}

/// Why a desired object cannot be applied, whatever its fields.
fn obstacle(
    context: &PlanContext<'_>,
    object: &DesiredObject,
    live: Option<&StoredObject>,
) -> Option<Problem> {
    let problem =
        |reason: &str, message: String| Some(Problem { reason: reason.to_owned(), message });
    match (object.ownership, live) {
        (Ownership::Partial, None) => problem(
            "NotFound",
            format!("{} does not exist, so no field of it can be set", object.id),
        ),
        (_, Some(live)) if live.deleting => problem(
            "Terminating",
            format!("{} is being deleted; it is applied again once it is gone", object.id),
        ),
        (Ownership::Owned, Some(live)) => match live.controller() {
            Some(owner) if owner.uid != context.parent.object.uid => problem(
                "OwnedByOther",
                format!(
                    "{} is controlled by {} {}; it is left alone",
                    object.id, owner.kind, owner.name
                ),
            ),
            // Orphaned by its deletion: taken back, it would go with its parent after all.
            None if context.parent.object.deleting => problem(
                "ParentDeleting",
                format!("{} is not taken over while its parent is being deleted", object.id),
            ),
            Some(_) | None => None,
        },
        (Ownership::Partial, Some(live)) => match &live.applied {
            Some(mark) if mark.parent_uid != context.parent.object.uid => problem(
                "OwnedByOther",
                format!("fields of {} are already set for another parent", object.id),
            ),
            Some(_) | None => None,
        },
        (Ownership::Owned, None) => None,
    }
}

/// Adds what the host sets: owner, labels, mark; for somebody else's object the uid, so that it is not resurrected.
fn complete(
    context: &PlanContext<'_>,
    object: &DesiredObject,
    live: Option<&StoredObject>,
    hash: &str,
) -> Map<String, Value> {
    let mut body = object.body.clone();
    let Some(Value::Object(metadata)) = body.get_mut("metadata") else {
        return body;
    };
    let mark = format!("{}/{hash}", context.parent.object.uid);
    insert(metadata, "annotations", text::ANNOTATION_APPLIED, mark);
    match object.ownership {
        Ownership::Owned => {
            insert(metadata, "labels", text::LABEL_PLUGIN, context.plugin.to_owned());
            if !has(metadata, "labels", text::LABEL_MANAGED_BY) {
                insert(metadata, "labels", text::LABEL_MANAGED_BY, text::MANAGED_BY.to_owned());
            }
            let parent = context.parent;
            let owner = json!([{
                "apiVersion": parent.kind.api_version,
                "kind": parent.kind.kind,
                "name": &*parent.object.key.name,
                "uid": &*parent.object.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }]);
            metadata.insert("ownerReferences".to_owned(), owner);
        }
        Ownership::Partial => {
            if let Some(live) = live {
                metadata.insert("uid".to_owned(), Value::from(&*live.uid));
            }
        }
    }
    body
}

fn insert(metadata: &mut Map<String, Value>, field: &str, key: &str, value: String) {
    let map = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(map) = map {
        map.insert(key.to_owned(), Value::String(value));
    }
}

fn has(metadata: &Map<String, Value>, field: &str, key: &str) -> bool {
    metadata.get(field).is_some_and(|map| map.get(key).is_some())
}

/// Hash of a desired object: over sorted keys, so that only meaning counts. 16 hexadecimal characters:
/// a collision would need two versions of one object to agree in 64 bits.
fn hash(body: &Map<String, Value>) -> String {
    fn feed(hasher: &mut Sha256, value: &Value) {
        match value {
            Value::Object(map) => {
                hasher.update(b"{");
                let sorted: BTreeMap<_, _> = map.iter().collect();
                for (key, value) in sorted {
                    hasher.update(Value::from(key.as_str()).to_string());
                    feed(hasher, value);
                }
                hasher.update(b"}");
            }
            Value::Array(items) => {
                hasher.update(b"[");
                for item in items {
                    feed(hasher, item);
                    hasher.update(b",");
                }
                hasher.update(b"]");
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                hasher.update(value.to_string());
                hasher.update(b";");
            }
        }
    }
    let mut hasher = Sha256::new();
    feed(&mut hasher, &Value::Object(body.clone()));
    hex(hasher.finalize().get(..8).unwrap_or_default())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
