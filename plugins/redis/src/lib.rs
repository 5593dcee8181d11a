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
pub mod directives;
pub mod info;
pub mod kinds;
pub mod names;
pub mod nodes;
mod ordered;
pub mod plan;
pub mod provider;
pub mod quantity;
pub mod reconcile;
pub mod replication;
pub mod role;
#[cfg(not(target_family = "wasm"))]
mod schema;
pub mod status;

use operator_host_sdk::{Context, Decision, Descriptor, Plugin, Stop};

use kinds::{CONFIG_MAP, POD, POD_DISRUPTION_BUDGET, REDIS_CLUSTER, SERVICE, STATEFUL_SET};
use provider::PROVIDER;

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
