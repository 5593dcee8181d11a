//! The `redis` provider: looks at Redis servers (stage *observe*) and commands them (stage *apply*).
//!
//! A request is JSON from a plugin (`docs/providers.md` has the format). It is parsed and judged here,
//! the caller resolves the names in it (pod, Secrets, other pods), and [`probe`] or [`act`] carries it out
//! over a fresh connection.
//!
//! ```text
//! JSON ─► ProbeRequest │ ActionRequest ─► caller resolves names ─► Resolved ─► probe │ act ─► JSON
//! ```
//!
//! **Invariant:** a command outside the granted groups is never sent; a probe only ever observes.
//!
//! **Invariant:** the value of a Secret leaves this crate on the wire and nowhere else: not in a reply, an error
//! or a `Debug` text.
//!
//! **Invariant:** a server, however hostile, costs a request at most the bytes, values and time in [`limits`].
//!
//! This is the only crate that knows the Redis protocol; it knows nothing of Kubernetes' API.

mod capped;
mod command;
mod connection;
mod error_reply;
mod groups;
mod name;
mod purpose;
mod refused;
mod reply;
mod request;
mod resolved;
mod run;
mod table;
mod unreachable;

pub mod limits;

pub use groups::{Group, Groups, UnknownGroup, groups_from};
pub use refused::RefusedRequest;
pub use request::{ActionRequest, ProbeRequest, Request};
pub use resolved::{Resolved, SecretKey, SecretValue};
pub use run::{act, probe};
pub use unreachable::{Class, Unreachable};
