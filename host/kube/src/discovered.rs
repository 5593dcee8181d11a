//! What discovery has found out about the server, shared by all clones of a client.
//!
//! **Invariant:** no group and version waits for another one's request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use host_core::ident::Kind;
use tokio::time::Instant;

use crate::resource::Resource;

/// The kinds of one group and version, as last listed.
#[derive(Debug, Default)]
pub(crate) struct GroupVersion {
    pub(crate) listed: Option<Instant>,
    pub(crate) resources: BTreeMap<String, Arc<Resource>>,
}

/// What is known about the server: its kinds, and whether it lists by streaming. Holds what plugins were granted, so
/// it is as bounded as the grants.
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    groups: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<GroupVersion>>>>,
    pages_only: AtomicBool,
}

impl Discovered {
    /// Whether a list may be asked for as a stream.
    pub(crate) fn streams_lists(&self) -> bool {
        !self.pages_only.load(Ordering::Relaxed)
    }

    /// The server does not stream lists, or its etcd is too old for it (before 3.4.31 and 3.5.13).
    pub(crate) fn lists_by_pages_only(&self) {
        self.pages_only.store(true, Ordering::Relaxed);
    }

    /// Drops what is known about a group. A request that is under way ends for whoever waits for it, and is not
    /// remembered.
    pub(crate) fn forget_group(&self, group: &str) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|api_version, _| Kind::new(api_version.as_str(), "").group() != group);
    }

    /// What is known about a group and version; locked while it is listed.
    pub(crate) fn group(&self, api_version: &str) -> Arc<tokio::sync::Mutex<GroupVersion>> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(groups.entry(api_version.to_owned()).or_default())
    }
}
