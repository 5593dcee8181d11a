//! Custom resource definitions from Rust types, so that a plugin and its CRD cannot drift apart.
//!
//! For tests and tools, behind the feature `crd`: a component has no use for it.
//! Derive [`schemars::JsonSchema`] on the spec and the status. Rules in CEL are written as
//! `#[schemars(extend("x-kubernetes-validations" = [{"rule": "self.min <= self.max"}]))]`.
//!
//! **Invariant:** what comes out is accepted by the API server as a structural schema, or it is an error that
//! names the field. Nothing is dropped that would change what is valid.

mod structural;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::Condition;
pub use structural::NotStructural;

/// Everything about a kind that its Rust types do not say. Namespaced, one version, with a status.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrdInfo<'a> {
    /// `redis.operator-host.dev`.
    pub group: &'a str,
    /// `v1alpha1`.
    pub version: &'a str,
    /// `RedisCluster`.
    pub kind: &'a str,
    /// `redisclusters`.
    pub plural: &'a str,
    /// For kubectl: `rc`.
    pub short_names: &'a [&'a str],
    /// For kubectl: `all`.
    pub categories: &'a [&'a str],
    /// What the kind is, for `kubectl explain`.
    pub description: &'a str,
    /// What `kubectl get` shows after the name.
    pub columns: &'a [Column<'a>],
    /// Makes `kubectl scale` and autoscalers work.
    pub scale: Option<Scale<'a>>,
    /// Rules over the whole object; of `metadata`, only `name` and `generateName` can be used.
    pub rules: &'a [Rule<'a>],
}

/// One column of `kubectl get`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Column<'a> {
    /// Its heading.
    pub name: &'a str,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub type_: &'a str,
    /// Where its value is: `.status.phase`.
    pub json_path: &'a str,
    /// Above 0: only shown with `-o wide`.
    pub priority: u8,
}

/// Where the scale subresource finds its values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scale<'a> {
    /// `.spec.replicas`.
    pub spec_replicas_path: &'a str,
    /// `.status.replicas`.
    pub status_replicas_path: &'a str,
    /// `.status.selector`, a label selector as text; autoscalers need it.
    pub label_selector_path: Option<&'a str>,
}

/// One rule in CEL.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rule<'a> {
    /// What must hold: `size(self.metadata.name) <= 40`.
    pub rule: &'a str,
    /// What to tell the user when it does not.
    pub message: &'a str,
}

/// The definition of a kind.
///
/// The status schema gets `observedGeneration` and `conditions`, which the host writes, and loses its top-level
/// `required`: the host may have to write a condition before the plugin has ever decided.
pub fn custom_resource_definition<Spec: JsonSchema, Status: JsonSchema>(
    info: &CrdInfo<'_>,
) -> Result<Value, NotStructural> {
    let mut schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema_of::<Spec>("spec")?,
            "status": status_schema::<Status>()?,
        },
    });
    if !info.description.is_empty() {
        put(&mut schema, "description", json!(info.description));
    }
    if !info.rules.is_empty() {
        let rules =
            info.rules.iter().map(|rule| json!({"rule": rule.rule, "message": rule.message}));
        put(&mut schema, "x-kubernetes-validations", rules.collect());
    }
    let mut subresources = json!({"status": {}});
    if let Some(scale) = &info.scale {
        put(&mut subresources, "scale", scale_of(scale));
    }
    let mut names = json!({
        "kind": info.kind,
        "listKind": format!("{}List", info.kind),
        "plural": info.plural,
        "singular": info.kind.to_lowercase(),
    });
    if !info.short_names.is_empty() {
        put(&mut names, "shortNames", json!(info.short_names));
    }
    if !info.categories.is_empty() {
        put(&mut names, "categories", json!(info.categories));
    }
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", info.plural, info.group)},
        "spec": {
            "group": info.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [{
                "name": info.version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": subresources,
                "additionalPrinterColumns": info.columns.iter().map(column_of).collect::<Value>(),
            }],
        },
    }))
}

/// YAML with sorted keys: equal definitions give equal bytes.
pub fn to_yaml(definition: &Value) -> Result<String, serde_norway::Error> {
    let mut sorted = definition.clone();
    sorted.sort_all_objects();
    serde_norway::to_string(&sorted)
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = object {
        map.insert(key.to_owned(), value);
    }
}

fn scale_of(scale: &Scale<'_>) -> Value {
    let mut value = json!({
        "specReplicasPath": scale.spec_replicas_path,
        "statusReplicasPath": scale.status_replicas_path,
    });
    if let Some(selector) = scale.label_selector_path {
        put(&mut value, "labelSelectorPath", json!(selector));
    }
    value
}

fn column_of(column: &Column<'_>) -> Value {
    let mut value =
        json!({"name": column.name, "type": column.type_, "jsonPath": column.json_path});
    if column.priority > 0 {
        put(&mut value, "priority", json!(column.priority));
    }
    value
}

fn schema_of<T: JsonSchema>(path: &str) -> Result<Value, NotStructural> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    structural::structural(path, settings.into_generator().into_root_schema_for::<T>().to_value())
}

fn status_schema<Status: JsonSchema>() -> Result<Value, NotStructural> {
    let mut schema = schema_of::<Status>("status")?;
    let conditions = json!({
        "type": "array",
        "description": "What holds for the object. `Reconciled` is written by the operator host.",
        "items": schema_of::<Condition>("status.conditions[]")?,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    });
    let generation = json!({
        "type": "integer",
        "format": "int64",
        "description": "The generation of the object that the status was computed from.",
    });
    if let Value::Object(map) = &mut schema {
        map.remove("required");
        let properties = map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        put(properties, "conditions", conditions);
        put(properties, "observedGeneration", generation);
    }
    Ok(schema)
}

#[cfg(test)]
mod tests;
