//! Revisions that have acted, kept as immutable ConfigMaps: what a restart runs and what a rollback goes back to.

use std::collections::BTreeMap;
use std::sync::Arc;

use host_core::ident::{ObjectId, ObjectKey};
use host_core::object::StoredObject;
use host_core::plugin::{self, HistoryEntry, Revision};
use host_core::selector::Selector;
use host_core::text;
use host_kube::{ApiErrorKind, Propagation};
use serde_json::json;

use super::source::Source;
use super::subject::Subject;
use super::wanted::Wanted;
use crate::error::chain;
use crate::kinds::config_map;
use crate::logic::Logic;
use crate::packing::{packed, parts};

/// The name of the ConfigMap that keeps a revision; those of its parts have a number behind it.
pub(super) fn name(plugin: &str, revision: Revision) -> String {
    format!("{plugin}-{revision}")
}

fn is_of(object: &StoredObject, name: &str) -> bool {
    let rest = object.key.name.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Everything that is kept of a plugin.
fn all_kept(subject: &Subject) -> Vec<Arc<StoredObject>> {
    let Ok(view) = subject.config_maps.store().view() else { return Vec::new() };
    let selector = format!("{}={}", text::LABEL_REVISION_OF, subject.name);
    let Ok(selector) = Selector::parse(&selector) else { return Vec::new() };
    view.select(None, None, Some(&selector))
}

/// The ConfigMaps that keep a revision.
pub(super) fn kept(subject: &Subject, revision: Revision) -> Vec<Arc<StoredObject>> {
    let name = name(&subject.name, revision);
    all_kept(subject).into_iter().filter(|object| is_of(object, &name)).collect()
}

/// Keeps a revision. That it cannot be kept is told and stops nothing: only a restart with a bad source would miss it.
pub(super) async fn keep(subject: &Subject, wanted: &Wanted, source: &Arc<Source>, plugin: &Logic) {
    let Some(owner) = &wanted.object else { return };
    let kept = kept(subject, source.revision);
    let name = name(&subject.name, source.revision);
    let is_kept = |part: &str| kept.iter().any(|object| *object.key.name == *part);
    if is_kept(&name) {
        return;
    }
    let packed = {
        let source = Arc::clone(source);
        tokio::task::spawn_blocking(move || packed(source.captured.bytes())).await
    };
    let Ok(Ok(packed)) = packed else {
        tracing::warn!(
            plugin = &*subject.name,
            "revision {} cannot be packed to be kept",
            source.revision
        );
        return;
    };
    let Ok(settings) = serde_norway::to_string(&source.settings) else { return };
    let mut data = BTreeMap::from([(text::KEY_SETTINGS, settings)]);
    data.extend(source.signature.as_ref().map(|one| (text::KEY_SIGNATURE, one.text())));
    // A host that was killed between two parts has kept some of them.
    let missing = parts(&name, &packed, data).into_iter().filter(|part| !is_kept(&part.name));
    for part in missing {
        let key = ObjectKey::new(owner.key.namespace.clone(), part.name.as_str());
        let id = ObjectId { kind: config_map(), key };
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
            "metadata": {
                "name": &*id.key.name, "namespace": &*id.key.namespace,
                "labels": {
                    text::LABEL_REVISION_OF: &*subject.name,
                    text::LABEL_MANAGED_BY: text::MANAGED_BY,
                },
                "annotations": {text::ANNOTATION_VERSION: plugin.plugin.descriptor().version},
                "ownerReferences": [{
                    "apiVersion": plugin::API_VERSION, "kind": "Plugin",
                    "name": &*owner.key.name, "uid": &*owner.uid,
                }],
            },
            "binaryData": part.binary_data, "data": part.data,
        });
        match subject.cluster.create(&id, text::MANAGED_BY, &body).await {
            Ok(_) => {}
            Err(error) if error.kind() == ApiErrorKind::Conflict => {}
            Err(error) => {
                tracing::warn!(
                    plugin = &*subject.name,
                    "revision {} is not kept, so a restart with a bad source could not run it: {}",
                    source.revision,
                    chain(&error)
                );
                return;
            }
        }
    }
}

/// Removes what is beyond the history limit; never what acts, nor what acted just before it.
pub(super) async fn forget_old(subject: &Subject, history: &[HistoryEntry], limit: usize) {
    let recent = history.iter().map(|entry| entry.revision);
    let mut kept: Vec<Revision> = Vec::new();
    for revision in recent {
        if !kept.contains(&revision) {
            kept.push(revision);
        }
    }
    kept.truncate(limit.max(1) + 1);
    let names: Vec<String> =
        kept.into_iter().map(|revision| name(&subject.name, revision)).collect();
    let is_old = |one: &Arc<StoredObject>| !names.iter().any(|name| is_of(one, name));
    for object in all_kept(subject).into_iter().filter(is_old) {
        let id = ObjectId { kind: config_map(), key: object.key.clone() };
        let deleted = subject.cluster.delete(&id, &object.uid, Propagation::Background).await;
        if let Err(error) = deleted {
            tracing::warn!(
                plugin = &*subject.name,
                "an old revision is not removed: {}",
                chain(&error)
            );
        }
    }
}
