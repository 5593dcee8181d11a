//! What is wanted of a plugin: its `Plugin` object, the ConfigMap with its bytes, and the settings that come with them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use host_core::grants::PluginSettings;
use host_core::ident::ObjectKey;
use host_core::object::StoredObject;
use host_core::plugin::{PluginSpec, PluginStatus, Revision};
use host_core::text;
use host_wasm::CapturedPlugin;
use serde::Deserialize;

use super::load::LoadError;
use crate::registry::Artifact;
use crate::signature::Signature;

/// Bytes and settings, captured once.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The plugin's name as its source states it; the descriptor has to agree.
    pub(super) name: String,
    pub(super) captured: CapturedPlugin,
    pub(super) signature: Option<Signature>,
    pub(super) settings: PluginSettings,
    /// Development: grant what is asked.
    pub(super) grant_as_asked: bool,
    pub(super) revision: Revision,
}

/// A `Plugin` object, as far as the host needs it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PluginObject {
    /// What the user wants.
    #[serde(default)]
    pub(super) spec: PluginSpec,
    /// What was told last.
    #[serde(default)]
    pub(super) status: PluginStatus,
}

impl PluginObject {
    /// Reads a cached `Plugin`.
    pub(super) fn read(object: &StoredObject) -> Result<Self, LoadError> {
        serde_json::from_str(&object.json).map_err(|error| LoadError::Source {
            what: format!("Plugin {} cannot be read: {error}", object.key),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(default)]
    binary_data: BTreeMap<String, String>,
}

fn invalid(what: String) -> LoadError {
    LoadError::Source { what }
}

/// The component of a ConfigMap, or of several that hold a part each, `plugin.wasm.1-of-3`.
fn component(maps: &[(ObjectKey, ConfigMap)], key: &str) -> Result<Vec<u8>, LoadError> {
    let whole = maps.iter().filter(|(_, map)| map.has(key));
    match whole.collect::<Vec<_>>().as_slice() {
        [(of, map)] => return map.bytes(key, of),
        [] => {}
        [(one, _), (other, _), ..] => {
            return Err(invalid(format!(
                "ConfigMaps {one} and {other} both have a key {key}: take the label from one, or name the other in the Plugin's spec.source.configMap"
            )));
        }
    }
    let mut parts = BTreeMap::new();
    let mut count = None;
    for (of, map) in maps {
        for name in map.keys() {
            let Some((number, all)) = part(name, key) else { continue };
            if *count.get_or_insert(all) != all {
                return Err(invalid(format!(
                    "ConfigMap {of} has {name}, others have parts of another number: they are of two versions"
                )));
            }
            parts.insert(number, map.bytes(name, of)?);
        }
    }
    let names = || maps.iter().map(|(of, _)| of.to_string()).collect::<Vec<_>>().join(", ");
    let Some(count) = count else {
        return Err(invalid(format!(
            "ConfigMap {} has no key {key}; create it with `kubectl create configmap --from-file={key}=FILE`",
            names()
        )));
    };
    if let Some(missing) = (1..=count).find(|number| !parts.contains_key(number)) {
        return Err(invalid(format!(
            "{key}.{missing}-of-{count} is missing from ConfigMaps {}: `operator-host plugin package` makes all of them",
            names()
        )));
    }
    Ok(parts.into_values().flatten().collect())
}

/// Parts of one component. 8 MiB in pieces of 1 MiB, and room for smaller pieces.
const PARTS_MAX: u32 = 64;

/// Number and count of a part's key.
fn part(name: &str, key: &str) -> Option<(u32, u32)> {
    let (number, count) = name.strip_prefix(key)?.strip_prefix('.')?.split_once("-of-")?;
    let (number, count) = (number.parse().ok()?, count.parse().ok()?);
    (1..=count).contains(&number).then_some((number, count)).filter(|_| count <= PARTS_MAX)
}

impl ConfigMap {
    fn keys(&self) -> impl Iterator<Item = &str> {
        self.binary_data.keys().chain(self.data.keys()).map(String::as_str)
    }

    fn has(&self, key: &str) -> bool {
        self.keys().any(|found| found == key)
    }

    fn bytes(&self, key: &str, of: &ObjectKey) -> Result<Vec<u8>, LoadError> {
        match (self.binary_data.get(key), self.data.get(key)) {
            (Some(encoded), _) => {
                base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|error| {
                    invalid(format!("{key} of ConfigMap {of} is not base64: {error}"))
                })
            }
            // Bytes that happen to be UTF-8: kubectl puts them here. No component is, but the error should say so.
            (None, text) => Ok(text.map(|text| text.as_bytes().to_vec()).unwrap_or_default()),
        }
    }
}

impl Source {
    /// From ConfigMaps, as a Plugin's spec wants it.
    pub(super) fn from_config_maps(
        name: &str,
        objects: &[StoredObject],
        spec: &PluginSpec,
    ) -> Result<Self, LoadError> {
        let read = |object: &StoredObject| {
            let map: ConfigMap = serde_json::from_str(&object.json).map_err(|error| {
                invalid(format!("ConfigMap {} cannot be read: {error}", object.key))
            })?;
            Ok((object.key.clone(), map))
        };
        let maps = objects.iter().map(read).collect::<Result<Vec<_>, LoadError>>()?;
        let key = spec.source.config_map.as_ref().map_or(text::KEY_WASM, |source| &source.key);
        let bytes = component(&maps, key)?;
        let text = maps.iter().find_map(|(_, map)| map.data.get(text::KEY_SETTINGS));
        let settings = settings(text.map(String::as_str))?;
        let signature = maps.iter().find(|(_, map)| map.has(text::KEY_SIGNATURE));
        let signature = signature.map(|(of, map)| {
            let place = format!("{} of ConfigMap {of}", text::KEY_SIGNATURE);
            signed(&map.bytes(text::KEY_SIGNATURE, of)?, &place)
        });
        let source = Self::new(name.to_owned(), &bytes, spec.settings(settings), false)?;
        Self { signature: signature.transpose()?, ..source }.pinned(spec)
    }

