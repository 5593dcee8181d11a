//! From JSON Schema 2020-12, as schemars writes it, to the structural schemas of Kubernetes.
//!
//! The rules are those of the Kubernetes documentation, "Specifying a structural schema":
//! a type everywhere, no references, no types inside of `anyOf`/`oneOf`, `properties` or `additionalProperties`
//! but not both, and only the keywords of `JSONSchemaProps`.

use serde_json::{Map, Value, json};

/// A Rust type has no structural schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStructural {
    /// Which field: `spec.storage`.
    pub path: String,
    /// What is in the way, and what to do instead.
    pub problem: &'static str,
}

impl std::fmt::Display for NotStructural {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

impl std::error::Error for NotStructural {}

/// Keywords that are kept as they are.
const KEPT: [&str; 21] = [
    "type",
    "format",
    "description",
    "default",
    "example",
    "enum",
    "required",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "properties",
    "items",
];

/// Keywords that say nothing about what is valid, and that Kubernetes does not know.
const DROPPED: [&str; 9] = [
    "$schema",
    "title",
    "$defs",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "contentEncoding",
];

/// The structural form of a schema, or why there is none.
pub(super) fn structural(path: &str, schema: Value) -> Result<Value, NotStructural> {
    let fail = |problem| Err(NotStructural { path: path.to_owned(), problem });
    let mut map = match schema {
        Value::Object(map) => map,
        // `true`: any value, as serde_json::Value has it.
        Value::Bool(true) => Map::new(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return fail("has no possible value");
        }
    };
    merge_alternatives(path, &mut map)?;
    if map.contains_key("$ref") {
        return fail(
            "refers to itself; a structural schema cannot recurse, so make it a serde_json::Value",
        );
    }
    if let Some(value) = map.remove("const") {
        map.insert("enum".to_owned(), json!([value]));
    }
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    settle_type(path, &mut map)?;
    settle_format(&mut map);
    settle_bounds(&mut map);
    settle_properties(path, &mut map)?;
    match map.remove("items") {
        Some(items) => {
            map.insert("items".to_owned(), structural(&format!("{path}[]"), items)?);
        }
        None if map.get("type") == Some(&json!("array")) => {
            return fail("is a list without a type of its items");
        }
        None => {}
    }
    map.retain(|key, _| !DROPPED.contains(&key.as_str()));
    if map.keys().any(|key| !KEPT.contains(&key.as_str()) && !is_extension(key)) {
        return fail(
            "uses a keyword that Kubernetes does not have; write a rule in x-kubernetes-validations instead",
        );
    }
    Ok(Value::Object(map))
}

fn is_extension(key: &str) -> bool {
    key.starts_with("x-kubernetes-") || key == "additionalProperties"
}

/// Alternatives come from `Option` (one of them is null: dropped, as an absent field says the same)
/// and from enums. Enums of plain names become one `enum`; enums with data have no structural form.
fn merge_alternatives(path: &str, map: &mut Map<String, Value>) -> Result<(), NotStructural> {
    let fail = |problem| Err(NotStructural { path: path.to_owned(), problem });
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let Some(Value::Array(mut branches)) = map.remove(keyword) else {
            continue;
        };
        branches.retain(|branch| branch.get("type") != Some(&json!("null")));
        if let [Value::Object(only)] = branches.as_mut_slice() {
            // What is said about the field comes before what is said about its type.
            let mut only = std::mem::take(only);
            only.append(map);
            *map = only;
            return merge_alternatives(path, map);
        }
        if keyword == "allOf" {
            return fail("is a combination of types; write it as one struct");
        }
        let Some(names) = names_of(&branches) else {
            return fail(
                "is an enum with data; use a struct with optional fields and a rule that one is set",
            );
        };
        let listed = description_with_names(map.get("description"), &branches);
        if !listed.is_empty() {
            map.insert("description".to_owned(), json!(listed));
        }
        map.insert("type".to_owned(), json!("string"));
        map.insert("enum".to_owned(), Value::Array(names));
    }
    Ok(())
}

fn names_of(branches: &[Value]) -> Option<Vec<Value>> {
    let mut names = Vec::new();
    for branch in branches {
        match (branch.get("const"), branch.get("enum")) {
            (Some(name @ Value::String(_)), _) => names.push(name.clone()),
            (None, Some(Value::Array(several))) if several.iter().all(Value::is_string) => {
                names.extend(several.iter().cloned());
            }
            _ => return None,
        }
    }
    Some(names)
}

/// Keeps what is documented at the variants: there is no other place for it.
fn description_with_names(description: Option<&Value>, branches: &[Value]) -> String {
    let variants = branches.iter().filter_map(|branch| {
        let text = branch.get("description")?.as_str()?;
        Some(format!("{}: {text}", branch.get("const")?.as_str()?))
    });
    description
        .and_then(Value::as_str)
        .map(str::to_owned)
        .into_iter()
        .chain(variants)
        .collect::<Vec<_>>()
        .join("\n")
}

fn settle_type(path: &str, map: &mut Map<String, Value>) -> Result<(), NotStructural> {
    let types: Vec<Value> = match map.remove("type") {
        Some(Value::Array(types)) => types,
        Some(single) => vec![single],
        None => vec![],
    };
    let types: Vec<&str> =
        types.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect();
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    match types.as_slice() {
        [] if map.contains_key("x-kubernetes-int-or-string") => {}
        [] if map.contains_key("properties") => {
            map.insert("type".to_owned(), json!("object"));
        }
        [] => {
            map.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
        [single] => {
            map.insert("type".to_owned(), json!(single));
        }
        ["string", "integer"] | ["integer", "string"] => {
            map.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
        }
        _ => {
            let problem = "has several types; only a number or a text may be mixed";
            return Err(NotStructural { path: path.to_owned(), problem });
        }
    }
    Ok(())
}

/// Kubernetes knows int32 and int64. The bounds that schemars adds (`minimum: 0`) stay.
fn settle_format(map: &mut Map<String, Value>) {
    let format = match map.get("format").and_then(Value::as_str) {
        Some("int8" | "int16" | "uint8" | "uint16") => "int32",
        Some("uint32" | "uint64" | "int" | "uint") => "int64",
        _ => return,
    };
    map.insert("format".to_owned(), json!(format));
}

/// Exclusive bounds are numbers in JSON Schema 2020-12 and flags in `OpenAPI` 3.0.
fn settle_bounds(map: &mut Map<String, Value>) {
    for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(number) = map.get(flag).filter(|value| value.is_number()).cloned() {
            map.insert(bound.to_owned(), number);
            map.insert(flag.to_owned(), json!(true));
        }
    }
}

fn settle_properties(path: &str, map: &mut Map<String, Value>) -> Result<(), NotStructural> {
    if let Some(Value::Object(properties)) = map.remove("properties") {
        let mut settled = Map::new();
        for (name, property) in properties {
            let property = structural(&format!("{path}.{name}"), property)?;
            settled.insert(name, property);
        }
        map.insert("properties".to_owned(), Value::Object(settled));
    }
    match map.remove("additionalProperties") {
        // The API server prunes or, with strict field validation, refuses unknown fields by itself.
        None | Some(Value::Bool(false)) => {}
        Some(_) if map.contains_key("properties") => {
            let problem =
                "has fields and also takes any other; put the others into a map of their own";
            return Err(NotStructural { path: path.to_owned(), problem });
        }
        Some(Value::Bool(true)) => {
            map.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
        Some(values) => {
            let values = structural(&format!("{path}.*"), values)?;
            map.insert("additionalProperties".to_owned(), values);
        }
    }
    Ok(())
}
