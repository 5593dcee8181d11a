//! The control plane's programs: found in `KUBEBUILDER_ASSETS`, or built from the pinned Go modules.
//!
//! The pins are `controlplane/go.mod` and `go.sum`; they are compiled into this crate, so that an
//! installed `devcluster` needs no checkout.
//! The result is cached by version and by the hash of the pins, see [`crate::cache`].
//!
//! **Invariant:** building never writes into the checkout.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::cache;
use crate::report::Progress;

const GO_MOD: &str = include_str!("../controlplane/go.mod");
const GO_SUM: &str = include_str!("../controlplane/go.sum");
const VERSION_PACKAGE: &str = "k8s.io/component-base/version";
/// Program name and the Go package it is built from, the quick one first.
const PROGRAMS: [(&str, &str); 4] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
];
/// How often the build says that it is still alive.
const REPORT_EVERY: Duration = Duration::from_secs(15);

/// Paths of the control plane's programs.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    /// `etcd`.
    pub etcd: PathBuf,
    /// `kube-apiserver`.
    pub apiserver: PathBuf,
    /// `kube-controller-manager`.
    pub controller_manager: PathBuf,
    /// `kubectl`.
    pub kubectl: PathBuf,
}

impl ControlPlane {
    /// Finds the programs, or builds them (minutes, once; progress on stderr unless `quiet`).
    ///
    /// `KUBEBUILDER_ASSETS` wins where it has a program; what it lacks is built.
    /// Blocks: call it from `spawn_blocking` inside a runtime.
    pub fn ensure_built(quiet: bool) -> Result<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let provided = |program: &str| {
            assets.as_ref().map(|dir| dir.join(program)).filter(|path| path.is_file())
        };
        let mut built: Option<PathBuf> = None;
        let mut paths = Vec::new();
        for (program, _) in PROGRAMS {
            let path = if let Some(path) = provided(program) {
                path
            } else {
                let dir = match built.take() {
                    Some(dir) => dir,
                    None => build_cached(Progress::new(quiet))?,
                };
                let path = dir.join(program);
                built = Some(dir);
                path
            };
            paths.push(path);
        }
        match <[PathBuf; 4]>::try_from(paths) {
            Ok([etcd, kubectl, apiserver, controller_manager]) => {
                Ok(Self { etcd, apiserver, controller_manager, kubectl })
            }
            Err(_) => bail!("the list of control plane programs does not fit"),
        }
    }
}

/// The Kubernetes version that `go.mod` pins, with its `v`.
pub(crate) fn kubernetes_version() -> Result<&'static str> {
    GO_MOD
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|bare| GO_MOD.find(bare).and_then(|at| GO_MOD.get(at - 1..at + bare.len())))
        .context("controlplane/go.mod does not pin k8s.io/kubernetes")
}

fn cache_key(version: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(GO_MOD);
    hash.update(GO_SUM);
    let digest = cache::hex(hash.finalize().get(..6).unwrap_or_default());
    format!("controlplane-{version}-{digest}")
}

fn build_cached(progress: Progress) -> Result<PathBuf> {
    let version = kubernetes_version()?;
    let root = cache::cache_root()?;
    let done = root.join(cache_key(version));
    if done.is_dir() {
        return Ok(done);
    }
    std::fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
    let go = find_go()?;
    progress.say("waiting for the build lock (another process may be building)");
    let _lock = cache::lock(&root.join("controlplane.lock"))?;
    if done.is_dir() {
        return Ok(done);
    }
    let work = root.join(format!("building-{}", std::process::id()));
    let outcome = build(&go, &work, version, progress).and_then(|bin| {
        std::fs::rename(&bin, &done).with_context(|| format!("renaming to {}", done.display()))
    });
    if let Err(error) = std::fs::remove_dir_all(&work) {
        progress.say(&format!("could not remove {}: {error}", work.display()));
    }
    outcome.map(|()| done)
}

/// Builds every program into `work/bin` and returns that directory.
fn build(go: &Path, work: &Path, version: &str, progress: Progress) -> Result<PathBuf> {
    let (module, bin) = (work.join("module"), work.join("bin"));
    for dir in [&module, &bin] {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    for (name, text) in [("go.mod", GO_MOD), ("go.sum", GO_SUM)] {
        std::fs::write(module.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    progress.say(&format!(
        "building the Kubernetes {version} control plane, once (about 6 CPU minutes)"
    ));
    for (number, (program, package)) in PROGRAMS.into_iter().enumerate() {
        let label = format!("[{}/{}] {program}", number + 1, PROGRAMS.len());
        let mut command = Command::new(go);
        command
            .current_dir(&module)
            .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags"])
            .arg(link_flags(version))
            .arg("-o")
            .arg(bin.join(program))
            .arg(package)
            .env("GOWORK", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        run_reporting(&mut command, &work.join(format!("{program}.log")), &label, progress)?;
    }
    Ok(bin)
}

/// Without these, clients refuse the server's version string (`v0.0.0-master`).
fn link_flags(version: &str) -> String {
    let bare = version.trim_start_matches('v');
    let mut parts = bare.split('.');
    let (major, minor) = (parts.next().unwrap_or("1"), parts.next().unwrap_or("0"));
    format!(
        "-s -w -X {VERSION_PACKAGE}.gitVersion={version} -X {VERSION_PACKAGE}.gitMajor={major} \
         -X {VERSION_PACKAGE}.gitMinor={minor} -X {VERSION_PACKAGE}.gitTreeState=clean"
    )
}

fn run_reporting(command: &mut Command, log: &Path, label: &str, progress: Progress) -> Result<()> {
    let log_file =
        std::fs::File::create(log).with_context(|| format!("creating {}", log.display()))?;
    let mut child = command.stderr(log_file).spawn().context("starting the Go compiler")?;
    let started = Instant::now();
    let mut reported = started;
    progress.say(&format!("{label}: building"));
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for the Go compiler")? {
            break status;
        }
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            progress.say(&format!("{label}: building, {} s so far", started.elapsed().as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines.iter().skip(lines.len().saturating_sub(20)).copied().collect::<Vec<_>>();
        bail!("{label}: go build failed ({status}):\n{}", tail.join("\n"));
    }
    progress.say(&format!("{label}: done in {} s", started.elapsed().as_secs()));
    Ok(())
}

/// The `go` command; the error says how to get it.
pub fn find_go() -> Result<PathBuf> {
    let fallback = PathBuf::from("/usr/local/go/bin/go");
    crate::requirements::find_program("go")
        .or_else(|| fallback.is_file().then_some(fallback))
        .context(
            "`go` is not on PATH; it builds what is written in Go. Install Go 1.21 or newer with: \
             apt-get install golang-go (it fetches the toolchain that go.mod names by itself), or \
             set KUBEBUILDER_ASSETS to a directory with kube-apiserver, \
             kube-controller-manager, etcd and kubectl",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_comes_from_the_pin() {
        let version = kubernetes_version().unwrap();
        assert!(version.starts_with("v1.36."), "{version}");
        assert!(link_flags(version).contains("gitMinor=36"));
    }

    #[test]
    fn cache_key_names_the_version() {
        assert!(cache_key("v1.36.3").starts_with("controlplane-v1.36.3-"));
    }
}
