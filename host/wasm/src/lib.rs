//! The only crate that knows wasmtime: turns bytes into a plugin and calls it.
//!
//! The stages, in order, each a type that only the stage before it can make:
//! [`CapturedPlugin`] (bytes and digest) → [`VerifiedPlugin`] (structure, contract, imports) →
//! [`CompiledPlugin`] (machine code of this host's own making) → [`Plugin`] (described, ready to be called).
//!
//! Everything here blocks: call it from a thread that may.
//!
//! **Invariant:** [`Compiler`] shows no byte of a plugin to Cranelift inside this process; that is a child's work.
//! **Invariant:** machine code is loaded only when this host wrote it and its digest says so.
//! **Invariant:** every call gets a fresh instance, which is dropped afterwards whatever happened.
//! **Invariant:** nothing but the contract's log is linked.

mod bindings;
mod call;
mod capture;
mod compile;
mod config;
mod contract;
mod determinism;
mod engine;
mod error;
mod fault;
mod limits;
mod load;
mod log;
mod sniff;
mod state;
mod structure;
mod trusted;
mod verify;

pub use capture::CapturedPlugin;
pub use compile::child::{COMPILE_COMMAND, compile_child_main};
pub use compile::{CompiledPlugin, Compiler, CompilerLimits};
pub use determinism::{Divergence, SoundnessCheck};
pub use engine::{Engine, EngineConfig};
pub use error::{CaptureError, CompileError, EngineError, LoadError, VerifyError};
pub use fault::{CallFault, FaultKind};
pub use limits::COMPONENT_BYTES_MAX;
pub use load::Plugin;
pub use log::{LogLevel, LogLine};
pub use verify::{ContractVersion, Facts, VerifiedPlugin};
