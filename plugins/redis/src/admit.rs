//! Which spec is carried out. The first thing decided, because everything else is built from it.
//!
//! A spec that cannot be carried out safely must not stop the rest: the last accepted one stays in force, in whole,
//! and the refusal is a condition. The accepted spec is kept in an annotation of the StatefulSet it produced.
//!
//! **Invariant:** a refused spec changes no object and no pod.

use crate::api::Spec;
use crate::directives::OWNED_KEYS;

/// Why a spec is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `CamelCase`.
    pub reason: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

/// The spec in force, and why it is not the user's, if it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// None: nothing was ever accepted, so nothing exists.
    pub spec: Option<Spec>,
    /// None: it is the user's.
    pub refusal: Option<Refusal>,
}

/// Decides between what the user wants and what was accepted before. `formed`: a Redis Cluster has been complete once.
pub fn admit(wanted: &Spec, accepted: Option<Spec>, formed: bool) -> Admitted {
    if wanted.paused {
        // Changes wait. Without anything accepted there is nothing to keep as it is.
        return Admitted { spec: accepted, refusal: None };
    }
    let refusal = invalid(wanted)
        .or_else(|| accepted.as_ref().and_then(|accepted| unsafe_change(accepted, wanted, formed)));
    match refusal {
        None => Admitted { spec: Some(wanted.clone()), refusal: None },
        refusal => Admitted { spec: accepted, refusal },
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "what it is returned from may also find nothing to refuse"
)]
fn refuse(reason: &'static str, message: impl Into<String>) -> Option<Refusal> {
    Some(Refusal { reason, message: message.into() })
}

/// What no RedisCluster can have. The API server refuses most of it already; rules may be missing there.
fn invalid(spec: &Spec) -> Option<Refusal> {
    for (key, value) in &spec.config {
        let well_formed = !key.is_empty()
            && key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !well_formed {
            return refuse(
                "InvalidConfig",
                format!("spec.config: {key:?} is not the name of a directive"),
            );
        }
        if OWNED_KEYS.contains(&key.as_str()) || key.starts_with("tls-") {
            return refuse(
                "InvalidConfig",
                format!("spec.config.{key} is set by the operator; remove it"),
            );
        }
        if value.chars().any(char::is_control) {
            return refuse("InvalidConfig", format!("spec.config.{key} must be one line"));
        }
    }
    if spec.replicas == 0 {
        return refuse("InvalidReplicas", "spec.replicas must be at least 1");
    }
    if spec.cluster_mode
        && !spec.replicas.is_multiple_of(spec.replicas_per_shard().saturating_add(1))
    {
        let size = spec.replicas_per_shard().saturating_add(1);
        return refuse(
            "InvalidReplicas",
            format!(
                "spec.replicas is {}, but with clusterMode it must be a multiple of {size}",
                spec.replicas
            ),
        );
    }
    None
}

/// What cannot be changed on something that exists.
fn unsafe_change(accepted: &Spec, wanted: &Spec, formed: bool) -> Option<Refusal> {
    if accepted.cluster_mode != wanted.cluster_mode {
        return refuse("ClusterModeImmutable", "spec.clusterMode cannot be changed");
    }
    let claim = |spec: &Spec| {
        spec.storage
            .as_ref()
            .map(|storage| (storage.size.clone(), storage.storage_class_name.clone()))
    };
    if claim(accepted) != claim(wanted) {
        return refuse(
            "StorageImmutable",
            "spec.storage.size and storageClassName cannot be changed; set them back",
        );
    }
    if !wanted.cluster_mode {
        return None;
    }
    if (accepted.replicas, accepted.shards()) != (wanted.replicas, wanted.shards()) {
        return refuse(
            "ScalingNotSupported",
            format!(
                "a Redis Cluster cannot be scaled yet: it stays at {} pods in {} shards; set replicas and replicasPerShard back",
                accepted.replicas,
                accepted.shards()
            ),
        );
    }
    // Before it is formed nothing can be lost, and a bad image must be mendable.
    if formed && needs_restart(accepted) != needs_restart(wanted) {
        return refuse(
            "RollingNotSupported",
            "a Redis Cluster's pods cannot be restarted for a change of version, image, resources, config or auth yet; set them back",
        );
    }
    None
}

