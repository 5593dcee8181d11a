//! Two benchmarks on a real control plane without nodes: the host beside controller-runtime, and what a hot swap takes.

mod account;
mod api;
mod build;
pub mod compare;
mod figures;
mod inside;
mod micro;
mod operator;
mod report;
mod round;
mod say;
pub mod swap;
mod usage;
mod watch;
