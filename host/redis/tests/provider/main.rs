//! The provider as its caller sees it: against real servers and against ones that mean no good.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail by panicking"
)]

mod ask;
mod hostile;
mod real;
mod refused;
mod server;
mod tls;
