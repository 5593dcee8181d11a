//! Events, so that `kubectl describe pod` tells the story.
//!
//! Written once per call and never retried; callers only report transitions.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Resource as _;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::machine::Machine;
use super::status;

/// Longest note that the API accepts is 1,024 bytes.
const NOTE_BYTES_MAX: usize = 1_000;

/// Writes an Event about a pod in the background.
pub(crate) fn record(
    machine: &Machine,
    pod: &Pod,
    kind: &'static str,
    reason: &'static str,
    note: &str,
) {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let note = note.get(..note.floor_char_boundary(NOTE_BYTES_MAX)).unwrap_or_default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    let event = json!({
        "metadata": {"generateName": format!("{name}."), "namespace": namespace},
        "involvedObject": pod.object_ref(&()),
        "type": kind, "reason": reason, "message": note, "count": 1,
        "firstTimestamp": status::now(), "lastTimestamp": status::now(),
        "source": {"component": "devcluster-node"},
        "reportingComponent": "devcluster-node",
    });
    let events: Api<Event> = Api::namespaced(machine.client.clone(), &namespace);
    tokio::spawn(async move {
        if let Ok(event) = serde_json::from_value::<Event>(event) {
            // A lost event changes nothing; a namespace that is going away refuses them.
            drop(events.create(&PostParams::default(), &event).await);
        }
    });
}