    /// From a revision that was kept: with the settings it had, whatever the Plugin says now.
    pub(super) fn from_revision(name: &str, objects: &[StoredObject]) -> Result<Self, LoadError> {
        Self::from_config_maps(name, objects, &PluginSpec::default())
    }

    /// From a registry. All settings are the Plugin's: what comes from elsewhere grants itself nothing.
    pub(super) fn from_artifact(
        name: &str,
        artifact: Artifact,
        spec: &PluginSpec,
    ) -> Result<Self, LoadError> {
        let settings = spec.settings(PluginSettings::default());
        let source = Self::new(name.to_owned(), &artifact.bytes, settings, false)?;
        Self { signature: artifact.signature, ..source }.pinned(spec)
    }

    /// The same, if it has the digest that a Plugin pins.
    fn pinned(self, spec: &PluginSpec) -> Result<Self, LoadError> {
        match &spec.digest {
            Some(pinned) if *pinned != self.digest() => {
                Err(LoadError::OtherDigest { found: self.digest(), pinned: pinned.clone() })
            }
            Some(_) | None => Ok(self),
        }
    }

    /// From a file, for development.
    pub(super) fn from_file(file: &Path, settings_file: Option<&Path>) -> Result<Self, LoadError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| invalid(format!("cannot read {}: {error}", path.display())))
        };
        let bytes = read(file)?;
        let text = settings_file.map(read).transpose()?;
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let name = file
            .file_stem()
            .map_or_else(|| "plugin".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let mut beside = file.as_os_str().to_owned();
        beside.push(".sig");
        let beside = Path::new(&beside);
        let signature =
            beside.exists().then(|| signed(&read(beside)?, &beside.display().to_string()));
        let source = Self::new(name, &bytes, settings(text.as_deref())?, settings_file.is_none())?;
        Ok(Self { signature: signature.transpose()?, ..source })
    }

    fn new(
        name: String,
        bytes: &[u8],
        settings: PluginSettings,
        grant_as_asked: bool,
    ) -> Result<Self, LoadError> {
        let captured = CapturedPlugin::new(&name, bytes)
            .map_err(|source| LoadError::Plugin { name: name.clone(), source: Box::new(source) })?;
        let revision = Revision::of(captured.id().digest, &settings);
        Ok(Self { name, captured, signature: None, settings, grant_as_asked, revision })
    }

    /// `sha256:…` of the component.
    pub(super) fn digest(&self) -> String {
        self.captured.id().digest.to_string()
    }
}

