//! RedisCluster: the knowledge of how to run Redis, as a plugin of the operator host.
//!
//! One reconcile is five stages, each its own module: *desired* ([`admit`], [`desired`]), *current* ([`current`],
//! [`info`], [`nodes`]), *diff* ([`replication`] or [`cluster`], into a [`plan`]), *act* ([`act`]) and *status* ([`status`]).
//! `README.md` says what it does for users.
//!
//! **Invariant:** everything but [`reconcile`] and [`act`] works on plain values and is tested without a host.

pub mod act;
pub mod admit;
pub mod api;
pub mod cluster;
pub mod current;
pub mod desired;
pub mod info;
pub mod names;
pub mod nodes;
mod ordered;
pub mod plan;
pub mod quantity;
pub mod reconcile;
pub mod replication;
#[cfg(not(target_family = "wasm"))]
mod schema;
pub mod status;

use operator_host_sdk::{Context, Decision, Descriptor, Kind, Plugin, Stop};

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
/// The provider that talks to Redis.
pub const PROVIDER: &str = "redis";

/// The plugin.
#[derive(Clone, Copy, Debug)]
pub struct RedisPlugin;

impl Plugin for RedisPlugin {
    type Parent = api::RedisCluster;

    fn describe() -> Descriptor {
        let version = match option_env!("OPERATOR_HOST_BUILD") {
            Some(build) => format!("{}+{build}", env!("CARGO_PKG_VERSION")),
            None => env!("CARGO_PKG_VERSION").to_owned(),
        };
        Descriptor::new(PROVIDER, version, REDIS_CLUSTER)
            .owns([STATEFUL_SET, CONFIG_MAP, SERVICE, POD_DISRUPTION_BUDGET])
            .patches([POD])
            .providers([PROVIDER])
    }

    fn reconcile(ctx: &Context<Self::Parent>) -> Result<Decision, Stop> {
        reconcile::reconcile(ctx)
    }
}

operator_host_sdk::export!(RedisPlugin);
