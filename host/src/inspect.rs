//! `plugin inspect` and `crds`: what a plugin file says about itself, without a cluster.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use host_core::grants::CallLimits;
use host_core::ident::Kind;
use host_wasm::{
    CapturedPlugin, Compiler, CompilerLimits, Engine, EngineConfig, Plugin, VerifiedPlugin,
};
use serde::Serialize;

/// What `inspect` prints.
#[derive(Debug, Serialize)]
struct Report {
    name: String,
    version: String,
    contract: String,
    parent: String,
    owns: Vec<String>,
    reads: Vec<String>,
    patches: Vec<String>,
    providers: Vec<String>,
    finalizer: bool,
    imports: Vec<String>,
    bytes: usize,
    digest: String,
    build: Option<String>,
    crds: bool,
}

/// The program itself: it compiles plugins as its own child.
pub(crate) fn this_binary() -> anyhow::Result<std::path::PathBuf> {
    std::env::current_exe()
        .context("cannot find the path of this program, which compiles plugins as its own child")
}

/// The component in a plugin file, unpacked.
pub(crate) fn capture(file: &Path) -> anyhow::Result<CapturedPlugin> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = file
        .file_stem()
        .map_or_else(|| "plugin".to_owned(), |stem| stem.to_string_lossy().into_owned());
    CapturedPlugin::new(&name, &bytes).with_context(|| format!("{} is no plugin", file.display()))
}

fn verify(file: &Path) -> anyhow::Result<VerifiedPlugin> {
    capture(file)?.verify().with_context(|| format!("{} is no plugin", file.display()))
}

/// A plugin file, ready to be called.
pub(crate) fn load(file: &Path) -> anyhow::Result<Plugin> {
    let verified = verify(file)?;
    let engine = Engine::new(EngineConfig { max_concurrent_calls: 1 })?;
    let compiler = Compiler::new(this_binary()?, None, CompilerLimits::default())?;
    Ok(engine.load(compiler.compile(verified)?, &CallLimits::default())?)
}

/// Prints what a plugin file is.
pub(crate) fn inspect(file: &Path, json: bool) -> anyhow::Result<()> {
    let plugin = load(file)?;
    let (descriptor, facts) = (plugin.descriptor(), plugin.facts());
    let kinds = |kinds: &[Kind]| kinds.iter().map(Kind::to_string).collect();
    let report = Report {
        name: descriptor.name.clone(),
        version: descriptor.version.clone(),
        contract: facts.contract.to_string(),
        parent: descriptor.parent.to_string(),
        owns: kinds(&descriptor.owns),
        reads: kinds(&descriptor.reads),
        patches: kinds(&descriptor.patches),
        providers: descriptor.providers.clone(),
        finalizer: descriptor.finalizer,
        imports: facts.imports.clone(),
        bytes: facts.size_bytes,
        digest: plugin.id().digest.to_string(),
        build: facts.build.clone(),
        crds: facts.crds.is_some(),
    };
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    let list = |items: &[String]| if items.is_empty() { "-".to_owned() } else { items.join(", ") };
    let rows = [
        ("Name", report.name),
        ("Version", report.version),
        ("Contract", report.contract),
        ("Parent", report.parent),
        ("Owns", list(&report.owns)),
        ("Reads", list(&report.reads)),
        ("Patches", list(&report.patches)),
        ("Providers", list(&report.providers)),
        ("Finalizer", report.finalizer.to_string()),
        ("Imports", list(&report.imports)),
        ("Size", format!("{} bytes", report.bytes)),
        ("Digest", report.digest),
        ("Build", report.build.unwrap_or_else(|| "-".to_owned())),
        (
            "CRDs",
            if report.crds { "embedded; print them with `operator-host crds`" } else { "-" }
                .to_owned(),
        ),
    ];
    for (name, value) in rows {
        writeln!(out, "{:<11}{value}", format!("{name}:"))?;
    }
    Ok(())
}

/// The definition of the kind `Plugin`.
const PLUGIN_KIND: &str = include_str!("../../crds/host/plugins.operator-host.dev_plugins.yaml");

/// Prints the CRDs that plugin files carry, or the host's own if there are none.
pub(crate) fn crds(files: &[impl AsRef<Path>]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if files.is_empty() {
        write!(out, "{PLUGIN_KIND}")?;
    }
    for file in files {
        let verified = verify(file.as_ref())?;
        let crds = verified.facts().crds.as_deref().with_context(|| {
            format!("{} carries no CRDs; name them in its Cargo.toml under package.metadata.operator-host and build it again", file.as_ref().display())
        })?;
        writeln!(out, "---\n{}", crds.trim_start_matches("---\n").trim_end())?;
    }
    Ok(())
}
