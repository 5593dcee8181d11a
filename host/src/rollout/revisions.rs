//! Revisions that have acted, kept as immutable ConfigMaps: what a restart runs and what a rollback goes back to.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use host_core::ident::{ObjectId, ObjectKey};
use host_core::plugin::{self, Revision};
use host_core::selector::Selector;
use host_core::text;
use host_kube::{ApiErrorKind, Propagation};
use serde_json::json;

use super::config_map;
use super::eye::Eye;
use super::pursue::State;
use super::source::{Source, Wanted};
use crate::error::chain;
use crate::package::packed;
use crate::plugins::LoadedPlugin;

/// The name of the ConfigMap that keeps a revision.
pub(super) fn name(plugin: &str, revision: Revision) -> String {
    format!("{plugin}-{revision}")
}

/// Keeps a revision. That it cannot be kept is told and stops nothing: only a restart with a bad source would miss it.
pub(super) async fn keep(eye: &Eye, wanted: &Wanted, source: &Arc<Source>, plugin: &LoadedPlugin) {
    let Some(owner) = &wanted.object else { return };
    let key = ObjectKey::new(owner.key.namespace.clone(), name(&eye.name, source.revision));
    if eye.config_maps.store().view().is_ok_and(|view| view.get(&key).is_some()) {
        return;
    }
    let packed = {
        let source = Arc::clone(source);
        tokio::task::spawn_blocking(move || packed(source.captured.bytes())).await
    };
    let Ok(Ok(packed)) = packed else {
        tracing::warn!(
            plugin = &*eye.name,
            "revision {} cannot be packed to be kept",
            source.revision
        );
        return;
    };
    let Ok(settings) = serde_norway::to_string(&source.settings) else { return };
    let id = ObjectId { kind: config_map(), key };
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
        "metadata": {
            "name": &*id.key.name, "namespace": &*id.key.namespace,
            "labels": {
                text::LABEL_REVISION_OF: &*eye.name,
                text::LABEL_MANAGED_BY: text::MANAGED_BY,
            },
            "annotations": {text::ANNOTATION_VERSION: plugin.plugin.descriptor().version},
            "ownerReferences": [{
                "apiVersion": plugin::API_VERSION, "kind": "Plugin",
                "name": &*owner.key.name, "uid": &*owner.uid,
            }],
        },
        "binaryData": {text::KEY_WASM: STANDARD.encode(packed)},
        "data": {text::KEY_SETTINGS: settings},
    });
    match eye.host.cluster.create(&id, text::MANAGED_BY, &body).await {
        Ok(_) => {}
        Err(error) if error.kind() == ApiErrorKind::Conflict => {}
        Err(error) => {
            tracing::warn!(
                plugin = &*eye.name,
                "revision {} is not kept, so a restart with a bad source could not run it: {}",
                source.revision,
                chain(&error)
            );
        }
    }
}

/// Removes what is beyond the history limit; never what acts, nor what acted just before it.
pub(super) async fn forget_old(eye: &Eye, state: &State, limit: usize) {
    let recent = state.history.iter().map(|entry| entry.revision);
    let mut kept: Vec<Revision> = Vec::new();
    for revision in recent {
        if !kept.contains(&revision) {
            kept.push(revision);
        }
    }
    kept.truncate(limit.max(1) + 1);
    let names: Vec<String> = kept.into_iter().map(|revision| name(&eye.name, revision)).collect();
    let old = {
        let Ok(view) = eye.config_maps.store().view() else { return };
        let selector = format!("{}={}", text::LABEL_REVISION_OF, eye.name);
        let Ok(selector) = Selector::parse(&selector) else { return };
        view.select(None, None, Some(&selector))
    };
    for object in old.into_iter().filter(|one| !names.contains(&one.key.name.to_string())) {
        let id = ObjectId { kind: config_map(), key: object.key.clone() };
        let deleted = eye.host.cluster.delete(&id, &object.uid, Propagation::Background).await;
        if let Err(error) = deleted {
            tracing::warn!(
                plugin = &*eye.name,
                "an old revision is not removed: {}",
                chain(&error)
            );
        }
    }
}
