//! Everything in the operator host that *decides*: pure, synchronous, total.
//!
//! The hand-overs are `Snapshot → Decision → Plan → Outcome`. This crate defines them and computes the middle;
//! the adapter crates fill the first and carry out the last.
//!
//! **Invariant:** no tokio, kube, wasmtime or redis in this crate's tree; no clock, randomness, environment or
//! map order in anything that decides (`clippy.toml` beside this crate holds it).

pub mod backoff;
pub mod carried_out;
pub mod chance;
pub mod decision;
pub mod diff;
pub mod divergence;
pub mod expectations;
pub mod grants;
pub mod guard;
pub mod ident;
pub mod interest;
pub mod lease;
pub mod limits;
pub mod object;
pub mod plan;
pub mod plugin;
pub mod queue;
pub mod rollout;
pub mod selector;
pub mod snapshot;
pub mod status;
pub mod text;

mod invalid_decision;
mod moment;
mod raw_decision;
