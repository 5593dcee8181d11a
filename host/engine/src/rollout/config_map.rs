//! A component in ConfigMaps: whole in one, or in parts.

use std::collections::BTreeMap;

use base64::Engine as _;
use host_core::ident::ObjectKey;
use serde::Deserialize;

use super::load_error::LoadError;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigMap {
    #[serde(default)]
    pub(super) data: BTreeMap<String, String>,
    #[serde(default)]
    binary_data: BTreeMap<String, String>,
}

pub(super) fn invalid(what: String) -> LoadError {
    LoadError::Source { what }
}

/// The component of a ConfigMap, or of several that hold a part each, `plugin.wasm.1-of-3`.
pub(super) fn component(maps: &[(ObjectKey, ConfigMap)], key: &str) -> Result<Vec<u8>, LoadError> {
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

    pub(super) fn has(&self, key: &str) -> bool {
        self.keys().any(|found| found == key)
    }

    pub(super) fn bytes(&self, key: &str, of: &ObjectKey) -> Result<Vec<u8>, LoadError> {
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
