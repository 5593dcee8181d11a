use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::*;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self.replicas > 0", "message": "needs a replica"}]))]
#[expect(dead_code, reason = "only its schema is used")]
struct Spec {
    /// How many.
    #[schemars(range(min = 1, max = 500))]
    replicas: u32,
    #[serde(default = "standard")]
    mode: Mode,
    plain: Option<Plain>,
    limit: Option<u64>,
    small: Option<i8>,
    #[schemars(length(max = 8))]
    labels: BTreeMap<String, String>,
    anything: serde_json::Value,
    free: BTreeMap<String, serde_json::Value>,
    nested: Option<Nested>,
    list: Vec<Nested>,
    ratio: f64,
}

/// How it runs.
#[derive(Deserialize, serde::Serialize, JsonSchema)]
enum Mode {
    /// On its own.
    Standard,
    /// With others.
    Shared,
}

fn standard() -> Mode {
    Mode::Standard
}

#[derive(Deserialize, JsonSchema)]
enum Plain {
    A,
    B,
}

/// Inside.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Nested {
    size: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
}

const INFO: CrdInfo<'static> = CrdInfo {
    group: "example.com",
    version: "v1",
    kind: "Demo",
    plural: "demos",
    short_names: &["dm"],
    categories: &["all"],
    description: "A demonstration.",
    columns: &[Column { name: "Phase", type_: "string", json_path: ".status.phase", priority: 0 }],
    scale: Some(Scale {
        spec_replicas_path: ".spec.replicas",
        status_replicas_path: ".status.replicas",
        label_selector_path: None,
    }),
    rules: &[Rule { rule: "size(self.metadata.name) <= 40", message: "the name is too long" }],
};

fn schema() -> Value {
    let definition = custom_resource_definition::<Spec, Status>(&INFO).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Walks every node and checks what the API server checks.
fn assert_structural(path: &str, node: &Value) {
    let map = node.as_object().unwrap_or_else(|| panic!("{path} is not an object"));
    let typed = map.get("type").is_some_and(Value::is_string)
        || map.contains_key("x-kubernetes-int-or-string")
        || map.contains_key("x-kubernetes-preserve-unknown-fields");
    assert!(typed, "{path} has no type: {node}");
    for refused in [
        "$ref",
        "$schema",
        "title",
        "$defs",
        "definitions",
        "oneOf",
        "anyOf",
        "allOf",
        "const",
        "nullable",
    ] {
        assert!(!map.contains_key(refused), "{path} has {refused}");
    }
    assert!(
        !(map.contains_key("properties") && map.contains_key("additionalProperties")),
        "{path} has both"
    );
    if let Some(format) = map.get("format").and_then(Value::as_str) {
        assert!(
            ["int32", "int64", "double", "float", "date-time"].contains(&format),
            "{path}: {format}"
        );
    }
    for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        assert_structural(&format!("{path}.{name}"), property);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get(key) {
            assert_structural(&format!("{path}.{key}"), inner);
        }
    }
}

#[test]
fn every_node_is_structural() {
    assert_structural("", &schema());
}

#[test]
fn keeps_what_decides_validity() {
    let spec = &schema()["properties"]["spec"];
    assert_eq!(spec["x-kubernetes-validations"][0]["message"], "needs a replica");
    let replicas = &spec["properties"]["replicas"];
    assert_eq!(
        *replicas,
        json!({"type": "integer", "format": "int64", "minimum": 1, "maximum": 500, "description": "How many."})
    );
    assert_eq!(
        spec["properties"]["limit"],
        json!({"type": "integer", "format": "int64", "minimum": 0})
    );
    assert_eq!(spec["properties"]["labels"]["additionalProperties"], json!({"type": "string"}));
    assert_eq!(
        spec["properties"]["labels"]["maxProperties"],
        Value::Null,
        "length() is not for maps"
    );
    let required: Vec<&str> =
        spec["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(required, ["replicas", "labels", "anything", "free", "list", "ratio"]);
}

#[test]
fn enums_of_names_become_one_enum_with_their_texts() {
    let properties = schema()["properties"]["spec"]["properties"].clone();
    assert_eq!(properties["mode"]["enum"], json!(["Standard", "Shared"]));
    assert_eq!(properties["mode"]["default"], "Standard");
    let text = properties["mode"]["description"].as_str().unwrap();
    assert_eq!(text, "How it runs.\nStandard: On its own.\nShared: With others.");
    assert_eq!(properties["plain"], json!({"type": "string", "enum": ["A", "B"]}));
    assert_eq!(properties["nested"]["properties"]["size"]["type"], "string");
    assert_eq!(properties["anything"], json!({"x-kubernetes-preserve-unknown-fields": true}));
    assert_eq!(properties["free"]["type"], "object");
}

#[test]
fn the_status_leaves_room_for_the_host() {
    let status = schema()["properties"]["status"].clone();
    assert_eq!(status["required"], Value::Null);
    assert_eq!(status["properties"]["observedGeneration"]["format"], "int64");
    let conditions = &status["properties"]["conditions"];
    assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
    assert_eq!(
        conditions["items"]["properties"]["status"]["enum"],
        json!(["True", "False", "Unknown"])
    );
}

#[test]
fn says_which_field_has_no_structural_schema() {
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct WithData {
        source: Source,
    }
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Source {
        Url(String),
        Inline { text: String },
    }
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Recursive {
        inner: Option<Box<Recursive>>,
    }
    let error = custom_resource_definition::<WithData, Status>(&INFO).unwrap_err();
    assert_eq!(error.path, "spec.source");
    let error = custom_resource_definition::<Recursive, Status>(&INFO).unwrap_err();
    assert!(error.to_string().contains("refers to itself"), "{error}");
}

#[test]
fn yaml_is_sorted_and_stable() {
    let definition = custom_resource_definition::<Spec, Status>(&INFO).unwrap();
    let yaml = to_yaml(&definition).unwrap();
    assert!(
        yaml.starts_with("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"),
        "{yaml}"
    );
    assert_eq!(serde_norway::from_str::<Value>(&yaml).unwrap(), definition);
}
