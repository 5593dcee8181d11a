//! Every name the plugin writes where users see it: object names, labels, annotations, condition types.
//!
//! **Invariant:** a label selector made here selects the pods of one RedisCluster in its namespace and no others.

use std::collections::BTreeMap;

use crate::ordered;

/// The API group, and the prefix of this plugin's labels and annotations.
pub const GROUP: &str = "redis.operator-host.dev";

/// Label on pods, services and claims: the RedisCluster's name. Ours alone, so no chart's labels can match it.
pub const LABEL_CLUSTER: &str = "redis.operator-host.dev/cluster";

/// Label on pods: what the pod was observed to be. The role services select it; nothing else does.
pub const LABEL_ROLE: &str = "redis.operator-host.dev/role";

/// Annotation on the StatefulSet: the accepted spec, from which everything is built.
pub const ANNOTATION_ACCEPTED: &str = "redis.operator-host.dev/accepted-spec";

/// Annotation on the pod template: hash of the configuration, so that a change restarts pods.
pub const ANNOTATION_CONFIG_HASH: &str = "redis.operator-host.dev/config-hash";

/// Annotation a user puts on a RedisCluster to allow a restart that loses data: its generation.
pub const ANNOTATION_ALLOW_DATA_LOSS: &str = "redis.operator-host.dev/allow-data-loss";

/// The port of Redis.
pub const PORT: u16 = 6379;

/// Where a pod that has just started claims its master is: its own address and a port on which nothing listens.
/// It is then a replica that refuses writes and, having no link to a master, refuses to feed others
/// (`-NOMASTERLINK`), so an empty restarted master cannot wipe its replicas. Only the operator ends that state.
pub const GATE_PORT: u16 = 1;

/// The longest name of a RedisCluster: `controller-revision-hash` is a label value, so
/// `<name>-redis-<10 characters>` must fit into 63; 40 + 6 + 11 = 57 leaves room for what is to come.
pub const NAME_MAX: usize = 40;

/// The StatefulSet, the ConfigMap and the `PodDisruptionBudget`.
pub fn workload(cluster: &str) -> String {
    format!("{cluster}-redis")
}

/// The headless Service that governs the StatefulSet.
pub fn headless(cluster: &str) -> String {
    format!("{cluster}-headless")
}

/// The Service in front of the master.
pub fn master_service(cluster: &str) -> String {
    format!("{cluster}-master")
}

/// The Service in front of the replicas.
pub fn replica_service(cluster: &str) -> String {
    format!("{cluster}-replica")
}

/// The name of one pod.
pub fn pod(cluster: &str, ordinal: u32) -> String {
    format!("{cluster}-redis-{ordinal}")
}

/// The ordinal in a pod's name, when it is a pod of this cluster's StatefulSet.
pub fn ordinal(cluster: &str, pod: &str) -> Option<u32> {
    pod.strip_prefix(cluster)?.strip_prefix("-redis-")?.parse().ok()
}

/// Labels that identify the pods of one cluster; immutable in a StatefulSet.
pub fn selector(cluster: &str) -> BTreeMap<String, String> {
    let pairs = [
        ("app.kubernetes.io/name", "redis"),
        ("app.kubernetes.io/instance", cluster),
        ("app.kubernetes.io/component", "server"),
        (LABEL_CLUSTER, cluster),
    ];
    ordered::map(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())))
}

/// Labels on everything: the selector and what tools look for.
pub fn labels(cluster: &str) -> BTreeMap<String, String> {
    let mut labels = selector(cluster);
    labels.insert("app".to_owned(), "redis".to_owned());
    labels.insert("managedBy".to_owned(), "redis-operator".to_owned());
    labels
}

/// A label selector as kubectl takes it.
pub fn selector_text(cluster: &str) -> String {
    let pairs: Vec<String> =
        selector(cluster).iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b51_a_cluster_whose_name_begins_like_another_has_other_pods() {
        assert_eq!(ordinal("a", "a-redis-1"), Some(1));
        assert_eq!(ordinal("a", "a-b-redis-1"), None);
        assert_eq!(ordinal("a-b", "a-redis-1"), None);
        assert_eq!(ordinal("a", "a-redis-x"), None);
        assert_ne!(selector("a"), selector("a-b"));
    }

    #[test]
    fn b50_the_longest_name_still_fits_into_a_revision_label() {
        let name = "n".repeat(NAME_MAX);
        assert!(workload(&name).len() + "-0123456789".len() <= 63);
    }
}
