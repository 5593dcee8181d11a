//! The API: `RedisCluster`, `redis.operator-host.dev/v1alpha1`.
//!
//! **Invariant:** the spec is the user's; nothing here is ever written back to it (corpus B57).

use std::collections::BTreeMap;

use operator_host_sdk::{Condition, Time};
#[cfg(not(target_family = "wasm"))]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Redis, replicated or as a cluster of shards.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(
    not(target_family = "wasm"),
    derive(JsonSchema),
    schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.metadata.name.size() <= 40",
        "message": "the name may have at most 40 characters: names and labels of its pods are made from it",
    }]))
)]
pub struct RedisCluster {
    /// What is wanted.
    pub spec: Spec,
    /// What is observed.
    #[serde(default)]
    pub status: Option<Status>,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    not(target_family = "wasm"),
    derive(JsonSchema),
    schemars(extend("x-kubernetes-validations" = [
        {
            "rule": "self.clusterMode == oldSelf.clusterMode",
            "message": "clusterMode cannot be changed; create another RedisCluster and move the data",
            "fieldPath": ".clusterMode",
        },
        {
            "rule": "!has(self.replicasPerShard) || self.clusterMode",
            "message": "replicasPerShard is only for clusterMode; without it every pod but one is a replica",
            "fieldPath": ".replicasPerShard",
        },
        {
            "rule": "!self.clusterMode || self.replicas % (1 + (has(self.replicasPerShard) ? self.replicasPerShard : 1)) == 0",
            "message": "with clusterMode, replicas counts all pods and must be a multiple of 1 + replicasPerShard",
            "fieldPath": ".replicas",
        },
        {
            "rule": "has(self.storage) == has(oldSelf.storage)",
            "message": "storage cannot be added or removed later; create another RedisCluster and move the data",
        },
    ]))
)]
pub struct Spec {
    /// Redis pods in total, masters and replicas together.
    #[cfg_attr(not(target_family = "wasm"), schemars(range(min = 1, max = 500)))]
    pub replicas: u32,
    /// Version of Redis: the tag of the image `redis`.
    #[serde(default = "default_version")]
    #[cfg_attr(
        not(target_family = "wasm"),
        schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))
    )]
    pub version: String,
    /// Another image than `redis:<version>`. It must have `sh` and `redis-server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(not(target_family = "wasm"), schemars(length(min = 1, max = 512)))]
    pub image: Option<String>,
    /// Shard the keys over several masters (Redis Cluster). Cannot be changed.
    #[serde(default)]
    pub cluster_mode: bool,
    /// Replicas of each master, with clusterMode. 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(not(target_family = "wasm"), schemars(range(max = 5)))]
    pub replicas_per_shard: Option<u32>,
    /// A volume for each pod. Absent: data lives as long as its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// What each pod's container may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Directives of redis.conf, one key each. Keys that the operator needs for itself are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(not(target_family = "wasm"), schemars(schema_with = "crate::schema::config"))]
    pub config: BTreeMap<String, String>,
    /// A password for clients and between pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Protection against voluntary disruptions.
    #[serde(default, skip_serializing_if = "PodDisruptionBudget::is_default")]
    pub pod_disruption_budget: PodDisruptionBudget,
    /// Observe and report only: no command is sent to Redis, no pod is restarted, changes of the spec wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

fn default_version() -> String {
    "7.0".to_owned()
}

/// A volume for each pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    not(target_family = "wasm"),
    derive(JsonSchema),
    schemars(extend("x-kubernetes-validations" = [
        {
            "rule": "self.size == oldSelf.size",
            "message": "the size cannot be changed yet: a StatefulSet's volume claim template is immutable",
            "fieldPath": ".size",
        },
        {
            "rule": "has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
            "message": "storageClassName cannot be changed: the volumes exist already",
            "fieldPath": ".storageClassName",
        },
    ]))
)]
pub struct Storage {
    /// Size of each volume: `10Gi`.
    #[cfg_attr(not(target_family = "wasm"), schemars(schema_with = "crate::schema::size"))]
    pub size: String,
    /// Class of the volumes; the cluster's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(not(target_family = "wasm"), schemars(length(min = 1, max = 253)))]
    pub storage_class_name: Option<String>,
    /// What becomes of volumes that are no longer used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<RetentionPolicy>,
}

/// What becomes of volumes that are no longer used; as in a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct RetentionPolicy {
    /// When the RedisCluster is deleted.
    #[serde(default)]
    pub when_deleted: Retention,
    /// When there are fewer pods than before.
    #[serde(default)]
    pub when_scaled: Retention,
}

/// Keep or remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub enum Retention {
    /// The volume stays until somebody deletes its claim.
    #[default]
    Retain,
    /// The volume goes.
    Delete,
}

