//! One call: a fresh instance within its budget, what is left of it afterwards, and which fault an error was.
//!
//! **Invariant:** limits are in force before the first instruction runs, a module's start function included.

use host_core::grants::CallLimits;
use host_core::ident::PluginId;
use host_core::limits::cut;
use wasmtime::{Store, Trap, WasmBacktrace};

use crate::bindings::v1;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::fault::FaultKind;
use crate::limits::{self, FAULT_TEXT_BYTES_MAX, RECURSION_FRAMES};
use crate::log::{CallLog, LogLine, LogQuotaExceeded};
use crate::state::{CallState, MemoryExceeded};

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
    let mut store = Store::new(engine.wasmtime(), CallState::new(budget.memory_mib));
    store.limiter(|state| state);
    store.set_epoch_deadline(budget.ticks());
    store.set_hostcall_fuel(budget.output_bytes);
    let result = plugin.instantiate(&mut store).and_then(|instance| body(&instance, &mut store));
    (result, store.into_data().log)
}

/// wasmtime has no public type for this error; the tests hold the text.
const OUTPUT_EXHAUSTED: &str = "fuel allocated for hostcalls has been exhausted";

/// Finds the fault behind an error.
fn classify(error: &wasmtime::Error, log: &CallLog, budget: &CallBudget) -> FaultKind {
    if error.is::<MemoryExceeded>() {
        return FaultKind::Memory { mib: budget.memory_mib };
    }
    if error.is::<LogQuotaExceeded>() {
        return FaultKind::LogQuota;
    }
    let Some(trap) = error.downcast_ref::<Trap>() else {
        let root = error.root_cause().to_string();
        return if root.contains(OUTPUT_EXHAUSTED) {
            FaultKind::OutputTooLarge { max: budget.output_bytes }
        } else {
            FaultKind::BadOutput { problem: cut(&root, FAULT_TEXT_BYTES_MAX) }
        };
    };
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    if *trap == Trap::Interrupt {
        return FaultKind::Deadline { ms: budget.deadline_ms };
    }
    let runaway = *trap == Trap::MemoryOutOfBounds && backtrace.is_some_and(is_recursion);
    if *trap == Trap::StackOverflow || runaway {
        return FaultKind::StackOverflow;
    }
    match log.last_error() {
        Some(message) if *trap == Trap::UnreachableCodeReached => FaultKind::Panicked { message },
        _ => FaultKind::Trapped { problem: trap_text(*trap, backtrace) },
    }
}

fn is_recursion(backtrace: &WasmBacktrace) -> bool {
    let frames = backtrace.frames();
    let same = |index| frames.iter().filter(|frame| frame.func_index() == index).count();
    frames.iter().any(|frame| same(frame.func_index()) >= RECURSION_FRAMES)
}

fn trap_text(trap: Trap, backtrace: Option<&WasmBacktrace>) -> String {
    let text = trap.to_string();
    let text = text.strip_prefix("wasm trap: ").unwrap_or(&text);
    let function = backtrace
        .and_then(|backtrace| backtrace.frames().first())
        .and_then(|frame| frame.func_name());
    match function {
        Some(name) => cut(&format!("{text}, in {name}"), FAULT_TEXT_BYTES_MAX),
        None => text.to_owned(),
    }
}
