//! The `cargo plugin` command.
//!
//! **Invariant:** results go to standard output, everything else to standard error.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use host_core::ident::Digest;
use operator_host_kit::{BuildOptions, build, facts};

#[derive(Parser)]
#[command(bin_name = "cargo plugin", about = "Build plugins for the operator host", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the plugin in a directory into a component
    Build {
        /// Directory with the plugin's Cargo.toml
        directory: PathBuf,
        /// Also write the component here
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Text to put into the component, which gives it another digest; the crate sees it as `OPERATOR_HOST_BUILD`
        #[arg(long, value_name = "TEXT")]
        build_id: Option<String>,
    },
}

fn main() -> anyhow::Result<()> {
    let Arguments { command } = Arguments::parse();
    match command {
        Command::Build { directory, out, build_id } => {
            let built = build(&directory, &BuildOptions { build_id, progress: true })?;
            if let Some(out) = &out {
                std::fs::write(out, &built.bytes)
                    .with_context(|| format!("writing {}", out.display()))?;
            }
            let path = out.unwrap_or(built.path);
            let report = report(&path.display().to_string(), &built.bytes)?;
            std::io::stdout().write_all(report.as_bytes()).context("writing to standard output")
        }
    }
}

/// A ConfigMap holds 1,048,576 bytes, and the API server's client-side apply a quarter of that.
fn report(path: &str, component: &[u8]) -> anyhow::Result<String> {
    let facts = facts(component).context("reading the component back")?;
    let zstd = zstd::encode_all(component, 19).context("compressing with zstd")?.len();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(component).context("compressing with gzip")?;
    let gzip = gzip.finish().context("compressing with gzip")?.len();
    let size = component.len();
    let digest = Digest::of(component);
    let (imports, exports) = (facts.imports.join(", "), facts.exports.join(", "));
    Ok(format!(
        "component  {path}\n\
         digest     {digest}\n\
         size       {size} bytes, {zstd} as zstd, {gzip} as gzip\n\
         imports    {imports}\n\
         exports    {exports}\n"
    ))
}
