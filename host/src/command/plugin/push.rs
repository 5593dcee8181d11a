//! `plugin push`: a component goes to an OCI registry.

use std::collections::BTreeMap;

use host_engine::registry::Registries;

use crate::command::cluster::block_on;
use crate::command::output::print;
use crate::command::{file, signature};
use crate::flags::PushArgs;

/// Pushes a component and prints its reference by digest.
pub(crate) fn push(args: &PushArgs) -> anyhow::Result<()> {
    let PushArgs { file, reference, signature, registry_ca } = args;
    let plugin = file::load(file)?;
    let descriptor = plugin.descriptor();
    let annotations = BTreeMap::from([
        ("org.opencontainers.image.title".to_owned(), descriptor.name.clone()),
        ("org.opencontainers.image.version".to_owned(), descriptor.version.clone()),
    ]);
    let signature = signature.as_deref().map(signature::read).transpose()?;
    let registries = Registries::new(registry_ca.as_deref())?;
    let component = file::capture(file)?.bytes().to_vec();
    let pushed = block_on(async {
        Ok(registries.push(reference, component, annotations, signature.as_ref()).await?)
    });
    print(&pushed?)
}
