//! A node, as its parts know it.

use std::net::Ipv4Addr;

use tokio::sync::watch;

/// One node.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    /// False once killed: no heartbeats, no pods, no API writes on its behalf.
    pub(crate) alive: watch::Sender<bool>,
}

impl NodeInfo {
    pub(crate) fn is_alive(&self) -> bool {
        *self.alive.borrow()
    }
}
