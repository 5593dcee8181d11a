//! Schemas that a Rust type does not say by itself. Not part of the component.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::directives::OWNED_KEYS;

/// A positive quantity.
pub(crate) fn size(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
            "message": "must be a positive quantity such as 10Gi",
        }],
    })
}

/// Quantities by resource name, as in a pod.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$",
            "x-kubernetes-int-or-string": true,
        },
    })
}

/// Directives of redis.conf.
pub(crate) fn config(_: &mut SchemaGenerator) -> Schema {
    let owned: Vec<String> = OWNED_KEYS.iter().map(|key| format!("'{key}'")).collect();
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 1024},
        "x-kubernetes-validations": [
            {
                "rule": format!("self.all(key, !(key in [{}]))", owned.join(",")),
                "message": "holds a key that the operator sets itself: addresses, ports, data directory, authentication, replication or cluster identity",
            },
            {
                "rule": "self.all(key, !self[key].contains('\\n') && !self[key].contains('\\r'))",
                "message": "a value must be one line",
            },
        ],
    })
}
