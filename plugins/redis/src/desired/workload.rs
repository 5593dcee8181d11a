//! The StatefulSet: its pods, how they start (ADR 0005), and where their data is.
//!
//! **Invariant:** a pod that starts accepts no writes and feeds no replicas until the operator says what it is.

use serde_json::{Map, Value, json};

use super::blueprint::{Blueprint, metadata};
use super::config::{NODE_TIMEOUT_MS, fingerprint};
use crate::api::{Quantity, Resources, Retention, Spec, Storage};
use crate::names::{self, ANNOTATION_ACCEPTED, ANNOTATION_CONFIG_HASH, GATE_PORT, PORT};
use crate::quantity;

/// How long a node of a Redis Cluster that has lost its data waits before it returns: twice the node timeout to be
/// declared dead, and 5 s for the vote or, where no vote is possible, for the operator's takeover.
/// Returning earlier, under its old identity and empty, it would wipe its replicas (facts 0.3).
const REBORN_DELAY_SECS: u32 = 2 * NODE_TIMEOUT_MS / 1_000 + 5;

/// User and group `redis` of the official images.
const USER: u32 = 999;

/// The StatefulSet. Pods are replaced by the operator's own deletions (`OnDelete`): only it knows which may go.
pub(super) fn stateful_set(blueprint: &Blueprint<'_>, config: &str) -> Value {
    let spec = blueprint.spec;
    let mut body = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(blueprint, &names::workload(blueprint.cluster)),
        "spec": {
            "replicas": blueprint.replicas,
            "serviceName": names::headless(blueprint.cluster),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": names::selector(blueprint.cluster)},
            "template": {
                "metadata": {
                    "labels": names::labels(blueprint.cluster),
                    "annotations": {ANNOTATION_CONFIG_HASH: fingerprint(config)},
                },
                "spec": pod(blueprint),
            },
        },
    });
    if let Some(metadata) = body.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({ANNOTATION_ACCEPTED: accepted(spec)}));
    }
    if let (Some(storage), Some(workload)) =
        (&spec.storage, body.pointer_mut("/spec").and_then(Value::as_object_mut))
    {
        workload.insert("volumeClaimTemplates".to_owned(), json!([claim(blueprint, storage)]));
        if let Some(policy) = &storage.retention_policy {
            let word = |retention: Retention| match retention {
                Retention::Retain => "Retain",
                Retention::Delete => "Delete",
            };
            workload.insert(
                "persistentVolumeClaimRetentionPolicy".to_owned(),
                json!({"whenDeleted": word(policy.when_deleted), "whenScaled": word(policy.when_scaled)}),
            );
        }
    }
    body
}

/// The accepted spec as text. A spec is made of strings and numbers, so this does not fail.
fn accepted(spec: &Spec) -> String {
    serde_json::to_string(spec).unwrap_or_default()
}

fn claim(blueprint: &Blueprint<'_>, storage: &Storage) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": quantity::canonical(&storage.size)}},
    });
    if let (Some(class), Some(spec)) = (&storage.storage_class_name, spec.as_object_mut()) {
        spec.insert("storageClassName".to_owned(), json!(class));
    }
    json!({"metadata": {"name": "redis-data", "labels": names::labels(blueprint.cluster)}, "spec": spec})
}

fn pod(blueprint: &Blueprint<'_>) -> Value {
    let spec = blueprint.spec;
    let mut volumes =
        vec![json!({"name": "config", "configMap": {"name": names::workload(blueprint.cluster)}})];
    if spec.storage.is_none() {
        volumes.push(json!({"name": "redis-data", "emptyDir": {}}));
    }
    json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        // A master that is told to stop waits up to 10 s for its replicas (`shutdown-timeout`).
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": names::selector(blueprint.cluster)},
            },
        }]}},
        "containers": [container(spec)],
        "volumes": volumes,
    })
}

fn container(spec: &Spec) -> Value {
    let mut env =
        vec![json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})];
    if let Some(auth) = &spec.auth {
        let reference = &auth.password_secret_ref;
        env.push(json!({
            "name": "REDIS_PASSWORD",
            "valueFrom": {"secretKeyRef": {"name": reference.name, "key": reference.key}},
        }));
    }
    let mut container = json!({
        "name": "redis",
        "image": spec.image(),
        "command": ["sh", "-c", start_script(spec)],
        "env": env,
        "ports": [{"name": "redis", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": {
            "tcpSocket": {"port": "redis"},
            "initialDelaySeconds": 10,
            "periodSeconds": 5,
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/redis", "readOnly": true},
            {"name": "redis-data", "mountPath": "/data"},
        ],
    });
    if let (Some(resources), Some(container)) = (&spec.resources, container.as_object_mut()) {
        container.insert("resources".to_owned(), Value::Object(resource_requirements(resources)));
    }
    container
}

