//! The engine: one per host. Holds the pool of slots, the clock of deadlines and the gate that keeps calls within the pool.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use wasmtime::component::{HasSelf, Linker};

use crate::bindings::v1;
use crate::config;
use crate::error::EngineError;
use crate::limits::{TICK, TICKS_IDLE_MAX};
use crate::state::CallState;

/// How the engine is set up.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Calls that run at once; more wait. The number of cores is right. Each takes 8 GiB of addresses (not of memory).
    pub max_concurrent_calls: u16,
}

/// Runs plugins. Cheap to clone; its thread ends with the last clone and the last plugin.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    wasmtime: wasmtime::Engine,
    linker: Linker<CallState>,
    gate: Gate,
    ticker: Ticker,
}

impl Engine {
    /// Reserves the pool and starts the ticker.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let calls = config.max_concurrent_calls.max(1);
        let wasmtime = wasmtime::Engine::new(&config::pooled(calls))
            .map_err(|error| EngineError::Pool { calls, problem: format!("{error:#}") })?;
        let mut linker = Linker::new(&wasmtime);
        v1::operator_host::plugin::log::add_to_linker::<_, HasSelf<CallState>>(
            &mut linker,
            |state| state,
        )
        .map_err(|error| EngineError::Link(format!("{error:#}")))?;
        let ticker = Ticker::start(wasmtime.clone()).map_err(EngineError::Ticker)?;
        let gate = Gate { free: Mutex::new(calls), changed: Condvar::new() };
        Ok(Self { shared: Arc::new(Shared { wasmtime, linker, gate, ticker }) })
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.shared.wasmtime
    }

    pub(crate) fn linker(&self) -> &Linker<CallState> {
        &self.shared.linker
    }

    /// Waits for a slot of the pool.
    pub(crate) fn enter(&self) -> Slot<'_> {
        self.shared.gate.enter();
        self.shared.ticker.call_begins();
        Slot(&self.shared)
    }
}

/// Counts slots, so that a pool that is full is never mistaken for a plugin's fault.
struct Gate {
    free: Mutex<u16>,
    changed: Condvar,
}

/// One slot, given back when dropped.
pub(crate) struct Slot<'a>(&'a Shared);

impl Gate {
    fn enter(&self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
    }

    fn leave(&self) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_one();
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.ticker.call_ends();
        self.0.gate.leave();
    }
}

/// Moves the epoch on while there are calls, so that they notice their deadline. Rests when there are none: a host that
/// has nothing to do wakes nobody.
struct Ticker {
    pulse: Arc<Pulse>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Pulse {
    calls: AtomicU32,
    stopped: AtomicBool,
}

impl Ticker {
    fn start(engine: wasmtime::Engine) -> std::io::Result<Self> {
        let pulse = Arc::new(Pulse::default());
        let beat = Arc::clone(&pulse);
        let tick = move || {
            let mut idle = 0;
            while !beat.stopped.load(Ordering::SeqCst) {
                idle = if beat.calls.load(Ordering::SeqCst) > 0 { 0 } else { idle + 1 };
                if idle > TICKS_IDLE_MAX {
                    // A call that came in since has left a token: parking ends at once.
                    thread::park();
                    idle = 0;
                    continue;
                }
                // Not parked for a time: a call that comes in would end it early and shorten the others' deadlines.
                thread::sleep(TICK);
                engine.increment_epoch();
            }
        };
        let thread = thread::Builder::new().name("plugin-epoch".into()).spawn(tick)?;
        Ok(Self { pulse, thread: Some(thread) })
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    fn call_begins(&self) {
        if self.pulse.calls.fetch_add(1, Ordering::SeqCst) == 0 {
            self.wake();
        }
    }

    fn call_ends(&self) {
        self.pulse.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.pulse.stopped.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and if it did there is nothing left to do about it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticker_ends_with_the_engine() {
        let engine = Engine::new(EngineConfig { max_concurrent_calls: 1 }).unwrap();
        let weak = engine.shared.wasmtime.weak();
        drop(engine);
        assert!(weak.upgrade().is_none(), "the ticker's thread still holds the engine");
    }
}
