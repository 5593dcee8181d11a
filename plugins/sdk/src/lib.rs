//! What a plugin is written with: a trait, a typed view of the snapshot, builders, and a macro that makes it a component.
//!
//! A plugin is a pure function. `reconcile` reads a [`Context`], and returns a [`Decision`] or a [`Stop`].
//! It looks straight-line although it may be called several times for one decision: reading something that
//! is not known yet returns [`Stop::Ask`], `?` carries it to the host, and the host answers and calls again.
//!
//! ```
//! use operator_host_sdk::{Context, Decision, Descriptor, Desired, Kind, Plugin, Stop};
//! use serde_json::{Value, json};
//!
//! struct Hello;
//!
//! impl Plugin for Hello {
//!     type Parent = Value;
//!
//!     fn describe() -> Descriptor {
//!         Descriptor::new("hello", "0.1.0", Kind::new("example.com/v1", "Hello")).owns([Kind::new("v1", "ConfigMap")])
//!     }
//!
//!     fn reconcile(ctx: &Context<Value>) -> Result<Decision, Stop> {
//!         let name = &ctx.meta().name;
//!         let greeting = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
//!         Ok(Decision::new().object(Desired::owned(&greeting)?))
//!     }
//! }
//!
//! operator_host_sdk::export!(Hello);
//! ```
//!
//! **Invariant:** everything here is a function of the snapshot: no clock, no randomness, no state between calls.
//! The types of `wit/v1` are re-exported unchanged; what is added are constructors.

#[doc(hidden)]
pub mod bindings;
mod build;
mod condition;
mod context;
#[cfg(feature = "crd")]
pub mod crd;
#[doc(hidden)]
pub mod guest;
mod json_path;
mod kind;
pub mod log;
mod meta;
mod plugin;
mod stop;
pub mod testing;
mod time;

#[doc(hidden)]
pub use bindings::__export_component;
pub use bindings::contract::{
    Action, ActionOutcome, Answer, Decision, Descriptor, DesiredObject as Desired, Event,
    EventKind, Failure, FailureKind, KindRef, Object, ObjectOutcome, ObjectQuery, ObjectResult,
    OnImmutable, Outcome, Ownership, ProbeQuery, Problem, Query, Reply, Snapshot, Verdict,
};
pub use condition::{Condition, ConditionStatus};
pub use context::Context;
pub use kind::Kind;
pub use meta::{ObjectMeta, OwnerReference};
pub use plugin::Plugin;
pub use stop::Stop;
pub use time::{InvalidTime, Time};
