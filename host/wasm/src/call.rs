//! One call: a fresh instance within its budget, and what is left of it afterwards.
//!
//! **Invariant:** limits are in force before the first instruction runs, a module's start function included.

use host_core::grants::CallLimits;
use host_core::ident::PluginId;
use wasmtime::{ResourceLimiter, Store, Trap};

use crate::bindings::v1;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::fault::{FaultKind, classify};
use crate::limits;
use crate::log::{CallLog, LogLine};

/// What one call may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallBudget {
    pub(crate) deadline_ms: u32,
    pub(crate) memory_mib: u32,
    pub(crate) output_bytes: usize,
}

impl CallBudget {
    /// Takes a plugin's settings, or says which of them makes no sense.
    pub(crate) fn new(plugin: &PluginId, settings: &CallLimits) -> Result<Self, LoadError> {
        let within = |field, value, max| {
            if (1..=max).contains(&value) {
                Ok(value)
            } else {
                Err(LoadError::Limits { plugin: plugin.clone(), field, value, min: 1, max })
            }
        };
        Ok(Self {
            deadline_ms: within(
                "limits.callDeadlineMs",
                settings.call_deadline_ms,
                limits::CALL_DEADLINE_MS_MAX,
            )?,
            memory_mib: within("limits.memoryMib", settings.memory_mib, limits::MEMORY_MIB_MAX)?,
            output_bytes: limits::OUTPUT_BYTES_MAX,
        })
    }

    /// Ticks until the deadline has surely passed: the tick that is under way counts for nothing.
    fn ticks(self) -> u64 {
        u64::from(self.deadline_ms).div_ceil(limits::TICK_MS) + 1
    }
}

/// What a store holds: the log so far, and the memory left.
pub(crate) struct CallState {
    pub(crate) log: CallLog,
    memory_bytes_left: usize,
}

/// A call wanted more memory than its budget.
#[derive(Debug, thiserror::Error)]
#[error("memory budget exceeded")]
pub(crate) struct MemoryExceeded;

impl ResourceLimiter for CallState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let allowed = maximum.is_none_or(|maximum| desired <= maximum);
        match self.memory_bytes_left.checked_sub(more) {
            Some(left) if allowed => {
                self.memory_bytes_left = left;
                Ok(true)
            }
            // An error, not a refusal: a guest would answer a refusal with a bare `unreachable`.
            _ => Err(MemoryExceeded.into()),
        }
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        Err(MemoryExceeded.into())
    }

    fn table_growing(
        &mut self,
        _: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let max = limits::TABLE_ELEMENTS_MAX as usize;
        Ok(desired <= maximum.unwrap_or(max).min(max))
    }
}

/// Makes an instance, lets `body` use it, drops it. The log lines come back in either case.
pub(crate) fn call<R>(
    engine: &Engine,
    plugin: &v1::PluginPre<CallState>,
    budget: CallBudget,
    body: impl FnOnce(&v1::Plugin, &mut Store<CallState>) -> wasmtime::Result<R>,
) -> (Result<R, FaultKind>, Vec<LogLine>) {
    let (result, log) = run(engine, plugin, budget, body);
    let result = result.map_err(|error| classify(&error, &log, &budget));
    (result, log.into_lines())
}

/// Makes an instance and does nothing with it: the types of its exports are compared only then.
/// An error is that they differ; that it traps is for the first call to find out.
pub(crate) fn check_types(
    engine: &Engine,
    plugin: &v1::PluginPre<CallState>,
    budget: CallBudget,
) -> wasmtime::Result<()> {
    match run(engine, plugin, budget, |_, _| Ok(())).0 {
        Err(error) if !error.is::<Trap>() && !error.is::<MemoryExceeded>() => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn run<R>(
    engine: &Engine,
    plugin: &v1::PluginPre<CallState>,
    budget: CallBudget,
    body: impl FnOnce(&v1::Plugin, &mut Store<CallState>) -> wasmtime::Result<R>,
) -> (wasmtime::Result<R>, CallLog) {
    // Held until the store is gone, and with it the slot of the pool.
    let _slot = engine.enter();
    let memory_bytes_left = budget.memory_mib as usize * 1024 * 1024;
    let state = CallState { log: CallLog::default(), memory_bytes_left };
    let mut store = Store::new(engine.wasmtime(), state);
    store.limiter(|state| state);
    store.set_epoch_deadline(budget.ticks());
    store.set_hostcall_fuel(budget.output_bytes);
    let result = plugin.instantiate(&mut store).and_then(|instance| body(&instance, &mut store));
    (result, store.into_data().log)
}
