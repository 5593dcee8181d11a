//! Programs that the process node needs from the distribution: `redis-server`, `bwrap`, and what
//! every Debian has (`setpriv`, `nsenter` from util-linux).
//!
//! **Invariant:** installing never leaves the distribution's redis service running: it would hold
//! port 6379 on 127.0.0.1.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::report::Progress;

/// Program and the Debian package that has it.
const NEEDED: [(&str, &str); 4] = [
    ("redis-server", "redis-server"),
    ("bwrap", "bubblewrap"),
    ("setpriv", "util-linux"),
    ("nsenter", "util-linux"),
];
const POLICY_RC: &str = "/usr/sbin/policy-rc.d";

/// Makes sure that the programs are there that a cluster needs.
///
/// As root on a machine with `apt-get` the missing packages are installed; otherwise the error is
/// the line to run. Blocks: call it from `spawn_blocking` inside a runtime.
pub fn ensure_requirements(quiet: bool) -> Result<()> {
    ensure_programs(&NEEDED, quiet)
}

/// Makes sure that programs are there, each with the Debian package that has it. As [`ensure_requirements`].
pub fn ensure_programs(needed: &[(&'static str, &'static str)], quiet: bool) -> Result<()> {
    let packages = missing_packages(needed);
    if packages.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if !rustix::process::geteuid().is_root() || find_program("apt-get").is_none() {
        bail!("missing programs, install them with: {line}");
    }
    let progress = Progress::new(quiet);
    progress.say(&format!("installing {} ({line})", packages.join(", ")));
    if install(&packages).is_err() {
        progress.say("first try failed; running apt-get update, then trying again");
        apt(&["update"], &[])?;
        install(&packages).with_context(|| format!("could not run: {line}"))?;
    }
    let left = missing_packages(needed);
    if !left.is_empty() {
        bail!("still missing after the install: {}", left.join(", "));
    }
    Ok(())
}

/// The first executable of that name on `PATH`, or in the usual system directories.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn missing_packages(needed: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = needed
        .iter()
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    packages
}

/// Installs with service starts forbidden (policy-rc.d), unless the machine has its own policy.
fn install(packages: &[&str]) -> Result<()> {
    let policy = Path::new(POLICY_RC);
    let ours = !policy.exists();
    if ours {
        std::fs::write(policy, "#!/bin/sh\nexit 101\n").context("writing policy-rc.d")?;
        std::fs::set_permissions(policy, std::fs::Permissions::from_mode(0o755))
            .context("making policy-rc.d executable")?;
    }
    let outcome = apt(&["install", "-y", "--no-install-recommends"], packages);
    if ours {
        std::fs::remove_file(policy).context("removing policy-rc.d")?;
    }
    outcome
}

fn apt(arguments: &[&str], packages: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(["-q", "-o", "DPkg::Lock::Timeout=120"])
        .args(arguments)
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("running apt-get")?;
    if !output.status.success() {
        bail!("apt-get {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