fn signed(bytes: &[u8], place: &str) -> Result<Signature, LoadError> {
    Signature::read(bytes).map_err(|why| invalid(format!("{place}: {why}")))
}

fn settings(text: Option<&str>) -> Result<PluginSettings, LoadError> {
    match text.unwrap_or_default().trim() {
        "" => Ok(PluginSettings::default()),
        text => serde_norway::from_str(text).map_err(LoadError::Settings),
    }
}

/// What there is of a plugin at one moment, before anybody has looked into its source.
#[derive(Clone, Debug)]
pub(super) struct Glance {
    /// Whether this host acts. A standby follows.
    pub(super) leading: bool,
    /// Its `Plugin` object, if there is one.
    pub(super) object: Option<Arc<StoredObject>>,
    /// Why the object says nothing.
    pub(super) unreadable: Option<Arc<LoadError>>,
    /// What the object says.
    pub(super) spec: PluginSpec,
    /// What the host has told before.
    pub(super) told: PluginStatus,
    /// Where its bytes are: names and versions, not the bytes.
    pub(super) config_maps: Vec<Arc<StoredObject>>,
    /// What a registry gave last.
    pub(super) pulled: Option<Result<Artifact, Arc<LoadError>>>,
}

/// What is wanted apart from the source.
#[derive(Clone, Debug, PartialEq)]
struct Terms {
    leading: bool,
    spec: PluginSpec,
    uid: Option<Box<str>>,
    /// What a standby follows; the leader has written it itself.
    followed: Option<Revision>,
}

/// What tells whether it is worth looking again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outline {
    terms: Terms,
    unreadable: bool,
    config_maps: Vec<(Box<str>, u64)>,
    pulled: Option<Result<String, String>>,
}

impl Glance {
    /// What tells this from another glance.
    pub(super) fn outline(&self) -> Outline {
        let pulled = self.pulled.as_ref().map(|pulled| match pulled {
            Ok(artifact) => Ok(artifact.manifest.clone()),
            Err(error) => Err(crate::error::chain(&**error)),
        });
        let version = |object: &Arc<StoredObject>| (object.uid.clone(), object.resource_version);
        Outline {
            terms: self.terms(),
            unreadable: self.unreadable.is_some(),
            config_maps: self.config_maps.iter().map(version).collect(),
            pulled,
        }
    }

    fn terms(&self) -> Terms {
        let followed = self.told.active.as_ref().map(|active| active.revision);
        Terms {
            leading: self.leading,
            spec: self.spec.clone(),
            uid: self.object.as_ref().map(|object| object.uid.clone()),
            followed: followed.filter(|_| !self.leading),
        }
    }
}

/// What is wanted of a plugin at one moment.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) glance: Glance,
    /// The newest revision, or why there is none. None: the source is gone.
    pub(super) source: Option<Result<Arc<Source>, Arc<LoadError>>>,
}

impl std::ops::Deref for Wanted {
    type Target = Glance;

    fn deref(&self) -> &Glance {
        &self.glance
    }
}

/// What tells whether another look has found something new; it outlives the bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fingerprint {
    terms: Terms,
    source: Option<Result<(Revision, Option<Signature>), String>>,
}

impl Wanted {
    /// Whether a registry has not answered yet.
    pub(super) fn is_pulling(&self) -> bool {
        let failed = self.source.as_ref().and_then(|source| source.as_ref().err());
        failed.is_some_and(|error| matches!(**error, LoadError::Pulling { .. }))
    }

