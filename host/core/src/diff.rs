//! Is what a plugin wants already there? Compares the fields it sets with the live object, after normalising
//! what the API server is known to normalise.
//!
//! The live object may have more: defaults, other managers' fields, list entries of associative lists.
//! A server that normalises in a way this module does not know shows up as a difference that an apply does not
//! remove; the memory of the plan learns those, so there is no loop.

use serde_json::{Map, Value};

/// One place where the live object is not as desired.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where: `.spec.ports[name=redis].port`.
    pub path: String,
    /// What is wanted.
    pub desired: Value,
    /// What is there; None when nothing is.
    pub live: Option<Value>,
}

/// Every difference between the desired fields and a live object, in field order.
pub fn differences(desired: &Map<String, Value>, live: &Map<String, Value>) -> Vec<Difference> {
    let mut found = Vec::new();
    for (key, value) in desired {
        match key.as_str() {
            // Never differ: the object was looked up by them.
            "apiVersion" | "kind" => {}
            _ => compare(&format!(".{key}"), key, value, live.get(key), &mut found),
        }
    }
    found
}

/// `field` is the name of the nearest enclosing object field: it decides how lists and scalars are read.
fn compare(
    path: &str,
    field: &str,
    desired: &Value,
    live: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    match (desired, live) {
        (Value::Object(desired), Some(Value::Object(live))) => {
            let quantities = is_quantity_map(field);
            for (key, value) in desired {
                let inner = if quantities { QUANTITY } else { key.as_str() };
                compare(&format!("{path}.{key}"), inner, value, live.get(key), found);
            }
            if is_atomic_map(field) {
                for (key, value) in live.iter().filter(|(key, _)| !desired.contains_key(*key)) {
                    found.push(Difference {
                        path: format!("{path}.{key}"),
                        desired: Value::Null,
                        live: Some(value.clone()),
                    });
                }
            }
        }
        (Value::Array(desired), Some(Value::Array(live))) => {
            compare_lists(path, field, desired, live, found);
        }
        // The API server drops empty collections of optional fields.
        (Value::Object(empty), None) if empty.is_empty() => {}
        (Value::Array(empty), None) if empty.is_empty() => {}
        (desired, Some(live)) if same_scalar(field, desired, live) => {}
        (desired, live) => found.push(Difference {
            path: path.to_owned(),
            desired: desired.clone(),
            live: live.cloned(),
        }),
    }
}

fn compare_lists(
    path: &str,
    field: &str,
    desired: &[Value],
    live: &[Value],
    found: &mut Vec<Difference>,
) {
    if field == "finalizers" {
        // A set: others may add to it.
        for item in desired.iter().filter(|item| !live.contains(item)) {
            found.push(Difference { path: path.to_owned(), desired: item.clone(), live: None });
        }
        return;
    }
    if let Some(keys) = merge_keys(field) {
        for item in desired {
            let name = element_name(keys, item);
            let twin = live.iter().find(|candidate| element_name(keys, candidate) == name);
            compare(&format!("{path}[{name}]"), field, item, twin, found);
        }
        return;
    }
    if desired.len() != live.len() {
        found.push(Difference {
            path: path.to_owned(),
            desired: Value::Array(desired.to_vec()),
            live: Some(Value::Array(live.to_vec())),
        });
        return;
    }
    for (index, (item, twin)) in desired.iter().zip(live).enumerate() {
        compare(&format!("{path}[{index}]"), field, item, Some(twin), found);
    }
}

/// The merge keys of the associative lists of the built-in kinds (Kubernetes API reference,
/// `x-kubernetes-list-map-keys`). A missing `protocol` is TCP. `ports` serves containers and Services:
/// the first key that is present counts.
fn merge_keys(field: &str) -> Option<&'static [&'static str]> {
    Some(match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets" => &["name"],
        "ports" => &["containerPort", "port", "protocol"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        "conditions" => &["type"],
        "ownerReferences" => &["uid"],
        "hostAliases" => &["ip"],
        _ => return None,
    })
}

fn element_name(keys: &[&str], item: &Value) -> String {
    let part = |key: &&str| match item.get(*key) {
        Some(Value::String(text)) => Some(format!("{key}={text}")),
        Some(other) => Some(format!("{key}={other}")),
        None if *key == "protocol" => Some("protocol=TCP".to_owned()),
        None => None,
    };
    keys.iter().filter_map(part).collect::<Vec<_>>().join(",")
}

/// Maps that server-side apply sets as a whole (`x-kubernetes-map-type: atomic`): a key more is a difference.
/// The `selector` of a Service is one; that of a StatefulSet is a structure that has `matchLabels` in it.
fn is_atomic_map(field: &str) -> bool {
    matches!(field, "selector" | "nodeSelector" | "matchLabels")
}

