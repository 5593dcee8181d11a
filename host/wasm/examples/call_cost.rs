//! What one call of a plugin costs: `call_cost FILE.wasm PARENT.json [CHILD.json ...]`.
//!
//! Prints the fastest, median and 99th percentile of 2,000 calls, each with a fresh instance, in microseconds.
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use host_core::grants::CallLimits;
use host_core::ident::Kind;
use host_core::object::StoredObject;
use host_core::snapshot::{Observed, Snapshot};
use host_wasm::{CapturedPlugin, CompiledPlugin, Engine, EngineConfig};

const CALLS: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: call_cost FILE.wasm PARENT.json [CHILD.json ...]";
    let (file, parent) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let snapshot = Snapshot {
        now: "2026-01-31T08:00:00Z".to_owned(),
        parent: observe(&parent)?,
        children: arguments.map(|file| observe(&file)).collect::<Result<_, _>>()?,
        answers: vec![],
        previous: None,
        config: vec![],
    };
    let verified = CapturedPlugin::new(&file, &fs::read(&file)?)?.verify()?;
    let start = Instant::now();
    let compiled = CompiledPlugin::in_process(verified)?;
    println!("compiled in {} ms", start.elapsed().as_millis());
    let engine = Engine::new(EngineConfig { max_concurrent_calls: 1 })?;
    let plugin = engine.load(compiled, &CallLimits::default())?;

    let mut durations = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let start = Instant::now();
        let answer = plugin.reconcile(&snapshot, &mut |line| println!("{}", line.message))?;
        durations.push(start.elapsed().as_micros());
        if let Err(failure) = answer {
            return Err(format!("{}: {}", failure.reason, failure.message).into());
        }
    }
    durations.sort_unstable();
    let at = |percent: usize| durations.get(CALLS * percent / 100).copied().unwrap_or_default();
    println!("min {} µs, p50 {} µs, p99 {} µs", at(0), at(50), at(99));
    Ok(())
}

/// Reads an object, its kind from its own `apiVersion` and `kind`.
fn observe(file: &str) -> Result<Observed, Box<dyn Error>> {
    let text = fs::read_to_string(file)?;
    let kind: serde_json::Value = serde_json::from_str(&text)?;
    let field = |name: &str| kind.get(name).and_then(|value| value.as_str()).unwrap_or_default();
    let kind = Kind::new(field("apiVersion"), field("kind"));
    let object = StoredObject::parse(&kind, &text)?;
    Ok(Observed { kind: Arc::new(kind), object: Arc::new(object) })
}
