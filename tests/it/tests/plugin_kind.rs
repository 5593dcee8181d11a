//! The CRD of the `Plugin` kind in `crds/host` is the one the types say.
//! `UPDATE_CRDS=1 cargo test --workspace --test plugin_kind` writes it.

#![cfg(test)]

use host_core::limits::PLUGIN_NAME_MAX;
use host_core::plugin::{API_VERSION, PluginSpec, PluginStatus};
use operator_host_sdk::crd::{Column, CrdInfo, Rule, custom_resource_definition, to_yaml};

const FILE: &str = "crds/host/plugins.operator-host.dev_plugins.yaml";

fn definition() -> String {
    let column = |name, type_, json_path| Column { name, type_, json_path, priority: 0 };
    let (group, version) = API_VERSION.split_once('/').unwrap();
    let rule = format!("size(self.metadata.name) <= {PLUGIN_NAME_MAX}");
    let message = format!("the name is the plugin's own: at most {PLUGIN_NAME_MAX} characters");
    let definition = custom_resource_definition::<PluginSpec, PluginStatus>(&CrdInfo {
        group,
        version,
        kind: "Plugin",
        plural: "plugins",
        short_names: &["plug"],
        categories: &["operator-host"],
        description: "A plugin of the operator host: reconcile logic, and how a new revision of it comes to act.",
        columns: &[
            column("Active", "string", ".status.active.revision"),
            column("Version", "string", ".status.active.version"),
            column("Candidate", "string", ".status.candidate.revision"),
            column("Verdict", "string", ".status.verdict"),
            column("Parents", "integer", ".status.parents"),
            column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
            column("Age", "date", ".metadata.creationTimestamp"),
        ],
        scale: None,
        rules: &[Rule { rule: &rule, message: &message }],
    });
    let text = to_yaml(&definition.unwrap()).unwrap();
    format!("# Generated from host/core/src/plugin.rs; a test holds the two together.\n{text}")
}

#[test]
fn the_definition_of_the_plugin_kind_is_what_its_types_say() {
    let file = it::root().unwrap().join(FILE);
    let generated = definition();
    if std::env::var_os("UPDATE_CRDS").is_some() {
        std::fs::write(&file, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == generated,
        "{FILE} is not what the types say: UPDATE_CRDS=1 cargo test --workspace --test plugin_kind"
    );
}
