//! How the engine speaks: events in the cluster while it leads, and measurements.
//!
//! **Invariant:** never waits, and a standby sends nothing.

use std::sync::Arc;

use host_core::decision::Event;
use host_core::text;
use host_kube::{Gate, Recorder, Regarding, Reporter};

use crate::meter::Meter;

/// Where events and measurements go. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Voice {
    pub(crate) meter: Arc<dyn Meter>,
    recorder: Recorder,
    gate: Gate,
    instance: Arc<str>,
}

impl Voice {
    /// Speaks as `instance` while the gate is open.
    pub(crate) fn new(
        meter: Arc<dyn Meter>,
        recorder: Recorder,
        gate: Gate,
        instance: &str,
    ) -> Self {
        Self { meter, recorder, gate, instance: instance.into() }
    }

    /// Records an event. A standby sees the same things and leaves them to the leader.
    pub(crate) fn record(&self, controller: &str, regarding: Regarding, event: Event) {
        if !self.is_leading() {
            return;
        }
        let controller = format!("{}/{controller}", text::DOMAIN);
        let reporter = Reporter { controller, instance: (*self.instance).to_owned() };
        self.recorder.record(reporter, regarding, event);
    }

    /// Whether this host may write.
    pub(crate) fn is_leading(&self) -> bool {
        self.gate.is_open()
    }
}
