//! Builds what is compared: the host and its plugins by cargo, the peer by Go.
//!
//! **Invariant:** nothing is written into the checkout.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// What was built.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// The repository.
    pub(crate) root: PathBuf,
    /// The host's binary, release profile.
    pub(crate) host: PathBuf,
    /// The component with the benchmark's logic.
    pub(crate) plugin: PathBuf,
    /// A component whose parent kind does not exist in the benchmark's cluster.
    pub(crate) failing_plugin: PathBuf,
    /// The example that fills a cache and says what it takes.
    pub(crate) cache_memory: PathBuf,
    /// The peer's binary.
    pub(crate) peer: PathBuf,
}

/// What `bench-swap` needs.
#[derive(Clone, Debug)]
pub(crate) struct SwapBuilt {
    /// The repository.
    pub(crate) root: PathBuf,
    /// The host's binary, release profile.
    pub(crate) host: PathBuf,
    /// The same logic as often as it was asked for, each time as other bytes.
    pub(crate) plugins: Vec<PathBuf>,
}

/// Builds the host, and the benchmark's plugin under `count` build ids.
pub(crate) fn for_swaps(count: usize) -> anyhow::Result<SwapBuilt> {
    let (root, target, folder) = places()?;
    binaries(&root)?;
    let host = target.join("release/operator-host");
    let plugins = (0..count).map(|number| {
        let (id, out) = (format!("swap-{number}"), folder.join(format!("swap-{number}.wasm")));
        plugin(&host, &root, "tests/bench/plugin", &out, &["--build-id", &id])?;
        Ok(out)
    });
    let plugins = plugins.collect::<anyhow::Result<_>>()?;
    Ok(SwapBuilt { root, host, plugins })
}

/// The repository, cargo's target directory, and the one for what only the benchmarks need.
fn places() -> anyhow::Result<(PathBuf, PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().context("cannot find the repository")?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder).context("cannot create the build directory")?;
    Ok((root, target, folder))
}

fn binaries(root: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from);
    // All in one go: built alone, each would select other features of what they share.
    let mut build = Command::new(&cargo);
    build.args(["build", "--release", "--bins", "--examples", "--package", "operator-host"]);
    build.args(["--package", "operator-host-kit", "--package", "host-kube"]);
    run(build.current_dir(root))
}

/// Builds everything, showing the compilers' progress.
pub(crate) fn all() -> anyhow::Result<Built> {
    let (root, target, folder) = places()?;
    binaries(&root)?;
    let built = Built {
        host: target.join("release/operator-host"),
        plugin: folder.join("tutorial.wasm"),
        failing_plugin: folder.join("hello.wasm"),
        cache_memory: target.join("release/examples/cache_memory"),
        peer: peer(&root)?,
        root,
    };
    plugin(&built.host, &built.root, "tests/bench/plugin", &built.plugin, &[])?;
    plugin(&built.host, &built.root, "plugins/hello", &built.failing_plugin, &[])?;
    Ok(built)
}

fn plugin(host: &Path, root: &Path, source: &str, out: &Path, more: &[&str]) -> anyhow::Result<()> {
    let mut build = Command::new(host.with_file_name("operator-host-kit"));
    run(build.args(["build", source, "--out"]).arg(out).args(more).current_dir(root))
}

/// Go keeps what it has compiled and notices what has changed; only the linking is done again. The name says the
/// version, so that checkouts of different versions do not take turns.
fn peer(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = devcluster::cache::cache_root()?;
    std::fs::create_dir_all(&folder).context("cannot create the cache directory")?;
    let binary = folder.join(format!("bench-peer-{}", peer_version(root)?));
    let go = devcluster::find_go()?;
    let mut build = Command::new(go);
    build
        .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w", "-o"])
        .arg(&binary)
        .arg(".")
        .env("GOWORK", "off")
        .current_dir(root.join("tests/bench/peer"));
    run(&mut build)?;
    Ok(binary)
}

/// The version of controller-runtime that the peer pins.
fn peer_version(root: &Path) -> anyhow::Result<String> {
    let manifest = std::fs::read_to_string(root.join("tests/bench/peer/go.mod"))
        .context("cannot read the peer's go.mod")?;
    let pinned = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("sigs.k8s.io/controller-runtime "));
    Ok(pinned.context("the peer's go.mod does not pin controller-runtime")?.trim().to_owned())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    // Standard output is for the last line alone.
    let program: OsString = command.get_program().to_owned();
    let status = command
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !status.success() {
        bail!("{command:?} has failed: {status}");
    }
    Ok(())
}
