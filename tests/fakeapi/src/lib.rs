//! A Kubernetes API server in memory: a tower service under [`kube::Client::new`], for tests of a whole host in one
//! process, with tokio's time paused.
//!
//! A test has one [`Server`]: it gives clients to the host ([`Server::client`]), acts as a user ([`Server::put`],
//! [`Server::delete`]), waits without sleeping ([`Server::until`]), claims what was asked ([`Server::requests`],
//! [`Server::writes`]), and makes requests fail ([`Server::on_request`], [`Server::cut_watches`],
//! [`Server::compact`]).
//!
//! What it does as a real server does, as far as the host can see: discovery by group and version, lists by stream and
//! by page, watches with bookmarks and 410, the existence form, server-side apply, JSON and merge patches, the status
//! subresource, generations, finalizers, preconditions, garbage collection, dry runs, and the kinds of CRDs.
//!
//! # What it does not do
//! - It knows no schema: no field is unknown or invalid, nothing has a default, nothing is immutable, and no list is a
//!   map or a set. Two managers that share a list by its keys on a real server take it from each other here.
//! - It has no admission, no quota and no rights: everybody may do everything, impersonated or not.
//! - It has no controllers but the garbage collector, and that acts at once: a `StatefulSet` makes no pods unless the
//!   test does. Namespaces need not exist and cannot be terminating.
//! - It has no clock: times in objects count changes, from 2000 on. Nothing has a grace period.
//! - `managedFields` are kept but not shown. The versions of one kind are kinds apart: nothing is converted.
//! - It has no selectors, no `deletecollection`, no subresource but `status`, no table form, no YAML, no strategic merge
//!   patch, no aggregated APIs. A query parameter that it does not know is refused, so that nobody believes in it.
//! - An apply that takes the last field of a map takes the map along; a real server may leave it null or empty.
//! - Nobody has compared it with a real server yet, test by test.
//!
//! **Invariant:** it is deterministic: one counter gives resourceVersions, uids and times.
//! **Invariant:** nothing in it waits but on tokio's clock.

#![allow(clippy::indexing_slicing, reason = "a JSON value answers null for what is not there")]

mod call;
mod cascade;
mod delete;
mod fields;
mod kind;
mod list;
mod managers;
mod object;
mod patch;
mod refusal;
mod route;
mod server;
mod service;
mod shared;
mod state;
mod watch;
mod write;

pub use server::Server;
pub use shared::Fault;
