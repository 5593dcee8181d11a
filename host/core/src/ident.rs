//! Names of things: kinds, object keys, digests, plugins.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A kind of Kubernetes object: `apps/v1` `StatefulSet`.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kind {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// The kind's name, `CamelCase`, singular.
    pub kind: String,
}

impl Kind {
    /// A kind from its two parts.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version within the group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version, self.kind)
    }
}

/// Namespace and name. The namespace is empty for a cluster-scoped object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectKey {
    /// Empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One object, named: kind and key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectId {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: ObjectKey,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.key)
    }
}

/// A SHA-256: the identity of a plugin's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// 64 lower-case hexadecimal characters.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// The first 12 hexadecimal characters: enough for people.
    pub fn short(&self) -> String {
        hex(&self.head())
    }

    /// The first 6 bytes.
    pub(crate) fn head(&self) -> [u8; 6] {
        self.0.first_chunk().copied().unwrap_or_default()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.short())
    }
}

/// Lower-case hexadecimal, two characters a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for nibble in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(nibble.into(), 16));
        }
        text
    })
}

/// A plugin at one digest: `redis@sha256:0123456789ab`. Every fault of a plugin carries it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginId {
    /// The descriptor's name, or the source's name while the descriptor is not known yet.
    pub name: Arc<str>,
    /// What its bytes hash to.
    pub digest: Digest,
}

impl fmt::Display for PluginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@sha256:{}", self.name, self.digest.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_splits_group_and_version() {
        let kind = Kind::new("apps/v1", "StatefulSet");
        assert_eq!((kind.group(), kind.version()), ("apps", "v1"));
        let core = Kind::new("v1", "Pod");
        assert_eq!((core.group(), core.version()), ("", "v1"));
    }

    #[test]
    fn digest_prints_the_known_value_of_the_empty_input() {
        let digest = Digest::of(b"");
        assert!(digest.to_string().starts_with("sha256:e3b0c44298fc1c149afb"));
        assert_eq!(digest.short(), "e3b0c44298fc");
    }
}
