//! Which node a pod fits on, and which of those is best. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, Pod, PodAffinityTerm, PodSpec, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::heartbeat;

/// The best node for a pod, or why there is none; `placed` are the pods that have a node.
pub(crate) fn choose(
    pod: &Pod,
    spec: &PodSpec,
    nodes: &[Node],
    placed: &[(Arc<Pod>, String)],
) -> Result<String, String> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut best: Option<((i64, usize), &str)> = None;
    for node in nodes {
        if let Err(reason) = fits(pod, spec, node, nodes, placed) {
            *reasons.entry(reason).or_default() += 1;
            continue;
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let count = placed.iter().filter(|(_, on)| on == name).count();
        let score = (repulsion(pod, spec, node, nodes, placed), count);
        if best.is_none_or(|(lowest, _)| score < lowest) {
            best = Some((score, name));
        }
    }
    best.map(|(_, name)| name.to_owned()).ok_or_else(|| {
        let list: Vec<String> =
            reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        format!("0/{} nodes are available: {}", nodes.len(), list.join(", "))
    })
}

fn fits(
    pod: &Pod,
    spec: &PodSpec,
    node: &Node,
    nodes: &[Node],
    placed: &[(Arc<Pod>, String)],
) -> Result<(), &'static str> {
    let check = |holds: bool, reason| if holds { Ok(()) } else { Err(reason) };
    let node_spec = node.spec.clone().unwrap_or_default();
    check(heartbeat::is_ready(node), "node(s) were not ready")?;
    check(node_spec.unschedulable != Some(true), "node(s) were unschedulable")?;
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let tolerated = node_spec.taints.unwrap_or_default().iter().all(|taint| {
        taint.effect == "PreferNoSchedule"
            || tolerations.iter().any(|toleration| {
                tolerates(toleration, &taint.key, taint.value.as_deref(), &taint.effect)
            })
    });
    check(tolerated, "node(s) had an untolerated taint")?;
    let labels = labels(node);
    let selector = spec.node_selector.iter().flatten();
    let selected = selector.into_iter().all(|(key, value)| labels.get(key) == Some(value));
    check(selected && node_affinity_holds(spec, &labels), "node(s) didn't match node selection")?;
    let anti = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let required = anti
        .and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default();
    let repelled = required.iter().any(|term| attracts(pod, term, node, nodes, placed) > 0);
    check(!repelled, "node(s) didn't match pod anti-affinity rules")?;
    check(spread_holds(pod, spec, node, nodes, placed), "node(s) didn't match topology spread")
}

/// A node's labels, and its name under the field path that a daemon set's pods select by.
fn labels(node: &Node) -> BTreeMap<String, String> {
    let mut labels = node.metadata.labels.clone().unwrap_or_default();
    labels.insert("metadata.name".to_owned(), node.metadata.name.clone().unwrap_or_default());
    labels
}

fn tolerates(toleration: &Toleration, key: &str, value: Option<&str>, effect: &str) -> bool {
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key_matches = match toleration.key.as_deref() {
        None | Some("") => exists,
        Some(wanted) => wanted == key,
    };
    let value_matches = exists || toleration.value.as_deref().unwrap_or("") == value.unwrap_or("");
    let effect_matches = toleration.effect.as_deref().is_none_or(|wanted| wanted == effect);
    key_matches && value_matches && effect_matches
}

fn node_affinity_holds(spec: &PodSpec, labels: &BTreeMap<String, String>) -> bool {
    let required =
        spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()).and_then(
            |affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref(),
        );
    required.is_none_or(|selector| {
        selector.node_selector_terms.iter().any(|term| {
            term.match_expressions.iter().chain(&term.match_fields).flatten().all(
                |NodeSelectorRequirement { key, operator, values }| {
                    requirement_holds(labels, key, operator, values.as_deref())
                },
            )
        })
    })
}

