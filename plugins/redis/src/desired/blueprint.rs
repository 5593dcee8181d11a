//! What the objects are built from, and what they have in common.

use serde_json::{Value, json};

use crate::api::Spec;
use crate::names;

/// What is built from.
#[derive(Clone, Copy, Debug)]
pub struct Blueprint<'a> {
    /// The RedisCluster's name.
    pub cluster: &'a str,
    /// The accepted spec.
    pub spec: &'a Spec,
    /// Pods the StatefulSet should ask for now; during a change this is not yet what the spec says.
    pub replicas: u32,
}

/// Name and labels of an object.
pub(super) fn metadata(blueprint: &Blueprint<'_>, name: &str) -> Value {
    json!({"name": name, "labels": names::labels(blueprint.cluster)})
}
