//! A development cluster on one machine: a real control plane, and pods as processes.
//!
//! etcd, kube-apiserver and kube-controller-manager are built once from pinned Go modules; a *process
//! node* (a small kubelet and scheduler in this crate) runs pods as sandboxed processes, each with
//! its own loopback address. Tests and the demo use the same manifests as a user.
//!
//! ```no_run
//! # async fn run() -> anyhow::Result<()> {
//! let cluster = devcluster::DevCluster::start(devcluster::Options::default()).await?;
//! cluster.kubectl(&["apply", "--server-side", "-k", "deploy/"]).await?;
//! cluster.shutdown().await?;
//! # Ok(()) }
//! ```
//!
//! # What it does not do
//! - Services have no virtual addresses and no endpoints; there is no DNS (a pod knows its own name).
//! - The network is the machine's: no network policies, `hostPort` and `hostNetwork` mean nothing,
//!   every pod sees all.
//! - `kubectl logs`, `exec`, `port-forward` and `attach` do not work (`devcluster logs` does).
//! - Images are `redis:*` and `operator-host:*`, whatever the tag says; the root file system is the
//!   machine's `/usr`.
//! - Users, groups, fsGroup, seccomp, resource requests and limits are not applied
//!   (`readOnlyRootFilesystem` and dropping ALL capabilities are).
//! - No sidecars as init containers, ephemeral containers, gRPC probes, hostPath, CSI, in-place
//!   changes of running pods, resourceFieldRef, activeDeadlineSeconds, static pods, image volumes.
//!   HTTPS probes only check that the port accepts; termination messages are not read.
//! - A container's output goes straight to a file, so a program that opens /dev/stdout with
//!   truncation empties its own log; signals (`kill_container`, `freeze`) reach its first process.
//! - Times are shorter than real ones: crash back-off (1 s to 10 s), a dead node is noticed after
//!   8 s, and its pods are evicted 5 s later.
//! - Volumes are directories that every node reaches; sizes are not enforced.
//!
//! **Invariant:** everything is a child of this process and dies with it, whatever kills it.

mod binaries;
mod block;
pub mod cache;
mod cluster;
pub mod control;
pub mod logs;
mod node;
mod pki;
mod process;
mod report;
mod requirements;
mod servers;
mod state;
mod wait;

pub use binaries::{ControlPlane, find_go};
pub use cluster::{DevCluster, Options};
pub use requirements::{ensure_programs, ensure_requirements};
pub use rustix::process::Signal;
pub use wait::wait_for;
