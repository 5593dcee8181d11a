//! Desired × live → an ordered plan that leaves nothing to choose. Stage *plan*.
//! What is applied carries a mark, and what carries the right mark is compared before it is written (ADR 0002).
//!
//! **Invariant:** equal things are not written. **Invariant:** only what this parent owns and this plugin has
//! applied is ever pruned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::decision::{DesiredObject, OnImmutable, Ownership};
use crate::diff::{self, Difference};
use crate::ident::{Kind, ObjectId, hex};
use crate::object::StoredObject;
use crate::snapshot::{Observed, Problem};
use crate::text;

/// What the plan is made for.
#[derive(Clone, Debug)]
pub struct PlanContext<'a> {
    /// The plugin's name.
    pub plugin: &'a str,
    /// The parent.
    pub parent: &'a Observed,
    /// Every live object of an owned kind whose controller is the parent.
    pub children: &'a [Observed],
    /// Every live object of a patched kind that carries this parent's mark.
    pub marked: &'a [Observed],
}

/// One thing to do, with everything needed to do it.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Already as desired.
    Keep(ObjectId),
    /// Create or change.
    Apply(Apply),
    /// Delete: no longer desired.
    Prune {
        /// Which object.
        id: ObjectId,
        /// Exactly that one.
        uid: Box<str>,
    },
    /// Give up the fields set on somebody else's object.
    Release {
        /// Which object.
        id: ObjectId,
        /// Exactly that one.
        uid: Box<str>,
    },
    /// Not to be done, and why.
    Refuse {
        /// Which object.
        id: ObjectId,
        /// Why.
        problem: Problem,
    },
}

impl Step {
    /// The object the step is about.
    pub fn id(&self) -> &ObjectId {
        match self {
            Self::Keep(id)
            | Self::Prune { id, .. }
            | Self::Release { id, .. }
            | Self::Refuse { id, .. } => id,
            Self::Apply(apply) => &apply.id,
        }
    }
}

/// One server-side apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// Which object.
    pub id: ObjectId,
    /// The whole apply configuration.
    pub body: Map<String, Value>,
    /// The live object, if there is one; None means it will be created.
    pub live: Option<Live>,
    /// What to do when a field is immutable.
    pub on_immutable: OnImmutable,
    /// Whose it is.
    pub ownership: Ownership,
    /// Hash of the desired fields.
    pub hash: String,
}

/// The live object a step was planned against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its uid.
    pub uid: Box<str>,
    /// Its version.
    pub resource_version: u64,
}

/// A plan: steps in order. Not yet allowed; see [`crate::guard`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Applies in the plugin's order, then releases, then prunes.
    pub steps: Vec<Step>,
}

/// What was learnt from the API server's answers for one parent: how it normalises what a plugin sends,
/// and which version of an object is known to be as desired. Lost on a restart, which costs one apply that
/// changes nothing for each object with an unknown normalisation.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    known: BTreeMap<ObjectId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    hash: String,
    resource_version: u64,
    tolerated: Vec<Difference>,
}

impl Memory {
    /// Learns from the answer to an apply: what still differs now is how the server writes it.
    pub fn learn(&mut self, apply: &Apply, answer: &StoredObject) {
        let tolerated = match serde_json::from_str(&answer.json) {
            Ok(live) => diff::differences(&apply.body, &live),
            Err(_) => Vec::new(),
        };
        let known = Known {
            hash: apply.hash.clone(),
            resource_version: answer.resource_version,
            tolerated,
        };
        self.known.insert(apply.id.clone(), known);
    }

    fn knows(&self, id: &ObjectId, hash: &str, live: &StoredObject) -> bool {
        self.known.get(id).is_some_and(|known| {
            known.hash == hash && known.resource_version == live.resource_version
        })
    }

    fn tolerates(&self, id: &ObjectId, hash: &str, differences: &[Difference]) -> bool {
        let Some(known) = self.known.get(id).filter(|known| known.hash == hash) else {
            return differences.is_empty();
        };
        differences.iter().all(|difference| known.tolerated.contains(difference))
    }

    /// The kept objects' versions are known to be as desired from now on.
    fn keep(&mut self, id: &ObjectId, hash: &str, resource_version: u64) {
        if let Some(known) = self.known.get_mut(id).filter(|known| known.hash == hash) {
            known.resource_version = resource_version;
        } else {
            let known = Known { hash: hash.to_owned(), resource_version, tolerated: Vec::new() };
            self.known.insert(id.clone(), known);
        }
    }

    fn retain(&mut self, ids: &BTreeSet<&ObjectId>) {
        self.known.retain(|id, _| ids.contains(id));
    }
}

/// Makes the plan. `live` looks a desired object up in the cache.
pub fn plan(
    context: &PlanContext<'_>,
    desired: Vec<DesiredObject>,
    memory: &mut Memory,
    live: impl Fn(&ObjectId) -> Option<Arc<StoredObject>>,
) -> Plan {
    let ids: BTreeSet<ObjectId> = desired.iter().map(|object| object.id.clone()).collect();
    memory.retain(&ids.iter().collect());
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
    for observed in context.marked.iter().filter(ours) {
        let (id, uid) = named(observed);
        let owned = is_controlled_by(&observed.object, context.parent);
        if !ids.contains(&id) && !owned && !observed.object.deleting {
            steps.push(Step::Release { id, uid });
        }
    }
    for observed in context.children.iter().filter(ours) {
        let (id, uid) = named(observed);
        let plugin = observed.object.labels.get(text::LABEL_PLUGIN);
        let same_plugin = plugin.is_some_and(|plugin| **plugin == *context.plugin);
        if !ids.contains(&id) && same_plugin && !observed.object.deleting {
            steps.push(Step::Prune { id, uid });
        }
    }
    Plan { steps }
}

fn is_controlled_by(object: &StoredObject, parent: &Observed) -> bool {
    object.controller().is_some_and(|owner| owner.uid == parent.object.uid)
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
        let equal = marked
            && (memory.knows(&object.id, &hash, live) || {
                let differences = serde_json::from_str(&live.json)
                    .map(|live| diff::differences(&body, &live))
                    .unwrap_or_default();
                memory.tolerates(&object.id, &hash, &differences)
            });
        if equal {
            memory.keep(&object.id, &hash, live.resource_version);
            return Step::Keep(object.id);
        }
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