    /// What tells this from another look.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            terms: self.terms(),
            source: self.source.as_ref().map(|source| match source {
                Ok(source) => Ok((source.revision, source.signature.clone())),
                Err(error) => Err(crate::error::chain(&**error)),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use host_core::ident::Kind;

    use super::*;

    fn config_map(json: &str) -> StoredObject {
        StoredObject::parse(&Kind::new("v1", "ConfigMap"), json).unwrap()
    }

    fn source(json: &str, spec: &PluginSpec) -> Result<Source, String> {
        sources(&[json], spec)
    }

    fn sources(json: &[&str], spec: &PluginSpec) -> Result<Source, String> {
        let maps: Vec<_> = json.iter().map(|json| config_map(json)).collect();
        Source::from_config_maps("demo", &maps, spec).map_err(|error| crate::error::chain(&error))
    }

    #[test]
    fn a_component_may_be_split_over_several_config_maps() {
        // "\0asm" in two parts.
        let one = r#"{"metadata":{"name":"p1"},"binaryData":{"plugin.wasm.1-of-2":"AGE="}}"#;
        let two = r#"{"metadata":{"name":"p2"},"binaryData":{"plugin.wasm.2-of-2":"c20="},"data":{"plugin.yaml":"concurrency: 7"}}"#;
        let other = r#"{"metadata":{"name":"p3"},"binaryData":{"plugin.wasm.2-of-3":"c20="}}"#;
        let whole = r#"{"metadata":{"name":"p"},"binaryData":{"plugin.wasm":"AGFzbQ=="}}"#;
        let spec = PluginSpec::default();
        let split = sources(&[two, one], &spec).unwrap();
        assert_eq!(split.digest(), source(whole, &spec).unwrap().digest());
        assert_eq!(split.settings.concurrency, Some(7));
        let missing = source(one, &spec).unwrap_err();
        assert!(missing.contains("plugin.wasm.2-of-2 is missing"), "{missing}");
        assert!(sources(&[one, other], &spec).unwrap_err().contains("two versions"));
        assert!(sources(&[whole, whole], &spec).unwrap_err().contains("both have a key"));
    }

    #[test]
    fn says_what_a_config_map_lacks() {
        let spec = PluginSpec::default();
        let error = source(r#"{"metadata":{"name":"p","namespace":"n"},"data":{}}"#, &spec);
        assert!(error.unwrap_err().contains("has no key plugin.wasm"));
        let unknown = r#"{"metadata":{"name":"p"},"binaryData":{"plugin.wasm":"AGFzbQ=="},"data":{"plugin.yaml":"grantz: {}"}}"#;
        assert!(source(unknown, &spec).unwrap_err().contains("grantz"));
    }

    #[test]
    fn a_revision_is_of_bytes_and_settings_only() {
        let one = r#"{"metadata":{"name":"p","resourceVersion":"1"},"binaryData":{"plugin.wasm":"AGFzbQ=="}}"#;
        let annotated = r#"{"metadata":{"name":"p","resourceVersion":"2","annotations":{"a":"b"}},"binaryData":{"plugin.wasm":"AGFzbQ=="}}"#;
        let plain = PluginSpec::default();
        let set = PluginSpec { concurrency: Some(9), ..PluginSpec::default() };
        let revision = |json, spec| source(json, spec).unwrap().revision;
        assert_eq!(revision(one, &plain), revision(annotated, &plain));
        assert_ne!(revision(one, &plain), revision(one, &set));
    }

    #[test]
    fn other_bytes_than_the_pinned_ones_are_refused() {
        let one = r#"{"metadata":{"name":"p"},"binaryData":{"plugin.wasm":"AGFzbQ=="}}"#;
        let pinned = format!("sha256:{}", "0".repeat(64));
        let spec = PluginSpec { digest: Some(pinned), ..PluginSpec::default() };
        assert!(source(one, &spec).unwrap_err().contains("spec.digest"));
    }
}
