//! The finalizer: put on before the first child exists, taken off when the plugin has finished or the user gives up.

use host_core::expectations::Expected;
use host_core::queue::ParentKey;
use host_core::text;

use super::observe::Observation;
use crate::dispatch::Dispatch;
use crate::error::Error;
use crate::loaded_plugin::LoadedPlugin;

/// Sees to the finalizer before a run. False: there is nothing to run.
pub(crate) async fn before(
    dispatch: &Dispatch,
    plugin: &LoadedPlugin,
    key: &ParentKey,
    observation: &Observation,
) -> Result<bool, Error> {
    let parent = &observation.parent.object;
    let wanted = plugin.plugin.descriptor().finalizer;
    let finalizer = plugin.finalizer();
    let present = parent.finalizers.iter().any(|name| **name == *finalizer);
    if !parent.deleting {
        if wanted && !present {
            let id = observation.id();
            let object = plugin.cluster.add_finalizer(&id, parent, &finalizer).await;
            let object = object.map_err(|source| Error::Api {
                doing: format!("adding the finalizer to {id}"),
                source,
            })?;
            if let Some(object) = object {
                let write = (id, Expected::Version(object.resource_version));
                dispatch.remember_writes(key, vec![write]);
            }
            // Nothing is created in the pass that adds the finalizer: a deletion may have come in between.
            return Err(Error::FinalizerAdded);
        }
        return Ok(true);
    }
    let abandoned = observation.annotation(text::ANNOTATION_ABANDON).as_deref() == Some("true");
    if present && (abandoned || !wanted) {
        after(plugin, observation).await?;
        return Ok(false);
    }
    // Without a finalizer of ours, deletion is left to Kubernetes' garbage collection.
    Ok(present)
}

/// Takes the finalizer off: the deletion may go on.
pub(crate) async fn after(plugin: &LoadedPlugin, observation: &Observation) -> Result<(), Error> {
    let parent = &observation.parent.object;
    if !parent.deleting {
        return Ok(());
    }
    let id = observation.id();
    let removed = plugin.cluster.remove_finalizer(&id, parent, &plugin.finalizer()).await;
    removed.map_err(|source| Error::Api {
        doing: format!("removing the finalizer from {id}"),
        source,
    })?;
    Ok(())
}