fn requirement_holds(
    labels: &BTreeMap<String, String>,
    key: &str,
    operator: &str,
    values: Option<&[String]>,
) -> bool {
    let value = labels.get(key);
    let listed = value.is_some_and(|value| values.unwrap_or_default().contains(value));
    match operator {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

fn selects(selector: Option<&LabelSelector>, pod: &Pod) -> bool {
    let empty = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    selector.is_some_and(|selector| {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        selector.match_labels.iter().flatten().all(equal)
            && selector.match_expressions.iter().flatten().all(
                |LabelSelectorRequirement { key, operator, values }| {
                    requirement_holds(labels, key, operator, values.as_deref())
                },
            )
    })
}

/// Pods that `term` selects in the topology domain of `node`.
fn attracts(
    pod: &Pod,
    term: &PodAffinityTerm,
    node: &Node,
    nodes: &[Node],
    placed: &[(Arc<Pod>, String)],
) -> usize {
    let Some(domain) = labels(node).remove(&term.topology_key) else {
        return 0;
    };
    let in_namespace = |other: &Pod| match term.namespaces.as_deref() {
        None | Some([]) => other.metadata.namespace == pod.metadata.namespace,
        Some(list) => other.metadata.namespace.as_ref().is_some_and(|name| list.contains(name)),
    };
    placed
        .iter()
        .filter(|(other, on)| {
            in_namespace(other)
                && selects(term.label_selector.as_ref(), other)
                && domain_of(nodes, on, &term.topology_key).as_ref() == Some(&domain)
        })
        .count()
}

fn domain_of(nodes: &[Node], name: &str, key: &str) -> Option<String> {
    let node = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))?;
    labels(node).remove(key)
}

/// Weighted preferred anti-affinity: the lower, the better.
fn repulsion(
    pod: &Pod,
    spec: &PodSpec,
    node: &Node,
    nodes: &[Node],
    placed: &[(Arc<Pod>, String)],
) -> i64 {
    let anti = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let preferred = anti
        .and_then(|anti| anti.preferred_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default();
    let weigh = |count: usize, weight: i32| {
        i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(i64::from(weight))
    };
    preferred
        .iter()
        .map(|term| weigh(attracts(pod, &term.pod_affinity_term, node, nodes, placed), term.weight))
        .sum()
}

/// `DoNotSchedule` constraints: the domain's count after placing, minus the emptiest domain's.
fn spread_holds(
    pod: &Pod,
    spec: &PodSpec,
    node: &Node,
    nodes: &[Node],
    placed: &[(Arc<Pod>, String)],
) -> bool {
    let constraints = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    constraints.iter().filter(|one| one.when_unsatisfiable == "DoNotSchedule").all(|one| {
        let term = PodAffinityTerm {
            label_selector: one.label_selector.clone(),
            topology_key: one.topology_key.clone(),
            ..PodAffinityTerm::default()
        };
        if !labels(node).contains_key(&one.topology_key) {
            return false;
        }
        let counts = nodes.iter().filter(|other| labels(other).contains_key(&one.topology_key));
        let emptiest = counts.map(|other| attracts(pod, &term, other, nodes, placed)).min();
        let here = attracts(pod, &term, node, nodes, placed) + 1;
        let skew = here.saturating_sub(emptiest.unwrap_or(0));
        usize::try_from(one.max_skew).is_ok_and(|max| skew <= max)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "labels": {"app": "redis"}}, "spec": spec,
        }))
        .unwrap()
    }

    fn on(pod: &Pod, node: &str) -> (Arc<Pod>, String) {
        (Arc::new(pod.clone()), node.to_owned())
    }

    #[test]
    fn spreads_by_count() {
        let pod = pod(&json!({"containers": []}));
        let nodes = [node("a"), node("b")];
        let spec = pod.spec.clone().unwrap();
        assert_eq!(choose(&pod, &spec, &nodes, &[on(&pod, "a")]).unwrap(), "b");
    }

    #[test]
    fn required_anti_affinity_leaves_a_pod_pending() {
        let pod = pod(&json!({"containers": [], "affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "redis"}},
            }],
        }}}));
        let nodes = [node("a"), node("b")];
        let spec = pod.spec.clone().unwrap();
        assert_eq!(choose(&pod, &spec, &nodes, &[on(&pod, "a")]).unwrap(), "b");
        let why = choose(&pod, &spec, &nodes, &[on(&pod, "a"), on(&pod, "b")]).unwrap_err();
        assert!(why.contains("2 node(s) didn't match pod anti-affinity"), "{why}");
    }

    #[test]
    fn taints_and_selectors_are_honoured() {
        let pod = pod(&json!({"containers": [], "nodeSelector": {"kubernetes.io/hostname": "b"}}));
        let spec = pod.spec.clone().unwrap();
        let mut tainted = node("b");
        assert_eq!(choose(&pod, &spec, &[node("a"), tainted.clone()], &[]).unwrap(), "b");
        tainted.spec = serde_json::from_value(json!({
            "taints": [{"key": "k", "effect": "NoSchedule"}],
        }))
        .unwrap();
        assert!(choose(&pod, &spec, &[node("a"), tainted], &[]).is_err());
    }
}
