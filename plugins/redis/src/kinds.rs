//! Kinds of objects: the parent, what the plugin makes of it, and pods.

use operator_host_sdk::Kind;

/// The parent.
pub const REDIS_CLUSTER: Kind = Kind::new("redis.operator-host.dev/v1alpha1", "RedisCluster");
/// Pods.
pub const POD: Kind = Kind::new("v1", "Pod");
/// What makes pods.
pub const STATEFUL_SET: Kind = Kind::new("apps/v1", "StatefulSet");
/// Configuration.
pub const CONFIG_MAP: Kind = Kind::new("v1", "ConfigMap");
/// Ways to pods.
pub const SERVICE: Kind = Kind::new("v1", "Service");
/// Protection from disruptions.
pub const POD_DISRUPTION_BUDGET: Kind = Kind::new("policy/v1", "PodDisruptionBudget");