/// The part of a spec that is in the pods themselves.
fn needs_restart(spec: &Spec) -> Spec {
    Spec {
        image: Some(spec.image()),
        version: String::new(),
        replicas: 0,
        replicas_per_shard: None,
        storage: None,
        pod_disruption_budget: crate::api::PodDisruptionBudget::default(),
        paused: false,
        ..spec.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Storage;

    fn spec(replicas: u32, cluster_mode: bool) -> Spec {
        serde_json::from_value(
            serde_json::json!({"replicas": replicas, "clusterMode": cluster_mode}),
        )
        .unwrap()
    }

    fn refused(wanted: &Spec, accepted: Option<&Spec>) -> &'static str {
        let admitted = admit(wanted, accepted.cloned(), true);
        assert_eq!(admitted.spec.as_ref(), accepted, "a refused spec is not in force");
        admitted.refusal.unwrap().reason
    }

    #[test]
    fn keeps_the_accepted_spec_when_a_config_is_refused() {
        let mut wanted = spec(3, false);
        for (key, value) in
            [("bind", "0.0.0.0"), ("tls-port", "1"), ("Save", ""), ("save", "1 1\nbind 0.0.0.0")]
        {
            wanted.config = [(key.to_owned(), value.to_owned())].into();
            assert_eq!(refused(&wanted, Some(&spec(3, false))), "InvalidConfig");
            assert_eq!(refused(&wanted, None), "InvalidConfig");
        }
    }

    #[test]
    fn b35_refuses_what_a_statefulset_cannot_change() {
        let storage = |size: &str| Storage {
            size: size.into(),
            storage_class_name: None,
            retention_policy: None,
        };
        let accepted = Spec { storage: Some(storage("1Gi")), ..spec(3, false) };
        let wanted = Spec { storage: Some(storage("2Gi")), ..spec(3, false) };
        assert_eq!(refused(&wanted, Some(&accepted)), "StorageImmutable");
        assert_eq!(refused(&spec(3, false), Some(&accepted)), "StorageImmutable");
    }

    #[test]
    fn refuses_to_scale_or_roll_a_redis_cluster() {
        let accepted = spec(6, true);
        assert_eq!(refused(&spec(8, true), Some(&accepted)), "ScalingNotSupported");
        let reshaped = Spec { replicas_per_shard: Some(2), ..spec(6, true) };
        assert_eq!(refused(&reshaped, Some(&accepted)), "ScalingNotSupported");
        let newer = Spec { version: "7.2".into(), ..spec(6, true) };
        assert_eq!(refused(&newer, Some(&accepted)), "RollingNotSupported");
        assert_eq!(
            admit(&newer, Some(accepted.clone()), false).spec,
            Some(newer),
            "a bad image can be mended"
        );
        assert_eq!(refused(&spec(6, false), Some(&accepted)), "ClusterModeImmutable");
        let budget = serde_json::json!({"replicas": 6, "clusterMode": true, "podDisruptionBudget": {"mode": "Disabled"}});
        assert_eq!(
            admit(&serde_json::from_value(budget).unwrap(), Some(accepted.clone()), true).refusal,
            None
        );
    }

    #[test]
    fn replication_scales_and_rolls() {
        let wanted = Spec { version: "7.2".into(), ..spec(5, false) };
        let admitted = admit(&wanted, Some(spec(3, false)), true);
        assert_eq!((admitted.spec, admitted.refusal), (Some(wanted), None));
    }

    #[test]
    fn a_paused_cluster_keeps_what_was_accepted() {
        let wanted = Spec { paused: true, replicas: 9, ..spec(3, false) };
        assert_eq!(admit(&wanted, Some(spec(3, false)), true).spec, Some(spec(3, false)));
        assert_eq!(admit(&wanted, None, true).spec, None);
    }
}
