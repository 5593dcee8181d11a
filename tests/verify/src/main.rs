//! `cargo verify`: everything that has to hold before a change is done. What `.ci/run` calls.
//!
//! **Invariant:** a step that cannot run fails; it does not pass silently.

use std::ffi::OsString;
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
        step("building", || cargo(&root, &["test", "--workspace", "--locked", "--no-run"]))?;
        let binaries = target(&root).join("debug");
        step("the RedisCluster plugin, as deploy/ wants it", || {
            let mut build = Command::new(binaries.join("operator-host-kit"));
            let out = root.join("deploy/plugins/redis/redis.wasm");
            build.args(["build", "plugins/redis", "--out"]).arg(out).current_dir(&root);
            run(&mut build)
        })?;
        step("tests", || {
            let mut test = Command::new(cargo_path());
            test.args(["test", "--workspace", "--locked", "--no-fail-fast"]).current_dir(&root);
            // What is built is used: building it alone would select other features.
            run(test.env("OPERATOR_HOST_BINARIES", &binaries))
        })?;
    }
    say(&format!("all good after {} s", started.elapsed().as_secs()));
    Ok(())
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
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

fn cargo_path() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    run(Command::new(cargo_path()).args(arguments).current_dir(root))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} has failed: {status}");
    }
    Ok(())
}
