//! The candidates as processes.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use crate::account::Account;
use crate::build::Built;
use crate::inside::{self, Inside};
use crate::usage::{self, Usage};

/// How often a starting or resting process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// No start takes longer.
const REST_DEADLINE: Duration = Duration::from_mins(2);

/// A process at rest uses less than this in [`LOOK_EVERY`]: two ticks of the kernel's clock.
const REST_CPU_S: f64 = 0.02;

/// Looks in a row without work after which a process is at rest.
const REST_LOOKS: u32 = 6;

/// Who takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Candidate {
    /// The host with the plugin.
    Host,
    /// The host with the plugin, and one that cannot work: its kind is missing, what it owns is forbidden.
    HostBesideFailing,
    /// The same logic on controller-runtime.
    Peer,
}

impl Candidate {
    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Host => "the host",
            Self::HostBesideFailing => "the host, beside a plugin that cannot work",
            Self::Peer => "the peer (controller-runtime)",
        }
    }

    /// For names of objects and files.
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::HostBesideFailing => "failing",
            Self::Peer => "peer",
        }
    }

    /// Whose requests it makes.
    pub(crate) fn account(self) -> Account {
        match self {
            Self::Host | Self::HostBesideFailing => Account { name: "operator-host" },
            Self::Peer => Account { name: "bench-peer" },
        }
    }
}

/// A running candidate; killed when dropped.
pub(crate) struct Operator {
    child: Child,
    pid: u32,
    log: PathBuf,
    /// Where the host serves its metrics; the peer has none.
    metrics: Option<SocketAddr>,
}

impl Operator {
    /// Starts it outside the cluster, with its log in a file.
    pub(crate) fn start(
        candidate: Candidate,
        built: &Built,
        kubeconfig: &Path,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let started = match candidate {
            Candidate::Host | Candidate::HostBesideFailing => {
                return Self::host(&built.host, kubeconfig, log, &[]);
            }
            Candidate::Peer => Self::spawn(Command::new(&built.peer), None, kubeconfig, log),
        };
        started.with_context(|| format!("cannot start {}", candidate.title()))
    }

    /// Starts a host, with further arguments.
    pub(crate) fn host(
        binary: &Path,
        kubeconfig: &Path,
        log: PathBuf,
        arguments: &[&OsStr],
    ) -> anyhow::Result<Self> {
        let (mut command, address) = (Command::new(binary), free_address()?);
        command.args(["run", "--listen", &address.to_string()]).args(arguments);
        let started = Self::spawn(command, Some(address), kubeconfig, log);
        started.context("cannot start the host")
    }

    fn spawn(
        mut command: Command,
        metrics: Option<SocketAddr>,
        kubeconfig: &Path,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let output = std::fs::File::create(&log)
            .with_context(|| format!("cannot create {}", log.display()))?;
        let child = command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().context("the process has ended at once")?;
        Ok(Self { child, pid, log, metrics })
    }

    /// Where a host answers.
    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        self.metrics.context("only the host answers")
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> anyhow::Result<String> {
        std::fs::read_to_string(&self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        usage::of(self.pid)
    }

    /// The largest resident set of the host's compiling child so far, bytes; None if it compiles nothing.
    pub(crate) fn compiling_peak_bytes(&self) -> Option<u64> {
        usage::child_peak_bytes(self.pid, "compile")
    }

    /// What the host says of itself so far; nothing for the peer.
    pub(crate) async fn inside(&self) -> anyhow::Result<Option<Inside>> {
        match self.metrics {
            Some(address) => inside::of(address).await.map(Some),
            None => Ok(None),
        }
    }

    /// An error with the end of the log, if it has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it has ended with {status}: {}", self.last_words());
        }
        Ok(())
    }

    /// The end of the log.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(5)).copied().collect::<Vec<_>>().join("\n")
    }

    /// Waits until it has worked and does nothing any more.
    pub(crate) async fn rest(&mut self) -> anyhow::Result<()> {
        let wait = async {
            let (mut before, mut idle) = (self.usage()?.cpu_s, 0);
            while idle < REST_LOOKS {
                tokio::time::sleep(LOOK_EVERY).await;
                self.check()?;
                let now = self.usage()?.cpu_s;
                idle = if now - before < REST_CPU_S { idle + 1 } else { 0 };
                before = now;
            }
            Ok(())
        };
        let waited = tokio::time::timeout(REST_DEADLINE, wait).await;
        waited.unwrap_or_else(|_| bail!("still busy after {REST_DEADLINE:?}"))
    }

    /// SIGKILL: what it has to say at its end is no part of the measurement.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.check()?;
        self.child.kill().await.context("cannot stop it")
    }
}

/// An address nobody listens on, as far as can be known.
fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}
