//! Stage *load*: machine code is linked, the plugin describes itself, and can be called from then on.

use std::fmt;

use host_core::grants::CallLimits;
use host_core::ident::PluginId;
use host_core::limits::PLUGIN_NAME_MAX;
use host_core::snapshot::{Descriptor, Failure, Snapshot, Verdict};
use host_core::text::is_dns_label;

use crate::bindings::v1;
use crate::call::{CallBudget, call, check_types};
use crate::compile::CompiledPlugin;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::fault::CallFault;
use crate::limits::DESCRIPTOR_BYTES_MAX;
use crate::log::LogLine;
use crate::state::CallState;
use crate::verify::Facts;

/// A plugin that is ready to be called, from any number of threads.
pub struct Plugin {
    id: PluginId,
    descriptor: Descriptor,
    facts: Facts,
    engine: Engine,
    pre: v1::PluginPre<CallState>,
    budget: CallBudget,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plugin").field(&self.id).finish_non_exhaustive()
    }
}

impl Engine {
    /// Links a compiled plugin and asks it once to describe itself, within `limits`.
    ///
    /// The descriptor is what the plugin says: it is neither checked nor granted yet.
    pub fn load(&self, compiled: CompiledPlugin, limits: &CallLimits) -> Result<Plugin, LoadError> {
        let CompiledPlugin { id, facts, code } = compiled;
        let budget = CallBudget::new(&id, limits)?;
        let link = |error: wasmtime::Error| LoadError::Link {
            plugin: id.clone(),
            problem: format!("{error:#}"),
        };
        let component = code.load(self.wasmtime()).map_err(link)?;
        let pre = self.linker().instantiate_pre(&component).map_err(link)?;
        let pre = v1::PluginPre::new(pre).map_err(link)?;
        check_types(self, &pre, budget).map_err(link)?;
        let small = CallBudget { output_bytes: DESCRIPTOR_BYTES_MAX, ..budget };
        let (descriptor, _) = call(self, &pre, small, |instance, store| {
            instance.operator_host_plugin_reconciler().call_describe(store)
        });
        let descriptor = match descriptor {
            Ok(descriptor) => Descriptor::from(descriptor),
            Err(kind) => return Err(CallFault { plugin: id, kind }.into()),
        };
        let id = named(id, &descriptor);
        Ok(Plugin { id, descriptor, facts, engine: self.clone(), pre, budget })
    }
}

/// From here on the plugin goes by its own name, unless that name is one nobody could print.
fn named(id: PluginId, descriptor: &Descriptor) -> PluginId {
    if is_dns_label(&descriptor.name, PLUGIN_NAME_MAX) {
        PluginId { name: descriptor.name.as_str().into(), ..id }
    } else {
        id
    }
}

impl Plugin {
    /// Its name and digest.
    pub fn id(&self) -> &PluginId {
        &self.id
    }

    /// What it says about itself: neither checked nor granted.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// What was known before it ran.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Calls the plugin for one snapshot, in a fresh instance.
    ///
    /// Blocks for as long as the call takes, and before that while as many calls as the engine allows are running.
    /// `log` gets the call's lines when it has ended, after a fault too.
    ///
    /// The outer error is the plugin's fault; the inner one is what the plugin itself says.
    pub fn reconcile(
        &self,
        snapshot: &Snapshot,
        log: &mut dyn FnMut(LogLine),
    ) -> Result<Result<Verdict, Failure>, CallFault> {
        let (result, lines) = call(&self.engine, &self.pre, self.budget, |instance, store| {
            v1::lend(snapshot, |snapshot| {
                instance.operator_host_plugin_reconciler().call_reconcile(store, snapshot)
            })
        });
        lines.into_iter().for_each(log);
        match result {
            Ok(verdict) => Ok(verdict.map(Verdict::from).map_err(Failure::from)),
            Err(kind) => Err(CallFault { plugin: self.id.clone(), kind }),
        }
    }
}
