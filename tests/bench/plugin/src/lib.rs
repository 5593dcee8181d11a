//! The benchmark's plugin: the tutorial's operator, with the same logic as `tests/bench/peer`.
//!
//! One StatefulSet for each `Tutorial`, its pods listed, a status, everything looked at again after a minute.
//! The peer also opens a TCP connection to each pod that has an address; no provider does that here, and in the
//! benchmark no pod has one.

use std::hint::black_box;

use operator_host_sdk::{Context, Decision, Descriptor, Desired, Kind, ObjectQuery, Plugin, Stop};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const TUTORIAL: Kind = Kind::new("bench.operator-host.dev/v1", "Tutorial");
const STATEFUL_SET: Kind = Kind::new("apps/v1", "StatefulSet");
const POD: Kind = Kind::new("v1", "Pod");

/// The same as the peer's.
const RESYNC_SECONDS: u32 = 60;
const IMAGE: &str = "redis:8.2";
const PORT: u16 = 6379;

#[derive(Deserialize)]
struct Tutorial {
    spec: TutorialSpec,
}

#[derive(Deserialize)]
struct TutorialSpec {
    replicas: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TutorialStatus {
    phase: &'static str,
    ready_replicas: usize,
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

struct TutorialPlugin;

impl Plugin for TutorialPlugin {
    type Parent = Tutorial;

    fn describe() -> Descriptor {
        // `bench-swap` makes plugins of other names out of this one by replacing both names in its data. Without the
        // black boxes they would be numbers in its code.
        let (name, parent) = (black_box("tutorial"), black_box(TUTORIAL));
        Descriptor::new(name, env!("CARGO_PKG_VERSION"), parent).owns([STATEFUL_SET]).reads([POD])
    }

    fn reconcile(ctx: &Context<Tutorial>) -> Result<Decision, Stop> {
        if ctx.config("fault") == Some("panic") {
            fail();
        }
        let meta = ctx.meta();
        let replicas = ctx.parent.spec.replicas;
        let pods: Vec<Pod> =
            ctx.objects(&ObjectQuery::of(POD).labels(format!("app={}", meta.name)))?;
        let ready_replicas = pods.iter().filter(|pod| pod.status.pod_ip.is_some()).count();
        let phase = if ready_replicas == replicas as usize { "Ready" } else { "Creating" };
        let decision = Decision::new()
            .object(Desired::owned(&stateful_set(&meta.name, replicas))?)
            .requeue_after_secs(RESYNC_SECONDS);
        decision.status(&TutorialStatus { phase, ready_replicas })
    }
}

/// What `bench-swap` asks for: a revision that has to be taken back.
#[expect(clippy::panic, reason = "a fault that is asked for")]
fn fail() -> ! {
    panic!("the configuration asks for a fault")
}

fn stateful_set(name: &str, replicas: u32) -> Value {
    let labels = json!({"app": name});
    let container = json!({
        "name": "redis", "image": IMAGE, "ports": [{"name": "redis", "containerPort": PORT}],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    // The cluster of the benchmark has no nodes: nobody shall look for one.
                    "schedulingGates": [{"name": "bench.operator-host.dev/no-nodes"}],
                    "containers": [container],
                },
            },
        },
    })
}

operator_host_sdk::export!(TutorialPlugin);