/// What a container may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct Resources {
    /// What is set aside for it, by resource name: `cpu: 100m`, `memory: 256Mi`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(not(target_family = "wasm"), schemars(schema_with = "crate::schema::quantities"))]
    pub requests: BTreeMap<String, Quantity>,
    /// What it may have at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(not(target_family = "wasm"), schemars(schema_with = "crate::schema::quantities"))]
    pub limits: BTreeMap<String, Quantity>,
}

/// A quantity as people type it: `1`, `"1"`, `"500m"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    /// Without quotes.
    Number(i64),
    /// With a suffix.
    Text(String),
}

/// A password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct Auth {
    /// Where the password is. A change of the Secret's content takes effect when pods restart.
    pub password_secret_ref: SecretKey,
}

/// One key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct SecretKey {
    /// The Secret.
    #[cfg_attr(not(target_family = "wasm"), schemars(length(min = 1, max = 253)))]
    pub name: String,
    /// The key in it.
    #[cfg_attr(not(target_family = "wasm"), schemars(length(min = 1, max = 253)))]
    pub key: String,
}

/// Protection against voluntary disruptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct PodDisruptionBudget {
    /// Whether there is one.
    #[serde(default)]
    pub mode: BudgetMode,
}

impl PodDisruptionBudget {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether there is a `PodDisruptionBudget`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub enum BudgetMode {
    /// One pod at a time may be evicted, when there is more than one.
    #[default]
    Auto,
    /// None.
    Disabled,
}

impl Spec {
    /// Replicas of each master in cluster mode.
    pub fn replicas_per_shard(&self) -> u32 {
        self.replicas_per_shard.unwrap_or(1)
    }

    /// Masters in cluster mode; 1 otherwise.
    pub fn shards(&self) -> u32 {
        if self.cluster_mode {
            (self.replicas / self.replicas_per_shard().saturating_add(1)).max(1)
        } else {
            1
        }
    }

    /// The image of the pods.
    pub fn image(&self) -> String {
        self.image.clone().unwrap_or_else(|| format!("redis:{}", self.version))
    }
}

/// What is observed. Rebuilt from observation in every run; the plugin only remembers what cannot be observed later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct Status {
    /// The generation this status was computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// In one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Pods that exist; what the scale subresource reports.
    pub replicas: u32,
    /// Pods whose Redis serves: a master, or a replica in sync with it.
    pub ready_replicas: u32,
    /// Pods there should be.
    pub total_replicas: u32,
    /// Which pods these are, as a label selector.
    pub selector: String,
    /// The pod that is the master; absent in cluster mode and while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Masters that own slots, in cluster mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// Slots with an owner, in cluster mode; 16384 when complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_assigned: Option<u32>,
    /// The lowest version of Redis among the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Each pod, by ordinal.
    #[cfg_attr(
        not(target_family = "wasm"),
        schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pod"]))
    )]
    pub nodes: Vec<NodeStatus>,
    /// What the operator is in the middle of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Something that looks wrong and is given time to prove otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<Suspect>,
    /// The state in detail.
    #[cfg_attr(
        not(target_family = "wasm"),
        schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))
    )]
    pub conditions: Vec<Condition>,
}

/// The state in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub enum Phase {
    /// The spec cannot be carried out.
    Failed,
    /// Pods are starting for the first time.
    Creating,
    /// All is well.
    Ready,
    /// Pods are being restarted for a new spec.
    Updating,
    /// The number of pods is changing.
    Scaling,
    /// It does not have all it should.
    Degraded,
    /// Only observed.
    Paused,
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct NodeStatus {
    /// Its name.
    pub pod: String,
    /// `master`, `replica` or `joining`; what its role label says.
    pub role: String,
    /// What it was found to be: `Member`, `Fresh`, `Gated`, `Silent`, `Loading`, `Down`, `Moved`, `Foreign`.
    pub state: String,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Its id in the Redis Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Whether it had all its master had, when master and replica were last both seen.
    #[serde(default)]
    pub in_sync: bool,
}

/// What the operator is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct Operation {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: OperationKind,
    /// On which pod.
    pub target: String,
    /// Since when.
    pub started_at: Time,
}

/// Kinds of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub enum OperationKind {
    /// The target becomes the master because there is none.
    Election,
    /// The target takes over from a master that works.
    Handover,
    /// The target takes over the slots of a master that is lost.
    Takeover,
    /// The target is restarted.
    Restart,
}

/// Something that looks wrong and is given time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(not(target_family = "wasm"), derive(JsonSchema))]
pub struct Suspect {
    /// What.
    pub subject: String,
    /// Since when.
    pub since: Time,
}
