//! Time, as everything that decides gets it: handed in, never read.

use std::time::Duration;

/// Time since the host started, monotonic.
pub type Moment = Duration;
