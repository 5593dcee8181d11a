//! Everything that touches the Kubernetes API: connection, discovery, informers, writes, events.
//!
//! This is the only crate that knows kube-rs, and it decides nothing: planning is `host-core`'s, joining is the
//! host's. It offers verbs ([`Client`]), a synchronised view of the cluster ([`Informers`], [`Store`]) and a
//! [`Recorder`] for events.
//!
//! From kube it takes the client (TLS, authentication, retries of refused requests) and the request builders. It does
//! not take `kube::runtime::watcher`: that state machine restarts a watch that ends at once without
//! saying so, so no wrapper can slow it down, and it keeps bookmarks to itself, so nobody can tell how far a quiet
//! kind has been read. Lists and watches are read as borrowed JSON text instead, in `informer`.
//!
//! **Invariant:** unknown is never empty: contents can only be read through [`Store::view`], which refuses while the
//! kind is not synchronised.
//! **Invariant:** every API call has a deadline; no call waits for another kind's.
//! **Invariant:** no `serde_json::Value` tree is built for an observed object.
//! **Invariant:** what a Secret holds reaches no log and no error text.

mod access;
mod backoff;
mod change;
mod client;
mod connect;
mod discovered;
mod discovery;
mod error;
mod events;
mod gate;
mod informer;
mod informers;
mod lease;
mod purpose;
mod request;
mod resource;
mod scope;
mod secret;
mod store;
mod uri;
mod write;

#[cfg(test)]
mod fake;

pub use change::{Change, OnChange};
pub use client::{Client, InvalidName};
pub use connect::{ConnectError, ConnectOptions, connect};
pub use error::{ApiError, ApiErrorKind};
pub use events::{Recorder, Regarding, Reporter, UnrecordedEvents};
pub use gate::{Gate, NotLeader};
pub use informers::{InformerReport, Informers, Subscription};
pub use lease::{Elector, Leadership};
pub use request::{OnRequest, RequestDone};
pub use resource::{DiscoveryError, Resource};
pub use scope::{Form, Scope};
pub use secret::SecretValue;
pub use store::{NotSynced, Status, Store, View};
pub use write::{Deleted, Propagation};
