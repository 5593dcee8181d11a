//! `cargo verify`: everything that has to hold before a change is done. What `.ci/run` calls.
//!
//! **Invariant:** a step that cannot run fails; it does not pass silently.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Parser;
use devcluster::{ControlPlane, ensure_requirements};

/// Runs all checks: format, lints, and every test, those on a real control plane with real Redis servers included.
#[derive(Debug, Parser)]
#[command(name = "cargo verify", bin_name = "cargo verify --")]
struct Arguments {
    /// Only the checks that take seconds: format and lints
    #[arg(long)]
    lints: bool,
}

fn main() -> anyhow::Result<()> {
    let Arguments { lints } = Arguments::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let started = Instant::now();
    step("format", || cargo(&root, &["fmt", "--all", "--check"]))?;
    step("lints", || {
        let arguments =
            ["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"];
        cargo(&root, &arguments)
    })?;
    if !lints {
        step("what the tests need", || {
            ensure_requirements(false)?;
            ControlPlane::ensure_built(false).map(drop)
        })?;
        step("host and plugin", || {
            cargo(&root, &["build", "--locked", "--package", "operator-host"])?;
            let out = root.join("deploy/plugins/redis/redis.wasm");
            let out = utf8(&out)?;
            cargo(
                &root,
                &[
                    "run",
                    "--locked",
                    "--package",
                    "operator-host-kit",
                    "--",
                    "build",
                    "plugins/redis",
                    "--out",
                    out,
                ],
            )
        })?;
        step("tests", || cargo(&root, &["test", "--workspace", "--locked", "--no-fail-fast"]))?;
    }
    say(&format!("all good after {} s", started.elapsed().as_secs()));
    Ok(())
}

fn utf8(path: &PathBuf) -> anyhow::Result<&str> {
    path.to_str().context("the repository's path is not UTF-8")
}

fn step(name: &str, run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    say(&format!("{name} …"));
    let started = Instant::now();
    run().with_context(|| format!("step {name:?}"))?;
    say(&format!("{name}: fine ({} s)", started.elapsed().as_secs()));
    Ok(())
}

#[expect(clippy::print_stderr, reason = "progress for a person at a terminal or in a CI log")]
fn say(text: &str) {
    eprintln!("verify: {text}");
}

fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(arguments).current_dir(root).status();
    let status = status.with_context(|| format!("cannot run cargo {}", arguments.join(" ")))?;
    if !status.success() {
        bail!("cargo {} has failed: {status}", arguments.join(" "));
    }
    Ok(())
}
