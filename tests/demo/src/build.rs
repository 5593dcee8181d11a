//! Builds the host and two builds of the Redis plugin, with the commands a user would type.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::say;

/// What was built.
#[derive(Debug)]
pub(crate) struct Built {
    /// The host's binary.
    pub(crate) host: PathBuf,
    /// The repository.
    pub(crate) root: PathBuf,
    /// A second build of the plugin, with other bytes.
    pub(crate) changed_plugin: PathBuf,
}

impl Built {
    /// Where `deploy/` takes the plugin from.
    pub(crate) fn plugin(&self) -> PathBuf {
        self.root.join("deploy/plugins/redis/redis.wasm")
    }
}

/// Builds everything, showing cargo's progress.
pub(crate) fn all() -> anyhow::Result<Built> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().context("cannot find the repository")?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let built = Built {
        host: target.join("release/operator-host"),
        changed_plugin: target.join("demo/redis-changed.wasm"),
        root,
    };
    std::fs::create_dir_all(target.join("demo"))
        .context("cannot create the demo's build directory")?;
    say::step("Building the host and the plugin (minutes the first time, seconds afterwards)");
    // Both in one go: built alone, each would select other features of what they share.
    let packages =
        ["build", "--release", "--package", "operator-host", "--package", "operator-host-kit"];
    run(Command::new(cargo()).args(packages).current_dir(&built.root))?;
    plugin(&built, &built.plugin(), &[])?;
    say::step("Building the plugin a second time, changed: its version says +demo");
    plugin(&built, &built.changed_plugin, &["--build-id", "demo"])?;
    Ok(built)
}

fn plugin(built: &Built, out: &Path, extra: &[&str]) -> anyhow::Result<()> {
    let mut build = Command::new(built.host.with_file_name("operator-host-kit"));
    build.args(["build", "plugins/redis", "--out"]).arg(out).args(extra).current_dir(&built.root);
    run(&mut build)
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    // Standard output is for the demo's last line alone.
    let status = command
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} has failed: {status}");
    }
    Ok(())
}
