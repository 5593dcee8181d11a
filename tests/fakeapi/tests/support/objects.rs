//! What all tests need.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use fakeapi::Server;
use host_core::ident::{Kind, ObjectId, ObjectKey};
use host_kube::Client;
use serde_json::{Value, json};

pub const PLUGIN: &str = "plugins.operator-host.dev/v1alpha1";

/// The host's client of a server.
pub fn client(server: &Server) -> Client {
    Client::from_kube(server.client(), "fake")
}

pub fn plugin_id(name: &str) -> ObjectId {
    ObjectId { kind: Kind::new(PLUGIN, "Plugin"), key: ObjectKey::new("shop", name) }
}

pub fn config_id(name: &str) -> ObjectId {
    ObjectId { kind: Kind::new("v1", "ConfigMap"), key: ObjectKey::new("shop", name) }
}

pub fn plugin(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": PLUGIN, "kind": "Plugin",
        "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

pub fn config(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop"}, "data": data})
}

/// A config map that an object owns.
pub fn owned(name: &str, owner: &Value) -> Value {
    let mut object = config(name, &json!({}));
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": true,
        "blockOwnerDeletion": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]);
    object
}

pub fn stored_plugin(server: &Server, name: &str) -> Option<Value> {
    server.get(PLUGIN, "Plugin", "shop", name)
}

pub fn stored_config(server: &Server, name: &str) -> Option<Value> {
    server.get("v1", "ConfigMap", "shop", name)
}
