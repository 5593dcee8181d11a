//! The CRD in `crds/` is the one the types say. `UPDATE_CRDS=1 cargo test -p redis-plugin --test crd` writes it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and its tools are part of it"
)]

use std::path::PathBuf;

use redis_plugin::api::RedisCluster;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// A schema as Kubernetes wants it: structural, without references, unsigned formats, null types or titles.
fn structural(value: &mut Value, in_status: bool) {
    match value {
        Value::Object(map) => {
            for key in ["$schema", "title"] {
                if map.get(key).is_some_and(Value::is_string) {
                    map.remove(key);
                }
            }
            if map
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(|format| format.starts_with("uint"))
            {
                map.insert("format".to_owned(), json!("int32"));
            }
            if in_status {
                map.remove("default");
            }
            simplify_options(map);
            simplify_enums(map);
            for (key, inner) in map.iter_mut() {
                structural(inner, in_status || key == "status");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| structural(item, in_status)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `Option<T>`: an optional field, not one that may be null.
fn simplify_options(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = map.get_mut("anyOf") {
        let before = choices.len();
        choices.retain(|choice| choice != &json!({"type": "null"}));
        if choices.len() < before && choices.len() == 1 {
            let Some(Value::Object(only)) = choices.pop() else {
                return;
            };
            map.remove("anyOf");
            for (key, value) in only {
                map.entry(key).or_insert(value);
            }
        }
    }
}

/// `oneOf` of constants: an enum. The meaning of each value goes into the description.
fn simplify_enums(map: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = map.get("oneOf") else {
        return;
    };
    let constant = |choice: &Value| {
        Some((choice.get("const")?.clone(), choice.get("description")?.as_str()?.to_owned()))
    };
    let Some(constants) = choices.iter().map(constant).collect::<Option<Vec<_>>>() else {
        return;
    };
    let mut text = map.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (value, description) in &constants {
        text.push('\n');
        text.push_str(value.as_str().unwrap_or_default());
        text.push_str(": ");
        text.push_str(description);
    }
    map.remove("oneOf");
    map.insert("type".to_owned(), json!("string"));
    map.insert("enum".to_owned(), constants.into_iter().map(|(value, _)| value).collect());
    map.insert("description".to_owned(), Value::String(text));
}

fn schema() -> Value {
    let mut schema = SchemaSettings::draft07()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<RedisCluster>()
        .to_value();
    structural(&mut schema, false);
    schema
}

fn crd() -> Value {
    let column = |name: &str, kind: &str, path: &str, description: &str| json!({"name": name, "type": kind, "jsonPath": path, "description": description});
    // Priority 1: only in the wide output.
    let master = json!({
        "name": "Master", "type": "string", "jsonPath": ".status.master",
        "description": "The pod last observed as the master", "priority": 1,
    });
    let columns = json!([
        column(
            "Cluster",
            "boolean",
            ".spec.clusterMode",
            "Whether keys are sharded over several masters"
        ),
        column("Phase", "string", ".status.phase", "The state in one word"),
        column("Ready", "integer", ".status.readyReplicas", "Pods that serve"),
        column("Replicas", "integer", ".spec.replicas", "Pods there should be"),
        column(
            "Version",
            "string",
            ".status.version",
            "The lowest version of Redis among the pods"
        ),
        column("Age", "date", ".metadata.creationTimestamp", "Time since it was created"),
        master,
    ]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "redisclusters.redis.operator-host.dev"},
        "spec": {
            "group": "redis.operator-host.dev",
            "names": {
                "kind": "RedisCluster",
                "listKind": "RedisClusterList",
                "plural": "redisclusters",
                "singular": "rediscluster",
                "shortNames": ["rdc"],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema()},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "additionalPrinterColumns": columns,
            }],
        },
    })
}

#[test]
fn the_crd_is_the_one_the_types_say() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../crds/redis.operator-host.dev_redisclusters.yaml");
    let text = format!(
        "# Generated from plugins/redis/src/api.rs: UPDATE_CRDS=1 cargo test -p redis-plugin --test crd\n{}",
        serde_norway::to_string(&crd()).unwrap()
    );
    if std::env::var_os("UPDATE_CRDS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "crds/ differs from the types; run UPDATE_CRDS=1 cargo test -p redis-plugin --test crd"
    );
}

#[test]
fn the_schema_is_structural() {
    fn check(path: &str, value: &Value) {
        let Some(map) = value.as_object() else { return };
        for forbidden in ["$ref", "oneOf", "definitions", "const"] {
            assert!(!map.contains_key(forbidden), "{path} has {forbidden}");
        }
        assert!(map.get("type").is_none_or(Value::is_string), "{path} has several types");
        if let Some(properties) = map.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                check(&format!("{path}.{name}"), property);
            }
        }
        if let Some(items) = map.get("items") {
            check(&format!("{path}[]"), items);
        }
    }
    check("", &schema());
}
