//! What is wanted of a plugin at one moment: its `Plugin` object, its source, and what tells that something is new.

use std::sync::Arc;

use host_core::object::StoredObject;
use host_core::plugin::{PluginSpec, PluginStatus, Revision};
use serde::Deserialize;

use super::load_error::LoadError;
use super::source::Source;
use crate::error::chain;
use crate::registry::Artifact;
use crate::signature::Signature;

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
            Err(error) => Err(chain(&**error)),
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

/// A revision that is wanted, or why there is none.
pub(super) type Wish = Result<Arc<Source>, Arc<LoadError>>;

/// What is wanted of a plugin at one moment.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) glance: Glance,
    /// The newest revision, or why there is none. None: the source is gone.
    pub(super) source: Option<Wish>,
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
                Err(error) => Err(chain(&**error)),
            }),
        }
    }
}
