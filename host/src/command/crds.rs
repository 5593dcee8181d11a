//! `crds`: the definitions of kinds, the host's own or those that plugin files carry.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::command::file;
use crate::command::output::print;

/// The definition of the kind `Plugin`.
const PLUGIN_KIND: &str = include_str!("../../../crds/host/plugins.operator-host.dev_plugins.yaml");

/// Prints the CRDs that plugin files carry, or the host's own if there are none.
pub(crate) fn crds(files: &[PathBuf]) -> anyhow::Result<()> {
    if files.is_empty() {
        print(PLUGIN_KIND)?;
    }
    for file in files {
        let verified = file::verify(file)?;
        let crds = verified.facts().crds.as_deref().with_context(|| {
            format!("{} carries no CRDs; name them in its Cargo.toml under package.metadata.operator-host and build it again", file.display())
        })?;
        print(&format!("---\n{}", crds.trim_start_matches("---\n")))?;
    }
    Ok(())
}
