//! `plugin package`: everything a cluster needs to run a plugin, from what the component says about itself.

use std::collections::BTreeMap;

use anyhow::Context as _;
use host_core::grants::Grants;
use host_core::ident::Kind;
use host_core::plugin;
use host_core::snapshot::Descriptor;
use host_core::text;
use host_engine::packing::{Part, packed, parts};
use host_engine::signature::Signature;
use serde_json::{Value, json};

use crate::command::output::print;
use crate::command::{file, signature};
use crate::flags::PackageArgs;

/// Prints the manifests.
pub(crate) fn package(args: &PackageArgs) -> anyhow::Result<()> {
    let PackageArgs { file, namespace, service_account, signature, oci } = args;
    let plugin = file::load(file)?;
    let descriptor = plugin.descriptor();
    Grants::as_asked(descriptor)?;
    let mut documents = Vec::new();
    if oci.is_none() {
        let signature = signature.as_deref().map(signature::read).transpose()?;
        let packed = packed(file::capture(file)?.bytes()).context("packing the component")?;
        documents = config_maps(descriptor, namespace, &packed, signature.as_ref());
    }
    documents.extend([
        plugin_object(descriptor, namespace, oci.as_deref()),
        cluster_role(descriptor),
        binding(descriptor, namespace, service_account),
    ]);
    let mut out = String::new();
    for document in &mut documents {
        document.sort_all_objects();
        out.push_str("---\n");
        out.push_str(&serde_norway::to_string(document)?);
    }
    if let Some(crds) = &plugin.facts().crds {
        out.push_str("---\n");
        out.push_str(crds.trim_start_matches("---\n"));
    }
    print(&out)
}

fn labels(descriptor: &Descriptor) -> Value {
    json!({text::LABEL_PLUGIN: descriptor.name})
}

fn config_maps(
    descriptor: &Descriptor,
    namespace: &str,
    packed: &[u8],
    signature: Option<&Signature>,
) -> Vec<Value> {
    let data = signature.map(|signature| (text::KEY_SIGNATURE, signature.text()));
    let parts = parts(&format!("{}-plugin", descriptor.name), packed, data.into_iter().collect());
    let config_map = |part: Part| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": part.name, "namespace": namespace, "labels": labels(descriptor)},
            "binaryData": part.binary_data, "data": part.data,
        })
    };
    parts.into_iter().map(config_map).collect()
}

/// Grants what the component asks for: whoever applies this has read it.
fn plugin_object(descriptor: &Descriptor, namespace: &str, oci: Option<&str>) -> Value {
    let providers: BTreeMap<&str, Value> =
        descriptor.providers.iter().map(|provider| (provider.as_str(), json!([]))).collect();
    let grants = json!({
        "owns": descriptor.owns, "reads": descriptor.reads,
        "patches": descriptor.patches, "providers": providers,
    });
    let mut spec = BTreeMap::from([("grants", grants)]);
    spec.extend(oci.map(|reference| ("source", json!({"oci": {"reference": reference}}))));
    json!({
        "apiVersion": plugin::API_VERSION, "kind": "Plugin",
        "metadata": {"name": descriptor.name, "namespace": namespace},
        "spec": spec,
    })
}

fn rule(kind: &Kind, suffix: &str, verbs: &[&str]) -> Value {
    let resource = format!("{}{suffix}", plural(&kind.kind));
    json!({"apiGroups": [kind.group()], "resources": [resource], "verbs": verbs})
}

fn cluster_role(descriptor: &Descriptor) -> Value {
    let parent = &descriptor.parent;
    let see = ["get", "list", "watch"];
    // Finalizers are put on the parent itself.
    let parent_verbs: Vec<_> =
        see.into_iter().chain(descriptor.finalizer.then_some("patch")).collect();
    let mut rules = vec![
        rule(parent, "", &parent_verbs),
        rule(parent, "/status", &["patch"]),
        rule(parent, "/finalizers", &["update"]),
    ];
    for kind in &descriptor.owns {
        rules.push(rule(kind, "", &["get", "list", "watch", "create", "patch", "delete"]));
    }
    for kind in &descriptor.patches {
        rules.push(rule(kind, "", &["get", "list", "watch", "patch", "delete"]));
    }
    for kind in descriptor
        .reads
        .iter()
        .filter(|kind| !descriptor.owns.contains(kind) && !descriptor.patches.contains(kind))
    {
        rules.push(rule(kind, "", &see));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role(descriptor), "labels": labels(descriptor)},
        "rules": rules,
    })
}

fn role(descriptor: &Descriptor) -> String {
    format!("{}-{}", text::MANAGED_BY, descriptor.name)
}

fn binding(descriptor: &Descriptor, namespace: &str, account: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role(descriptor), "labels": labels(descriptor)},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role(descriptor),
        },
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    })
}

/// The resource of a kind, as kubectl guesses it (`meta.UnsafeGuessKindToResource`): right for every built-in kind.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if lower.ends_with("endpoints") {
        return lower;
    }
    if lower.ends_with('s') {
        return format!("{lower}es");
    }
    match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{lower}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_named_as_the_api_names_them() {
        for (kind, resource) in [
            ("ConfigMap", "configmaps"),
            ("NetworkPolicy", "networkpolicies"),
            ("Ingress", "ingresses"),
            ("Endpoints", "endpoints"),
            ("RedisCluster", "redisclusters"),
        ] {
            assert_eq!(plural(kind), resource);
        }
    }

    #[test]
    fn a_role_allows_what_the_descriptor_asks_for_and_no_more() {
        let descriptor = Descriptor {
            name: "demo".into(),
            version: "1".into(),
            parent: Kind::new("example.com/v1", "Demo"),
            owns: vec![Kind::new("v1", "ConfigMap")],
            reads: vec![Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")],
            patches: vec![],
            providers: vec!["redis".into()],
            finalizer: false,
            hints: vec![],
        };
        let role = cluster_role(&descriptor);
        let rules = role.get("rules").and_then(Value::as_array).unwrap();
        let of = |resource: &str| {
            let mut found = rules.iter().filter(|rule| rule["resources"] == json!([resource]));
            let one = found.next().map(|rule| rule["verbs"].to_string());
            assert!(found.next().is_none(), "{resource} twice");
            one.unwrap_or_default()
        };
        assert_eq!(of("pods"), r#"["get","list","watch"]"#);
        assert_eq!(of("demos"), r#"["get","list","watch"]"#);
        assert!(of("configmaps").contains("create"));
        assert_eq!(of("secrets"), "");
    }
}
