//! One load: capture → verify → compile → describe → grant → promote.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use host_core::grants::{Grants, PluginSettings, RefusedDescriptor};
use host_core::ident::{Digest, Kind, PluginId};
use host_core::object::StoredObject;
use host_core::text;
use host_wasm::{CapturedPlugin, CompileError, Plugin};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::plugins::ActivePlugin;
use crate::run::Host;

/// How often a sweep that waits looks whether its version is still the active one.
const SYNC_LOOK: Duration = Duration::from_secs(5);

/// Parents of one plugin that run at once, unless its settings say otherwise.
const CONCURRENCY_DEFAULT: u16 = 4;

/// Bytes and settings, captured once.
#[derive(Debug)]
pub(super) struct Source {
    /// The plugin's name as its source states it; the descriptor has to agree.
    pub(super) name: String,
    bytes: Vec<u8>,
    settings: PluginSettings,
    /// Development: grant what is asked.
    grant_as_asked: bool,
    identity: Digest,
}

/// Why a version was not loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// The source has not what it needs.
    #[error("{what}")]
    Source { what: String },
    /// The settings do not parse.
    #[error("reading {}", text::KEY_SETTINGS)]
    Settings(#[source] serde_norway::Error),
    /// The bytes are no plugin that this host can run.
    #[error("loading {name}")]
    Plugin {
        name: String,
        #[source]
        source: Box<host_wasm::LoadError>,
    },
    /// The plugin is not what its source says, or asks for too much.
    #[error("{plugin}")]
    Refused {
        plugin: PluginId,
        #[source]
        source: RefusedDescriptor,
    },
    /// Two plugins for one kind.
    #[error("{plugin} reconciles {kind}, which {other} already does; a kind has one plugin")]
    KindTaken { plugin: PluginId, kind: Kind, other: String },
    /// The name is wrong.
    #[error(
        "{plugin} comes from a source labelled {}={label}; the two names have to be the same",
        text::LABEL_PLUGIN
    )]
    OtherName { plugin: PluginId, label: String },
}

impl LoadError {
    /// The reason of the event.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Source { .. } | Self::Settings(_) => "PluginSourceInvalid",
            Self::Plugin { source, .. } => source.reason(),
            Self::Refused { .. } => "PluginNotGranted",
            Self::KindTaken { .. } => "PluginKindTaken",
            Self::OtherName { .. } => "PluginNameMismatch",
        }
    }
}

impl LoadError {
    /// Whether another try of the same bytes can end differently: the machine was short of time or memory.
    pub(super) fn may_pass(&self) -> bool {
        let Self::Plugin { source, .. } = self else { return false };
        matches!(
            &**source,
            host_wasm::LoadError::Compile {
                source: CompileError::Killed
                    | CompileError::WallClock { .. }
                    | CompileError::Unavailable { .. },
                ..
            }
        )
    }
}

impl Source {
    /// From a labelled `ConfigMap`.
    pub(super) fn from_config_map(object: &StoredObject) -> Result<Self, LoadError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ConfigMap {
            #[serde(default)]
            data: BTreeMap<String, String>,
            #[serde(default)]
            binary_data: BTreeMap<String, String>,
        }
        let invalid = |what: String| LoadError::Source { what };
        let name = object.labels.get(text::LABEL_PLUGIN).map(ToString::to_string);
        let name =
            name.ok_or_else(|| invalid(format!("ConfigMap {} has lost its label", object.key)))?;
        let map: ConfigMap = serde_json::from_str(&object.json).map_err(|error| {
            invalid(format!("ConfigMap {} cannot be read: {error}", object.key))
        })?;
        let bytes = match (map.binary_data.get(text::KEY_WASM), map.data.get(text::KEY_WASM)) {
            (Some(encoded), _) => {
                base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|error| {
                    let key = text::KEY_WASM;
                    invalid(format!("{key} of ConfigMap {} is not base64: {error}", object.key))
                })?
            }
            // Bytes that happen to be UTF-8: kubectl puts them here. No component is, but the error should say so.
            (None, Some(text)) => text.as_bytes().to_vec(),
            (None, None) => {
                return Err(invalid(format!(
                    "ConfigMap {} has no key {}; create it with `kubectl create configmap --from-file={}=FILE`",
                    object.key,
                    text::KEY_WASM,
                    text::KEY_WASM
                )));
            }
        };
        Self::new(name, bytes, map.data.get(text::KEY_SETTINGS).map(String::as_str), false)
    }

    /// From a file, for development.
    pub(super) fn from_file(file: &Path, settings: Option<&Path>) -> Result<Self, LoadError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| LoadError::Source {
                what: format!("cannot read {}: {error}", path.display()),
            })
        };
        let bytes = read(file)?;
        let settings = settings.map(read).transpose()?;
        let settings = settings.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let name = file
            .file_stem()
            .map_or_else(|| "plugin".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let grant_as_asked = settings.is_none();
        Self::new(name, bytes, settings.as_deref(), grant_as_asked)
    }

    fn new(
        name: String,
        bytes: Vec<u8>,
        settings: Option<&str>,
        grant_as_asked: bool,
    ) -> Result<Self, LoadError> {
        let text = settings.unwrap_or_default();
        let parsed = match text.trim() {
            "" => PluginSettings::default(),
            text => serde_norway::from_str(text).map_err(LoadError::Settings)?,
        };
        let identity = Digest::of(format!("{} {} {text}", name, Digest::of(&bytes)).as_bytes());
        Ok(Self { name, bytes, settings: parsed, grant_as_asked, identity })
    }

    /// Equal for equal bytes and settings, whatever else changed around them.
    pub(super) fn identity(&self) -> Digest {
        self.identity
    }
}

