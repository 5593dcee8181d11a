//! The contract in Rust, one module per major version, and nothing of wasmtime's types beyond this crate.

pub(crate) mod v1;
