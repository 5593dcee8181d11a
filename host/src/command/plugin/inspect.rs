//! `plugin inspect`: what a plugin file says about itself, without a cluster.

use std::path::Path;

use host_core::ident::Kind;
use serde::Serialize;

use crate::command::file;
use crate::command::output::print;

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

/// Prints what a plugin file is.
pub(crate) fn inspect(file: &Path, json: bool) -> anyhow::Result<()> {
    let plugin = file::load(file)?;
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
    if json {
        return print(&serde_json::to_string(&report)?);
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
    let rows = rows.map(|(name, value)| format!("{:<11}{value}", format!("{name}:")));
    print(&rows.join("\n"))
}
