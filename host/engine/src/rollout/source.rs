//! Where a revision comes from: bytes and the settings that come with them, captured once.

use std::path::Path;

use host_core::grants::PluginSettings;
use host_core::object::StoredObject;
use host_core::plugin::{PluginSpec, Revision};
use host_core::text;
use host_wasm::CapturedPlugin;

use super::config_map::{ConfigMap, component, invalid};
use super::load_error::LoadError;
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
