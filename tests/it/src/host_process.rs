//! The host as a child process: started, killed, stopped, started again, several at once.
//!
//! **Invariant:** a host dies with the test process, whatever ends that.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use devcluster::{Signal, wait_for};
use rustix::process::{Pid, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{PATIENCE, host_binary};

/// Lines of the log that a failed test shows.
const LAST_LINES: usize = 60;

/// How to start a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Which API server, or which proxy before it.
    pub kubeconfig: PathBuf,
    /// Where compiled plugins are kept, so that the next host starts quickly.
    pub cache: PathBuf,
    /// The only namespaces to look at; none: all.
    pub namespaces: Vec<String>,
    /// More arguments for `operator-host run`.
    pub arguments: Vec<String>,
    /// More environment, such as `HOSTNAME`, by which two hosts tell each other apart.
    pub environment: Vec<(String, String)>,
}

/// A running host, killed when dropped.
#[derive(Debug)]
pub struct HostProcess {
    child: Mutex<Child>,
    pid: u32,
    address: SocketAddr,
    log: PathBuf,
}

impl HostProcess {
    /// Starts a host that appends its log to `log`; does not wait for it.
    pub fn start(options: &HostOptions, log: &Path) -> Result<Self> {
        let address = unused_address()?;
        let output = OpenOptions::new().create(true).append(true).open(log);
        let output = output.with_context(|| format!("opening {}", log.display()))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(host_binary()?)
            .args(["run", "--listen", &address.to_string()])
            .args(["--log", "info,host_engine=debug,host_kube=debug"])
            .arg("--kubeconfig")
            .arg(&options.kubeconfig)
            .arg("--cache-dir")
            .arg(&options.cache);
        for namespace in &options.namespaces {
            command.args(["--watch-namespace", namespace]);
        }
        command
            .args(&options.arguments)
            .envs(options.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("duplicating the log")?)
            .stderr(output);
        let child = spawn(command)?;
        let pid = child.id();
        Ok(Self { child: Mutex::new(child), pid, address, log: log.to_owned() })
    }

    /// Waits until so many plugins are loaded.
    pub async fn loaded(&self, plugins: usize) -> Result<()> {
        let wanted = format!("{plugins} plugins to be loaded");
        let loaded = wait_for(&wanted, PATIENCE, || async {
            if !self.is_running() {
                return Ok(Some(false));
            }
            let metrics = self.get("/metrics").await?;
            let loaded =
                metrics.lines().filter(|line| line.starts_with("operator_host_plugin_info{"));
            Ok((loaded.count() >= plugins).then_some(true))
        });
        if loaded.await? { Ok(()) } else { bail!("the host has ended: {}", self.last_words()) }
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(child.try_wait(), Ok(None))
    }

    /// Sends a signal: STOP and CONT for a pause, TERM for a polite end.
    pub fn signal(&self, signal: Signal) {
        send(self.pid, signal);
    }

    /// Something that kills it from wherever it is called.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        let pid = self.pid;
        move || send(pid, Signal::KILL)
    }

    /// Kills it and waits for its end.
    pub fn kill(&self) {
        send(self.pid, Signal::KILL);
        // Waiting fails only if it was waited for already.
        drop(self.child.lock().unwrap_or_else(PoisonError::into_inner).wait());
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it serves at a path.
    pub async fn get(&self, path: &str) -> Result<String> {
        let get = async {
            let mut stream = tokio::net::TcpStream::connect(self.address).await?;
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                self.address
            );
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        tokio::time::timeout(Duration::from_secs(5), get).await.context("the host is silent")?
    }

    /// Sum of a metric's samples whose labels contain all of `labels`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let metrics = self.get("/metrics").await?;
        let samples = metrics.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Everything it and the hosts before it have logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n")
    }
}

impl Drop for HostProcess {
    #[expect(clippy::print_stderr, reason = "a failed test shows what the host has said last")]
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the host's last words:\n{}", self.last_words());
        }
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        let _ = kill_process(pid, signal);
    }
}

/// Free a moment ago; nobody else on this machine takes ports from the kernel's range for long.
fn unused_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
    listener.local_addr().context("finding a free port")
}

type Request = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The kernel's parent-death signal follows the thread that starts a child, and a test's thread ends with the test.
fn spawn(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, inbox) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                // Nobody waiting: the test has ended.
                drop(reply.send(command.spawn()));
            }
        });
        requests
    });
    let (reply, started) = mpsc::channel();
    spawner.send((command, reply)).ok().context("the thread that starts hosts has ended")?;
    started.recv().context("the thread that starts hosts has ended")?.context("starting a host")
}

/// An empty file for a host's log.
pub(crate) fn log_file(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("host.log");
    File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    Ok(path)
}
