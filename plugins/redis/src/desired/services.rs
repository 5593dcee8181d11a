//! Services: one that governs, one for everybody, one for each role.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::blueprint::{Blueprint, metadata};
use crate::names::{self, LABEL_ROLE, PORT};
use crate::role::Role;

/// All of them.
pub(super) fn all(blueprint: &Blueprint<'_>) -> [Value; 4] {
    let cluster = blueprint.cluster;
    let pods = names::selector(cluster);
    let with_role = |role: Role| {
        let mut selector = pods.clone();
        selector.insert(LABEL_ROLE.to_owned(), role.as_str().to_owned());
        selector
    };
    let mut headless = service(blueprint, &names::headless(cluster), &pods);
    if let Some(Value::Object(spec)) = headless.get_mut("spec") {
        spec.insert("clusterIP".to_owned(), json!("None"));
        // Pods must find each other before they are ready: being found is how they become it.
        spec.insert("publishNotReadyAddresses".to_owned(), json!(true));
    }
    [
        headless,
        service(blueprint, cluster, &pods),
        service(blueprint, &names::master_service(cluster), &with_role(Role::Master)),
        service(blueprint, &names::replica_service(cluster), &with_role(Role::Replica)),
    ]
}

fn service(blueprint: &Blueprint<'_>, name: &str, selector: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(blueprint, name),
        "spec": {
            "selector": selector,
            "ports": [{"name": "redis", "port": PORT, "protocol": "TCP", "targetPort": "redis"}],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::tests::spec;

    #[test]
    fn role_services_select_the_role_and_the_others_do_not() {
        let spec = spec(&json!({}));
        let services = all(&Blueprint { cluster: "cart", spec: &spec, replicas: 3 });
        let role = |index: usize| {
            services[index]["spec"]["selector"].get(LABEL_ROLE).and_then(Value::as_str)
        };
        assert_eq!(
            [role(0), role(1), role(2), role(3)],
            [None, None, Some("master"), Some("replica")]
        );
        assert_eq!(services[0]["spec"]["clusterIP"], "None");
        for service in &services {
            assert_eq!(service["spec"]["selector"][names::LABEL_CLUSTER], "cart");
        }
    }
}