/// Loads and promotes one version.
pub(super) async fn load(host: &Arc<Host>, source: Source) -> Result<Arc<ActivePlugin>, LoadError> {
    let Source { name, bytes, settings, grant_as_asked, identity: _ } = source;
    let limits = settings.limits.clone();
    let plugin = {
        let (host, source_name) = (Arc::clone(host), name.clone());
        tokio::task::spawn_blocking(move || -> Result<Plugin, host_wasm::LoadError> {
            let verified = CapturedPlugin::new(&source_name, &bytes)?.verify()?;
            let compiled = host.rollout.compiler.compile(verified)?;
            host.rollout.engine.load(compiled, &limits)
        })
        .await
        .map_err(|error| LoadError::Source {
            what: format!("loading {name} has panicked: {error}"),
        })?
        .map_err(|source| LoadError::Plugin { name: name.clone(), source: Box::new(source) })?
    };
    promote(host, name, plugin, settings, grant_as_asked)
}

/// Runs every parent once, as soon as everything the plugin needs can be observed.
async fn sweep(host: Arc<Host>, plugin: Weak<ActivePlugin>) {
    let stores: Vec<_> = match plugin.upgrade() {
        Some(plugin) => {
            plugin.subscriptions.iter().map(|(_, one)| Arc::clone(one.store())).collect()
        }
        None => return,
    };
    for store in stores {
        // As long as it takes, or until another version has taken over.
        while store.wait_synced(Instant::now() + SYNC_LOOK).await.is_err() {
            if plugin.strong_count() == 0 {
                return;
            }
        }
    }
    if let Some(plugin) = plugin.upgrade() {
        host.dispatch.sweep(plugin.lane, plugin.parents());
    }
}

/// Grants, then the one step that makes it active.
fn promote(
    host: &Arc<Host>,
    label: String,
    plugin: Plugin,
    settings: PluginSettings,
    grant_as_asked: bool,
) -> Result<Arc<ActivePlugin>, LoadError> {
    let (id, descriptor) = (plugin.id().clone(), plugin.descriptor().clone());
    let refused = |source| LoadError::Refused { plugin: id.clone(), source };
    let grants = if grant_as_asked {
        Grants::as_asked(&descriptor).map_err(refused)?
    } else {
        Grants::intersect(&descriptor, &settings.grants).map_err(refused)?
    };
    if !grant_as_asked && label != descriptor.name {
        return Err(LoadError::OtherName { plugin: id, label });
    }
    let taken = host.plugins.all().into_iter().find(|other| {
        other.plugin.descriptor().parent == descriptor.parent && other.name() != descriptor.name
    });
    if let Some(other) = taken {
        return Err(LoadError::KindTaken {
            plugin: id,
            kind: descriptor.parent,
            other: other.label(),
        });
    }
    let subscriptions = grants
        .reads()
        .flat_map(|kind| host.rollout.scopes.iter().map(move |scope| (kind, scope)))
        .map(|(kind, scope)| (scope.clone(), host.informers.subscribe(kind.clone(), scope.clone())))
        .collect();
    let lane = host.rollout.lane(&descriptor.name);
    let concurrency = settings.concurrency.unwrap_or(CONCURRENCY_DEFAULT);
    let calls = Arc::new(Semaphore::new(host.cores.saturating_sub(1).max(1)));
    let active = Arc::new(ActivePlugin { lane, plugin, grants, settings, calls, subscriptions });
    // In this order: whatever changes from here on is seen by the new version, and the sweep covers the rest.
    let replaced = host.plugins.promote(Arc::clone(&active));
    host.dispatch.open_lane(lane, &descriptor.parent, concurrency.into());
    drop(replaced);
    tokio::spawn(sweep(Arc::clone(host), Arc::downgrade(&active)));
    Ok(active)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(json: &str) -> StoredObject {
        StoredObject::parse(&Kind::new("v1", "ConfigMap"), json).unwrap()
    }

    #[test]
    fn says_what_a_config_map_lacks() {
        let object = config_map(
            r#"{"metadata":{"name":"p","namespace":"n","labels":{"operator-host.dev/plugin":"demo"}},"data":{}}"#,
        );
        let error = Source::from_config_map(&object).unwrap_err().to_string();
        assert!(error.contains("has no key plugin.wasm"), "{error}");
    }

    #[test]
    fn refuses_settings_with_an_unknown_key() {
        let error = Source::new("demo".into(), vec![], Some("grantz: {}"), false).unwrap_err();
        assert!(crate::error::chain(&error).contains("grantz"), "{}", crate::error::chain(&error));
    }

    #[test]
    fn identity_is_bytes_and_settings_only() {
        let one = config_map(
            r#"{"metadata":{"name":"p","labels":{"operator-host.dev/plugin":"demo"},"resourceVersion":"1"},"binaryData":{"plugin.wasm":"AGFzbQ=="}}"#,
        );
        let annotated = config_map(
            r#"{"metadata":{"name":"p","labels":{"operator-host.dev/plugin":"demo"},"resourceVersion":"2","annotations":{"a":"b"}},"binaryData":{"plugin.wasm":"AGFzbQ=="}}"#,
        );
        let identity = |object| Source::from_config_map(object).unwrap().identity();
        assert_eq!(identity(&one), identity(&annotated));
    }
}
