//! The objects that should exist: stage *desired*. A function of the accepted spec alone, so it cannot fail.
//!
//! **Invariant:** only fields this plugin has an opinion on are written, quantities in the API server's form (corpus B36).
//! **Invariant:** labels and annotations of the RedisCluster are not copied anywhere (corpus B37).

mod blueprint;
mod config;
mod services;
mod workload;

pub use blueprint::Blueprint;
pub use config::NODE_TIMEOUT_MS;
pub use workload::start_script;

use serde_json::{Value, json};

use crate::api::BudgetMode;
use crate::names;
use blueprint::metadata;

/// Every owned object, in the order of applying: what pods need before what makes pods.
pub fn objects(blueprint: &Blueprint<'_>) -> Vec<Value> {
    let config = config::redis_conf(blueprint.spec);
    let mut objects = vec![config::config_map(blueprint, &config)];
    objects.extend(services::all(blueprint));
    objects.extend(budget(blueprint));
    objects.push(workload::stateful_set(blueprint, &config));
    objects
}

/// One voluntary disruption at a time; with a single pod it would block every drain (corpus B49).
fn budget(blueprint: &Blueprint<'_>) -> Option<Value> {
    let wanted = blueprint.spec.pod_disruption_budget.mode == BudgetMode::Auto
        && blueprint.spec.replicas > 1;
    wanted.then(|| {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(blueprint, &names::workload(blueprint.cluster)),
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": names::selector(blueprint.cluster)},
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Spec;

    pub(super) fn spec(extra: &Value) -> Spec {
        let mut spec = json!({"replicas": 3});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn kinds(spec: &Spec) -> Vec<String> {
        objects(&Blueprint { cluster: "cart", spec, replicas: spec.replicas })
            .iter()
            .map(|object| {
                let text = |pointer| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
                format!("{} {}", text("/kind"), text("/metadata/name"))
            })
            .collect()
    }

    #[test]
    fn builds_what_pods_need_before_pods() {
        assert_eq!(
            kinds(&spec(&json!({}))),
            [
                "ConfigMap cart-redis",
                "Service cart-headless",
                "Service cart",
                "Service cart-master",
                "Service cart-replica",
                "PodDisruptionBudget cart-redis",
                "StatefulSet cart-redis",
            ]
        );
    }

    #[test]
    fn b49_a_single_pod_or_a_disabled_budget_has_none() {
        for extra in [json!({"replicas": 1}), json!({"podDisruptionBudget": {"mode": "Disabled"}})]
        {
            assert!(
                !kinds(&spec(&extra)).iter().any(|kind| kind.starts_with("PodDisruptionBudget"))
            );
        }
    }
}
