//! The figures of a run of the demo.

use serde::Serialize;

/// What is measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// From `kubectl apply` of the RedisCluster to Ready, seconds.
    pub(crate) ready_seconds: f64,
    /// From the master's death to a new master that takes a write, seconds.
    pub(crate) failover_seconds: f64,
    /// Keys before the master was killed.
    pub(crate) keys_before: u64,
    /// Keys on the new master.
    pub(crate) keys_after: u64,
    /// The digest that made the cluster.
    pub(crate) digest_before: String,
    /// The digest after the swap.
    pub(crate) digest_after: String,
    /// From `kubectl apply` of the new plugin to the RedisCluster naming its digest, seconds.
    pub(crate) swap_seconds: f64,
    /// Restarts of the host's container.
    pub(crate) host_restarts: u64,
    /// Resident memory of the host at the end, bytes.
    pub(crate) host_rss_bytes: u64,
}
