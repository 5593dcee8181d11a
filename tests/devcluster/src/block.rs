//! The cluster's address block: `127.<n>.0.0/16`, claimed by a lock file.
//!
//! Every pod, node and control plane program of a cluster has its own loopback address there, so
//! each Redis can have port 6379. Linux answers on all of 127.0.0.0/8 without any set-up.
//! The number also gives the API server's port on 127.0.0.1 (`16000 + n`, below the ephemeral
//! range), so no port is ever guessed.
//!
//! **Invariant:** no two clusters on a machine have the same block; the kernel drops the lock with
//! the process that held it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

use crate::cache;

/// 127.0.x and the low blocks are left to others (resolvers sit on 127.0.0.53, 127.0.1.1).
const BLOCKS: std::ops::RangeInclusive<u8> = 16..=250;
const PORT_BASE: u16 = 16_000;
/// Pods get 127.n.0.1 to 127.n.249.254; 127.n.254.x are nodes, 127.n.255.x the control plane.
const POD_ADDRESSES: u32 = 250 * 254;

/// A claimed block; released on drop.
#[derive(Debug)]
pub(crate) struct AddressBlock {
    number: u8,
    next_pod: AtomicU32,
    _lock: File,
}

impl AddressBlock {
    /// Claims the first free block.
    pub(crate) fn claim() -> Result<Self> {
        let dir = std::env::temp_dir().join("operator-host-blocks");
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        for number in BLOCKS {
            // Another user's lock file cannot be opened: that block is theirs.
            let Ok(file) = cache::lock_file(&dir.join(format!("{number}.lock"))) else {
                continue;
            };
            if file.try_lock().is_ok() && port_is_free(PORT_BASE + u16::from(number)) {
                return Ok(Self { number, next_pod: AtomicU32::new(0), _lock: file });
            }
        }
        anyhow::bail!("all address blocks 127.{BLOCKS:?}.0.0/16 are taken by running clusters")
    }

    /// The block as people write it.
    pub(crate) fn cidr(&self) -> String {
        format!("127.{}.0.0/16", self.number)
    }

    /// Port of the API server on 127.0.0.1.
    pub(crate) fn apiserver_port(&self) -> u16 {
        PORT_BASE + u16::from(self.number)
    }

    /// Address of a control plane program other than the API server.
    pub(crate) fn control_address(&self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.number, 255, index)
    }

    /// Address of a node (`hostIP` of its pods).
    pub(crate) fn node_address(&self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.number, 254, index.saturating_add(1))
    }

    /// The next pod address: counted up, so a re-created pod has another one (until 63,500 later).
    pub(crate) fn next_pod_address(&self) -> Ipv4Addr {
        let index = self.next_pod.fetch_add(1, Ordering::Relaxed) % POD_ADDRESSES;
        let [_, _, high, low] = (index / 254 * 256 + index % 254 + 1).to_be_bytes();
        Ipv4Addr::new(127, self.number, high, low)
    }
}

fn port_is_free(port: u16) -> bool {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_claims_never_share_a_block() {
        let (first, second) = (AddressBlock::claim().unwrap(), AddressBlock::claim().unwrap());
        assert_ne!(first.cidr(), second.cidr());
        assert_ne!(first.apiserver_port(), second.apiserver_port());
    }

    #[test]
    fn pod_addresses_count_up_and_skip_edges() {
        let block = AddressBlock::claim().unwrap();
        let all: Vec<Ipv4Addr> = (0..600).map(|_| block.next_pod_address()).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(all.iter().all(|ip| ip.octets()[3] != 0 && ip.octets()[3] != 255));
        assert_eq!(&all[254].octets()[2..], &[1, 1]);
    }
}
