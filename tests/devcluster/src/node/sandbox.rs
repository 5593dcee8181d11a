//! Command lines for bubblewrap (a container) and nsenter (a command inside one).
//!
//! A container has its own mount, pid, uts and ipc namespaces; the network is the host's, where each
//! pod has its own loopback address. Users and resource limits are not applied.
//!
//! bwrap reports the pid of the container's first process on a descriptor. Without `pre_exec` the
//! only descriptors that a child inherits are 0 to 2, so a shell moves stdin to 9.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{PipeWriter, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use tokio::process::{Child, Command};

use crate::process::Spawner;
use crate::requirements::find_program;

/// Files of /etc that programs expect; the pod's own hosts file comes on top.
const ETC: [&str; 8] = [
    "passwd",
    "group",
    "nsswitch.conf",
    "ssl",
    "ld.so.cache",
    "ld.so.conf",
    "localtime",
    "alternatives",
];
const ETC_MORE: [&str; 1] = ["ld.so.conf.d"];
/// On a Debian with merged /usr these are symlinks into it.
const ROOTS: [&str; 5] = ["bin", "sbin", "lib", "lib64", "lib32"];
/// bwrap answers within milliseconds; its answer is some 100 bytes.
const INFO_BYTES_MAX: u64 = 4_096;

/// A host path that a container sees.
#[derive(Debug, Clone)]
pub(crate) struct Bind {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

/// Everything that bwrap has to know.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) hostname: String,
    pub(crate) hosts_file: PathBuf,
    pub(crate) binds: Vec<Bind>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) workdir: String,
    pub(crate) read_only_root: bool,
    pub(crate) drop_capabilities: bool,
    pub(crate) argv: Vec<String>,
}

/// A running container: bwrap, and the process inside.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) pid: u32,
    pub(crate) environment: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Info {
    #[serde(rename = "child-pid")]
    child_pid: u32,
}

impl Sandbox {
    /// Starts the container with its output appended to `log`.
    pub(crate) async fn start(self, spawner: &Spawner, log: File) -> Result<Running> {
        let (mut reader, writer) = std::io::pipe().context("making a pipe")?;
        let command = self.command(writer, log)?;
        let child = spawner.spawn(command).await.context("starting bwrap")?;
        let text = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            reader.by_ref().take(INFO_BYTES_MAX).read_to_string(&mut text).map(|_| text)
        })
        .await
        .context("reading bwrap's answer")?
        .context("reading bwrap's answer")?;
        let info: Info = serde_json::from_str(&text)
            .context("bwrap did not start the container; see its log")?;
        Ok(Running { child, pid: info.child_pid, environment: self.environment })
    }

    fn command(&self, info: PipeWriter, log: File) -> Result<Command> {
        let bwrap = find_program("bwrap").context("no bwrap on PATH")?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "exec 9>&0 0</dev/null; exec \"$@\"", "sh"])
            .arg(bwrap)
            .args(["--info-fd", "9", "--die-with-parent", "--as-pid-1"])
            .args(["--unshare-pid", "--unshare-uts", "--unshare-ipc", "--hostname", &self.hostname])
            .args(root_filesystem(self.read_only_root))
            .arg("--ro-bind")
            .arg(&self.hosts_file)
            .arg("/etc/hosts");
        for bind in &self.binds {
            command.arg(if bind.read_only { "--ro-bind" } else { "--bind" });
            command.arg(&bind.source).arg(&bind.target);
        }
        if self.read_only_root {
            command.args(["--remount-ro", "/"]);
        }
        if self.drop_capabilities {
            command.args(["--cap-drop", "ALL"]);
        }
        command.arg("--clearenv");
        for (name, value) in &self.environment {
            command.args(["--setenv", name, value]);
        }
        command
            .args(["--chdir", &self.workdir, "--"])
            .args(&self.argv)
            .stdin(Stdio::from(info))
            .stdout(log.try_clone().context("duplicating the log")?)
            .stderr(log);
        Ok(command)
    }
}

fn root_filesystem(read_only: bool) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut push = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    push(&["--ro-bind", "/usr", "/usr"]);
    for name in ROOTS {
        let path = format!("/{name}");
        match std::fs::read_link(&path) {
            Ok(target) => push(&["--symlink", &target.display().to_string(), &path]),
            Err(_) => push(&["--ro-bind-try", &path, &path]),
        }
    }
    // Directories that bwrap makes on the way to a bind mount are only for their owner; these are not.
    push(&["--dir", "/etc", "--dir", "/var", "--dir", "/var/run", "--dir", "/run"]);
    for name in ETC.iter().chain(&ETC_MORE) {
        let path = format!("/etc/{name}");
        push(&["--ro-bind-try", &path, &path]);
    }
    push(&["--proc", "/proc", "--dev", "/dev", "--dir", "/data", "--dir", "/root"]);
    // Kept writable memory only where the pod did not ask for a read-only root.
    push(if read_only { &["--dir", "/tmp"] } else { &["--tmpfs", "/tmp"] });
    arguments
}

/// A command that runs inside a container's namespaces and dies with whoever waits for it.
pub(crate) fn enter(
    pid: u32,
    environment: &BTreeMap<String, String>,
    argv: &[String],
) -> Result<Command> {
    let nsenter = find_program("nsenter").context("no nsenter on PATH")?;
    let mut command = Command::new(nsenter);
    command.args(["--target", &pid.to_string(), "--mount", "--pid", "--uts", "--ipc"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--preserve-credentials"]);
    }
    command
        .args(["--root", "--wd", "--", "/usr/bin/setpriv", "--pdeathsig", "KILL", "--"])
        .args(argv)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// The hosts file of a pod: itself, no other names.
pub(crate) fn write_hosts(
    path: &Path,
    address: std::net::Ipv4Addr,
    names: &[String],
) -> Result<()> {
    let text = format!("127.0.0.1\tlocalhost\n{address}\t{}\n", names.join(" "));
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
