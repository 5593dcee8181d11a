//! Faults between a host and a real API server (ADR 0010).
//!
//! A [`FaultProxy`] is what a host under test believes to be the API server. It forwards everything under the identity
//! of a service account, so that RBAC is real, writes down every exchange, and does on request what networks, servers
//! and administrators do by accident: refuse, delay, hang, cut, expire. It can also call back in the middle of the n-th
//! write, which is where a host is killed.
//!
//! **Invariant:** without an injected fault the proxy changes nothing but the credentials: an answer that did not come
//! is a closed connection, never an answer of its own.

#![allow(clippy::indexing_slicing, reason = "a JSON value answers null for what is not there")]

mod exchange;
mod fault;
mod forward;
mod identity;
mod passing;
mod proxy;
mod shared;
mod watch;

pub use exchange::{Asked, Exchange, Traffic};
pub use fault::{Fault, Injected, Moment, Trap};
pub use proxy::FaultProxy;
pub use shared::WatchEnd;
