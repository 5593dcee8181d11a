//! What a plugin is built and tested with: `cargo plugin build` and the scenario harness.
//!
//! The stages: [`build()`] compiles a plugin's crate and wraps it into a component;
//! with the feature `harness`, `run_scenarios` runs that component on situations written as YAML
//! and compares what it decides with golden files.
//!
//! **Invariant:** equal sources give equal bytes, wherever they are built.

mod build;
mod component;
#[cfg(feature = "harness")]
mod golden;
#[cfg(feature = "harness")]
mod harness;
mod package;
#[cfg(feature = "harness")]
mod render;
#[cfg(feature = "harness")]
mod scenario;
#[cfg(feature = "harness")]
mod world;

pub use build::{BuildError, BuildOptions, Built, TARGET, build};
pub use component::{Facts, facts};
#[cfg(feature = "harness")]
pub use golden::{Mismatch, check_golden};
#[cfg(feature = "harness")]
pub use harness::{Harness, HarnessError, Run, ScenarioFailures, run_scenarios};
pub use package::{Package, PackageError};
#[cfg(feature = "harness")]
pub use scenario::{Probe, Scenario, ScenarioError};
