//! The planner on situations, without servers: the bug corpus by name, and properties over random observations.

#[path = "planner/corpus_cluster.rs"]
mod corpus_cluster;
#[path = "planner/corpus_replication.rs"]
mod corpus_replication;
#[path = "planner/properties.rs"]
mod properties;
#[path = "planner/situation.rs"]
mod situation;