/// A stand-in field name for the values of a map of quantities.
const QUANTITY: &str = "\u{0}quantity";

fn is_quantity_map(field: &str) -> bool {
    matches!(field, "limits" | "requests" | "hard" | "capacity" | "overhead")
}

fn same_scalar(field: &str, desired: &Value, live: &Value) -> bool {
    if desired == live {
        return true;
    }
    let quantity = matches!(field, QUANTITY | "sizeLimit" | "storage" | "divisor");
    match (desired, live) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ if quantity => match (quantity_of(desired), quantity_of(live)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        },
        _ => false,
    }
}

/// A quantity in thousandths: `1`, `1000m` and `1e0` are equal, `1024Mi` and `1Gi` are equal.
/// Kubernetes rounds up below one thousandth, so nothing smaller can be live.
fn quantity_of(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let digits_end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (base, exponent): (i128, u32) = match suffix {
        "" => (10, 3),
        "n" | "u" => return None,
        "m" => (10, 0),
        "k" => (10, 6),
        "M" => (10, 9),
        "G" => (10, 12),
        "T" => (10, 15),
        "P" => (10, 18),
        "E" => (10, 21),
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => {
            let power = 1 + "KMGTPE".find(suffix.get(..1)?)?;
            (2, 10 * u32::try_from(power).ok()?)
        }
        _ => {
            let exponent: u32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (10, exponent.checked_add(3)?)
        }
    };
    let scale = base.checked_pow(exponent)?.checked_mul(if base == 2 { 1_000 } else { 1 })?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let divisor = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let product = mantissa.checked_mul(scale)?;
    Some(product / divisor + i128::from(product % divisor > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(desired: &Value, live: &Value) -> Vec<String> {
        let (Value::Object(desired), Value::Object(live)) = (desired, live) else {
            panic!("objects")
        };
        differences(desired, live).into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn what_the_server_adds_is_no_difference() {
        let desired = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ports": [{"port": 6379, "name": "redis"}]}});
        let live = json!({"metadata": {"labels": {"a": "b", "c": "d"}, "uid": "u"},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 6379, "name": "redis", "protocol": "TCP", "targetPort": 6379}]}});
        assert_eq!(paths(&desired, &live), Vec::<String>::new());
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (desired, live) in [
            ("1000m", "1"),
            ("1", "1000m"),
            ("1024Mi", "1Gi"),
            ("0.5", "500m"),
            ("1e3", "1k"),
            ("1.5Gi", "1536Mi"),
            ("100M", "100000k"),
        ] {
            let a = json!({"resources": {"limits": {"x": desired}}});
            let b = json!({"resources": {"limits": {"x": live}}});
            assert_eq!(paths(&a, &b), Vec::<String>::new(), "{desired} {live}");
        }
        let a = json!({"resources": {"limits": {"x": "1Gi"}}});
        let b = json!({"resources": {"limits": {"x": "1G"}}});
        assert_eq!(paths(&a, &b), [".resources.limits.x"]);
        assert_eq!(
            paths(&json!({"data": {"x": "1000m"}}), &json!({"data": {"x": "1"}})),
            [".data.x"]
        );
    }

    #[test]
    fn a_key_more_in_an_atomic_map_is_a_difference() {
        let desired = json!({"spec": {"selector": {"a": "b"}}, "metadata": {"labels": {"a": "b"}}});
        let live = json!({"spec": {"selector": {"a": "b", "c": "d"}}, "metadata": {"labels": {"a": "b", "c": "d"}}});
        assert_eq!(paths(&desired, &live), [".spec.selector.c"]);
    }

    #[test]
    fn associative_lists_are_matched_by_key_and_may_have_more() {
        let desired = json!({"containers": [{"name": "redis", "image": "redis:7"}]});
        let live = json!({"containers": [{"name": "sidecar", "image": "x"}, {"name": "redis", "image": "redis:6"}]});
        assert_eq!(paths(&desired, &live), [".containers[name=redis].image"]);
    }

    #[test]
    fn plain_lists_are_whole() {
        assert_eq!(paths(&json!({"args": ["a"]}), &json!({"args": ["a", "b"]})), [".args"]);
        assert_eq!(paths(&json!({"args": ["a"]}), &json!({"args": ["b"]})), [".args[0]"]);
        assert_eq!(paths(&json!({"args": []}), &json!({})), Vec::<String>::new());
    }

    #[test]
    fn two_ports_of_one_number_are_told_apart_by_protocol() {
        let desired = json!({"ports": [{"port": 53, "protocol": "UDP", "name": "a"}, {"port": 53, "name": "b"}]});
        let live = json!({"ports": [{"port": 53, "protocol": "TCP", "name": "b"}, {"port": 53, "protocol": "UDP", "name": "a"}]});
        assert_eq!(paths(&desired, &live), Vec::<String>::new());
    }
}
