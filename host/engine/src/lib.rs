//! The controller engine: flow 1 reconciles what plugins decide, flow 2 swaps plugins as rollouts.
//!
//! It knows nothing of flags, printing, HTTP servers or signals: the program `operator-host` is one way to start it, and
//! `examples/embed.rs` shows another. It is put together from [`Parts`], runs until it is told to stop, and a
//! [`Monitor`] answers what outsiders ask.
//!
//! **Invariant:** flow 1 (`reconcile`) does not know flow 2 (`rollout`): it asks which revision runs a parent, and says
//! how that went.
//! **Invariant:** what observes and decides has no writer to hand (`logic`, `outlook`): a shadow run is the same
//! function as a run (ADR 0013).

mod calls;
mod clock;
mod dispatch;
mod election;
mod engine;
mod error;
pub mod explain;
mod kinds;
mod last_run;
mod loaded_plugin;
mod lock;
mod logic;
mod meter;
mod monitor;
mod outlook;
pub mod packing;
pub mod plan_report;
mod plugin_log;
mod plugins;
mod providers;
mod reader;
mod reconcile;
pub mod recording_file;
mod recordings;
pub mod registry;
mod rollout;
pub mod signature;
mod voice;
mod workers;

pub use clock::Clock;
pub use engine::{Engine, Parts, Settings};
pub use error::chain;
pub use meter::Meter;
pub use monitor::{Gauges, Monitor, PluginGauges};
pub use reconcile::STAGES;
pub use rollout::Sources;
pub use rollout::compilation::{Compilation, InProcess};
pub use workers::Lost;
