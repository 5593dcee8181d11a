//! Stage *observe*: what the cache knows of a parent and its children.
//!
//! **Invariant:** unknown is never empty. A kind that is not synced blocks the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use host_core::ident::{Kind, ObjectId, ObjectKey};
use host_core::queue::ParentKey;
use host_core::snapshot::Observed;
use serde::Deserialize;

use crate::error::Error;
use crate::logic::Logic;
use crate::outlook::Outlook;

/// What is known of one parent.
#[derive(Debug)]
pub(crate) struct Observation {
    /// The parent.
    pub(crate) parent: Observed,
    /// Live objects of owned kinds that it controls, in canonical order.
    pub(crate) children: Vec<Observed>,
    /// Live objects that it does not control and that carry its mark: patched ones, and owned ones whose owner
    /// reference somebody has removed.
    pub(crate) marked: Vec<Observed>,
}

/// Looks before a run; None when the parent is gone.
pub(crate) fn observe(
    outlook: &Outlook,
    plugin: &Logic,
    key: &ParentKey,
) -> Result<Option<Observation>, Error> {
    let kind = &plugin.plugin.descriptor().parent;
    if plugin.store(kind, &key.key.namespace)?.get(&key.key).is_none() {
        return Ok(None);
    }
    // Before looking: what is read afterwards cannot be older.
    if !outlook.dispatch.is_fresh(key, |id| plugin.seen(id)) {
        return Err(Error::Stale);
    }
    look(plugin, &key.key)
}

/// Looks, whatever is still missing of the host's own writes.
pub(crate) fn look(plugin: &Logic, key: &ObjectKey) -> Result<Option<Observation>, Error> {
    let kind = &plugin.plugin.descriptor().parent;
    let store = plugin.store(kind, &key.namespace)?;
    let Some(parent) = store.get(key) else { return Ok(None) };
    let parent = Observed { kind: Arc::new(kind.clone()), object: parent };
    let namespace = &parent.object.key.namespace;
    let mut children = Vec::new();
    for kind in plugin.grants.owns() {
        let found = plugin.store(kind, namespace)?.by_owner(&parent.object.uid);
        children.extend(observed(kind, found));
    }
    let mut marked = Vec::new();
    let kinds: BTreeSet<_> = plugin.grants.patches().chain(plugin.grants.owns()).collect();
    for kind in kinds {
        let mut found = plugin.store(kind, namespace)?.by_applied(&parent.object.uid);
        found.retain(|object| object.controller().is_none_or(|by| by.uid != parent.object.uid));
        marked.extend(observed(kind, found));
    }
    Ok(Some(Observation { parent, children, marked }))
}

/// The parent alone, to tell it that something else cannot be observed.
pub(crate) fn parent_alone(plugin: &Logic, key: &ParentKey) -> Option<Observation> {
    let kind = &plugin.plugin.descriptor().parent;
    let object = plugin.store(kind, &key.key.namespace).ok()?.get(&key.key)?;
    let parent = Observed { kind: Arc::new(kind.clone()), object };
    Some(Observation { parent, children: Vec::new(), marked: Vec::new() })
}

/// Objects of one kind, in canonical order.
pub(crate) fn observed(
    kind: &Kind,
    mut found: Vec<Arc<host_core::object::StoredObject>>,
) -> impl Iterator<Item = Observed> + use<> {
    found.sort_by(|a, b| a.key.cmp(&b.key));
    let kind = Arc::new(kind.clone());
    found.into_iter().map(move |object| Observed { kind: Arc::clone(&kind), object })
}

impl Observation {
    /// The parent, named.
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId { kind: (*self.parent.kind).clone(), key: self.parent.object.key.clone() }
    }

    /// One of the parent's annotations.
    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Parent {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            annotations: BTreeMap<String, String>,
        }
        let parent: Parent = serde_json::from_str(&self.parent.object.json).ok()?;
        parent.metadata.annotations.get(name).cloned()
    }
}
