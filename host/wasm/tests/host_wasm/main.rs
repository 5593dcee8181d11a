//! Plugins that spin, grow, trap, lie or are no plugins at all: limits hold, others are not affected,
//! and a person is told what is wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod bomb;
mod calling;
mod compiling;
mod guest;
mod refusing;