fn resource_requirements(resources: &Resources) -> Map<String, Value> {
    let mut requirements = Map::new();
    for (name, map) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        let mut quantities = Map::new();
        for (resource, quantity) in map {
            let text = match quantity {
                Quantity::Number(number) => number.to_string(),
                Quantity::Text(text) => text.clone(),
            };
            quantities.insert(resource.clone(), Value::String(quantity::canonical(&text)));
        }
        if !quantities.is_empty() {
            requirements.insert(name.to_owned(), Value::Object(quantities));
        }
    }
    requirements
}

/// How a pod starts. `POD_IP` is its address; with auth, `REDIS_PASSWORD` its password.
pub fn start_script(spec: &Spec) -> String {
    let role = if spec.cluster_mode {
        format!(
            "# Known to others but without data: wait until a replica has taken over, or it would be wiped.\n\
             if [ -e /data/nodes.conf ] && [ ! -d /data/appendonlydir ]; then\n\
             \x20 trap 'exit 143' TERM; sleep {REBORN_DELAY_SECS} & wait $!; trap - TERM\n\
             fi\n\
             set -- \"$@\" --cluster-announce-ip \"$POD_IP\"\n"
        )
    } else {
        format!(
            "# A replica of nobody: accepts no writes and feeds no replicas until the operator decides.\n\
             set -- \"$@\" --replica-announce-ip \"$POD_IP\" --replicaof \"$POD_IP\" {GATE_PORT}\n"
        )
    };
    let auth = if spec.auth.is_some() {
        "set -- \"$@\" --requirepass \"$REDIS_PASSWORD\" --masterauth \"$REDIS_PASSWORD\"\n"
    } else {
        ""
    };
    format!(
        "set -eu\n\
         set -- /etc/redis/redis.conf --bind-source-addr \"$POD_IP\" --bind \"$POD_IP\"\n\
         # Port forwarding reaches a pod by its loopback address; pods that share one have none to give.\n\
         case \"$POD_IP\" in 127.*) ;; *) set -- \"$@\" 127.0.0.1 ;; esac\n\
         {role}{auth}exec redis-server \"$@\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::tests::spec;

    fn built(spec: &Spec) -> Value {
        stateful_set(&Blueprint { cluster: "cart", spec, replicas: 2 }, "conf")
    }

    #[test]
    fn b36_writes_quantities_as_they_are_stored() {
        let spec = spec(&json!({
            "storage": {"size": "1024Mi"},
            "resources": {"requests": {"cpu": "1000m"}, "limits": {"memory": "1.5Gi", "cpu": 2}},
        }));
        let body = built(&spec);
        assert_eq!(
            body["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"],
            "1Gi"
        );
        let resources = &body["spec"]["template"]["spec"]["containers"][0]["resources"];
        assert_eq!(
            *resources,
            json!({"requests": {"cpu": "1"}, "limits": {"memory": "1536Mi", "cpu": "2"}})
        );
    }

    #[test]
    fn remembers_the_spec_it_was_built_from() {
        let spec =
            spec(&json!({"clusterMode": true, "replicas": 6, "config": {"maxmemory": "1gb"}}));
        let body = built(&spec);
        let accepted = body["metadata"]["annotations"][ANNOTATION_ACCEPTED].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Spec>(accepted).unwrap(), spec);
        assert_eq!(
            body["spec"]["replicas"], 2,
            "the annotation says what was accepted, the field what is asked for now"
        );
    }

    #[test]
    fn b38_what_changes_a_pod_changes_the_template_and_nothing_else_does() {
        let template = |extra: Value| built(&spec(&extra))["spec"]["template"].clone();
        let base = template(json!({}));
        for extra in [
            json!({"version": "7.2"}),
            json!({"image": "valkey:8"}),
            json!({"resources": {"limits": {"cpu": "1"}}}),
            json!({"auth": {"passwordSecretRef": {"name": "s", "key": "k"}}}),
        ] {
            assert_ne!(template(extra), base);
        }
        for extra in [
            json!({"replicas": 5}),
            json!({"podDisruptionBudget": {"mode": "Disabled"}}),
            json!({"paused": true}),
        ] {
            assert_eq!(template(extra), base);
        }
    }

    #[test]
    fn data_is_on_the_claim_or_lives_with_the_pod() {
        let volumes = |extra: Value| {
            let body = built(&spec(&extra));
            (
                body["spec"].get("volumeClaimTemplates").is_some(),
                body["spec"]["template"]["spec"]["volumes"].as_array().unwrap().len(),
            )
        };
        assert_eq!(volumes(json!({})), (false, 2));
        assert_eq!(volumes(json!({"storage": {"size": "1Gi"}})), (true, 1));
    }

    #[test]
    fn the_password_is_nowhere_but_in_the_environment() {
        let spec = spec(&json!({"auth": {"passwordSecretRef": {"name": "s", "key": "k"}}}));
        assert!(start_script(&spec).contains("--requirepass \"$REDIS_PASSWORD\""));
        assert!(!built(&spec).to_string().contains("\"value\":"));
    }
}
