//! Starting children that die with this process.
//!
//! The kernel's parent-death signal follows the *thread* that started a child, and test runtimes
//! come and go, so every child is started by one thread that lives as long as the cluster.
//! `setpriv --pdeathsig` sets the signal (bwrap has its own `--die-with-parent`).
//!
//! **Invariant:** when the [`Spawner`] is stopped, or this process dies in whatever way, the kernel
//! kills every child. Each child has its own process group: a ctrl-c at the terminal reaches only us.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

/// Starts waiting at once; more than this is a bug.
const PENDING_STARTS_MAX: usize = 256;

enum Request {
    Spawn(Box<Command>, oneshot::Sender<std::io::Result<Child>>),
    Stop,
}

/// The thread that starts children.
#[derive(Debug)]
pub(crate) struct Spawner {
    requests: mpsc::Sender<Request>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Spawner {
    /// Starts the thread; children are reaped by `runtime`.
    pub(crate) fn start(runtime: tokio::runtime::Handle) -> Result<Self> {
        let (requests, mut inbox) = mpsc::channel(PENDING_STARTS_MAX);
        let thread = std::thread::Builder::new()
            .name("devcluster-spawn".to_owned())
            .spawn(move || {
                let _entered = runtime.enter();
                while let Some(Request::Spawn(mut command, reply)) = inbox.blocking_recv() {
                    // Nobody waiting means the start was given up: the child is dropped and killed.
                    drop(reply.send(command.spawn()));
                }
            })
            .context("starting the spawn thread")?;
        Ok(Self { requests, thread: Mutex::new(Some(thread)) })
    }

    /// Starts `command` in its own process group.
    pub(crate) async fn spawn(&self, mut command: Command) -> Result<Child> {
        command.process_group(0).kill_on_drop(true);
        let (reply, outcome) = oneshot::channel();
        self.requests
            .send(Request::Spawn(Box::new(command), reply))
            .await
            .ok()
            .context("the cluster is shutting down")?;
        Ok(outcome.await.context("the cluster is shutting down")??)
    }

    /// Ends the thread, upon which the kernel kills every child it started.
    pub(crate) fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = thread {
            while let Err(mpsc::error::TrySendError::Full(_)) =
                self.requests.try_send(Request::Stop)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(thread.join());
        }
    }
}

/// A long-running program of the control plane.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: &'static str,
    child: Child,
}

impl Daemon {
    /// Starts `program` with its output appended to `log`.
    pub(crate) async fn start(
        spawner: &Spawner,
        name: &'static str,
        program: &Path,
        arguments: &[String],
        log: &Path,
    ) -> Result<Self> {
        let setpriv = crate::requirements::find_program("setpriv").context("no setpriv")?;
        let output = append(log)?;
        let mut command = Command::new(setpriv);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("duplicating a log file")?)
            .stderr(output);
        let child = spawner.spawn(command).await.with_context(|| format!("starting {name}"))?;
        Ok(Self { name, child })
    }

    /// An error with the exit status, if it has ended.
    pub(crate) fn check(&mut self, log: &Path) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("waiting for a child")? {
            anyhow::bail!("{} ended early ({status}):\n{}", self.name, tail(log, 10));
        }
        Ok(())
    }

    /// SIGKILL.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("killing {}", self.name))
    }

    /// SIGTERM, then SIGKILL after `patience`.
    pub(crate) async fn stop(mut self, patience: Duration) -> Result<()> {
        signal(self.child.id(), Signal::TERM);
        if tokio::time::timeout(patience, self.child.wait()).await.is_err() {
            self.child.kill().await.with_context(|| format!("killing {}", self.name))?;
        }
        Ok(())
    }
}

/// Sends a signal to a process that may be gone already; says whether it was there.
pub(crate) fn signal(pid: Option<u32>, signal: Signal) -> bool {
    pid.and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw)
        .is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Opens a log for appending, creating it and its directory.
pub(crate) fn append(path: &Path) -> Result<File> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

/// The last lines of a log, for an error message.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    let last = all.get(all.len().saturating_sub(lines)..).unwrap_or_default();
    format!("{}\n(log: {})", last.join("\n"), PathBuf::from(path).display())
}
