//! `metadata` as far as plugins need it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Time;

/// `metadata` of an object. Use it in your own types: `#[derive(Deserialize)] struct Pod { metadata: ObjectMeta }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Unique within its kind and namespace.
    pub name: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// Unique in time: a recreated object has another.
    pub uid: String,
    /// Raised by the API server with each change of the spec; 0 for kinds without one.
    pub generation: i64,
    /// Opaque; changes with each write.
    pub resource_version: String,
    /// Sorted by key.
    pub labels: BTreeMap<String, String>,
    /// Sorted by key.
    pub annotations: BTreeMap<String, String>,
    /// When it was created.
    pub creation_timestamp: Option<Time>,
    /// When its deletion was requested. None: it is not being deleted.
    pub deletion_timestamp: Option<Time>,
    /// Whose it is.
    pub owner_references: Vec<OwnerReference>,
    /// What holds up its deletion.
    pub finalizers: Vec<String>,
}

impl ObjectMeta {
    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Whether it is being deleted.
    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The uid of the owner that is the controller.
    pub fn controller(&self) -> Option<&str> {
        self.owner_references.iter().find(|owner| owner.controller).map(|owner| owner.uid.as_str())
    }
}

/// One owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Of which group and version.
    pub api_version: String,
    /// Of which kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it is the one that manages the object.
    pub controller: bool,
}
