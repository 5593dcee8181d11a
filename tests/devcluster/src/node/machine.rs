//! What every part of the process node stands on.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use tokio::sync::broadcast;

use super::image::Images;
use crate::block::AddressBlock;
use crate::process::Spawner;

/// Named in managedFields.
pub(crate) const MANAGER: &str = "devcluster-node";

/// Changes that a busy pod may be behind; if more, it compares everything anyway.
const CHANGES_MAX: usize = 256;

/// The machine that all nodes of a cluster are on, and the way to their API server.
pub(crate) struct Machine {
    pub(crate) client: Client,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) block: Arc<AddressBlock>,
    pub(crate) state: PathBuf,
    pub(crate) images: Images,
    /// Namespaces in which a ConfigMap or Secret changed: their pods' volumes are compared.
    pub(crate) config_changes: broadcast::Sender<String>,
}

impl Machine {
    pub(crate) fn new(
        client: Client,
        spawner: Arc<Spawner>,
        block: Arc<AddressBlock>,
        state: PathBuf,
        operator_host_binary: Option<PathBuf>,
    ) -> Result<Self> {
        let images = Images::find(operator_host_binary)?;
        let config_changes = broadcast::Sender::new(CHANGES_MAX);
        Ok(Self { client, spawner, block, state, images, config_changes })
    }
}
