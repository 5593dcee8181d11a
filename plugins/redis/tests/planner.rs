//! The planner on situations, without servers: the bug corpus by name, and properties over random observations.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and its tools are part of it"
)]

#[path = "planner/corpus_cluster.rs"]
mod corpus_cluster;
#[path = "planner/corpus_replication.rs"]
mod corpus_replication;
#[path = "planner/properties.rs"]
mod properties;
#[path = "planner/situation.rs"]
mod situation;
