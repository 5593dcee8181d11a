//! What the API is told about a pod: phase, conditions, container statuses.
//!
//! **Invariant:** an unchanged status is not written; conditions set by others stay.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{Timestamp, Unit};
use serde_json::{Value, json};

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) started_at: String,
    pub(crate) finished_at: String,
}

/// What a container does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting { reason: String, message: String },
    Running { since: String },
    Terminated(Ending),
}

/// One container as the API sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) phase: Phase,
    pub(crate) last: Option<Ending>,
    pub(crate) restarts: i32,
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// Host pid while running.
    pub(crate) pid: Option<u32>,
}

impl ContainerView {
    pub(crate) fn new(name: &str, image: &str, reason: &str) -> Self {
        Self {
            name: name.to_owned(),
            image: image.to_owned(),
            phase: Phase::Waiting { reason: reason.to_owned(), message: String::new() },
            last: None,
            restarts: 0,
            started: false,
            ready: false,
            pid: None,
        }
    }

    fn json(&self, id: &str) -> Value {
        let ended = |ending: &Ending| {
            json!({"terminated": {
                "exitCode": ending.exit_code, "reason": ending.reason, "message": ending.message,
                "startedAt": ending.started_at, "finishedAt": ending.finished_at,
                "containerID": id,
            }})
        };
        let state = match &self.phase {
            Phase::Waiting { reason, message } => {
                json!({"waiting": {"reason": reason, "message": message}})
            }
            Phase::Running { since } => json!({"running": {"startedAt": since}}),
            Phase::Terminated(ending) => ended(ending),
        };
        json!({
            "name": self.name, "image": self.image, "imageID": format!("process://{}", self.image),
            "containerID": id, "restartCount": self.restarts, "ready": self.ready,
            "started": self.started, "state": state,
            "lastState": self.last.as_ref().map_or_else(|| json!({}), ended),
        })
    }
}

/// All that a pod's status is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodView {
    pub(crate) pod_ip: String,
    pub(crate) host_ip: String,
    pub(crate) start_time: String,
    pub(crate) inits: Vec<ContainerView>,
    pub(crate) mains: Vec<ContainerView>,
    /// All init containers succeeded.
    pub(crate) initialized: bool,
    /// An init container failed for good.
    pub(crate) init_failed: bool,
    /// Nothing runs any more, or ever will.
    pub(crate) stopped: bool,
}

/// Whether the pod's phase is Succeeded or Failed.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

impl PodView {
    fn phase(&self, restart_policy: &str) -> &'static str {
        if self.init_failed {
            return "Failed";
        }
        let ended = |view: &ContainerView| match &view.phase {
            Phase::Terminated(ending) => Some(ending.exit_code),
            Phase::Waiting { .. } | Phase::Running { .. } => None,
        };
        let codes: Vec<Option<i32>> = self.mains.iter().map(ended).collect();
        if codes.iter().all(Option::is_some) && !codes.is_empty() {
            let all_good = codes.iter().all(|code| *code == Some(0));
            match (restart_policy, all_good) {
                (_, true) if self.stopped || restart_policy != "Always" => return "Succeeded",
                ("Never", false) => return "Failed",
                (_, false) if self.stopped => return "Failed",
                _ => {}
            }
        }
        let ever_ran = |view: &ContainerView| {
            view.last.is_some() || !matches!(view.phase, Phase::Waiting { .. })
        };
        if self.initialized && self.mains.iter().all(ever_ran) { "Running" } else { "Pending" }
    }

    /// The status of `pod`, without transition times (see [`with_times`]).
    pub(crate) fn status(&self, pod: &Pod) -> Value {
        let spec = pod.spec.as_ref();
        let policy = spec.and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
        let phase = self.phase(policy);
        let done = matches!(phase, "Succeeded" | "Failed");
        let unready: Vec<&str> =
            self.mains.iter().filter(|view| !view.ready).map(|view| view.name.as_str()).collect();
        let containers_ready = self.initialized && unready.is_empty() && !done;
        let gates_open = spec
            .and_then(|spec| spec.readiness_gates.as_ref())
            .into_iter()
            .flatten()
            .all(|gate| condition_is_true(pod, &gate.condition_type));
        let not_ready = match (done, phase) {
            (true, "Succeeded") => ("PodCompleted", String::new()),
            (true, _) => ("PodFailed", String::new()),
            _ => ("ContainersNotReady", format!("containers with unready status: {unready:?}")),
        };
        let condition = |kind: &str, value: bool, (reason, message): (&str, String)| {
            let status = if value { "True" } else { "False" };
            let (reason, message) = if value { ("", String::new()) } else { (reason, message) };
            json!({"type": kind, "status": status, "reason": reason, "message": message})
        };
        let gate_reason = ("ReadinessGatesNotReady", "a readiness gate is not True".to_owned());
        let ready_reason = if containers_ready { gate_reason } else { not_ready.clone() };
        let init_reason =
            ("ContainersNotInitialized", "init containers have not finished".to_owned());
        let statuses = |views: &[ContainerView]| -> Vec<Value> {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            views
                .iter()
                .map(|view| view.json(&format!("process://{uid}/{}/{}", view.name, view.restarts)))
                .collect()
        };
        json!({
            "phase": phase, "observedGeneration": pod.metadata.generation,
            "podIP": self.pod_ip, "podIPs": [{"ip": self.pod_ip}],
            "hostIP": self.host_ip, "hostIPs": [{"ip": self.host_ip}],
            "startTime": self.start_time,
            "conditions": [
                condition("PodScheduled", true, ("", String::new())),
                condition("PodReadyToStartContainers", !done, ("", String::new())),
                condition("Initialized", self.initialized, init_reason),
                condition("ContainersReady", containers_ready, not_ready),
                condition("Ready", containers_ready && gates_open, ready_reason),
            ],
            "initContainerStatuses": statuses(&self.inits),
            "containerStatuses": statuses(&self.mains),
        })
    }
}

/// Adds `lastTransitionTime` to conditions: the pod's own where the status is the same.
pub(crate) fn with_times(mut status: Value, previous: Option<&Value>) -> Value {
    let now = now();
    let before = |kind: &Value, value: &Value| {
        let conditions = previous?.get("conditions")?.as_array()?;
        let same = conditions
            .iter()
            .find(|one| one.get("type") == Some(kind) && one.get("status") == Some(value))?;
        same.get("lastTransitionTime").cloned()
    };
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let null = Value::Null;
        let kind = condition.get("type").unwrap_or(&null);
        let value = condition.get("status").unwrap_or(&null);
        let time = before(kind, value).unwrap_or_else(|| json!(now));
        if let Some(object) = condition.as_object_mut() {
            object.insert("lastTransitionTime".to_owned(), time);
        }
    }
    status
}

fn condition_is_true(pod: &Pod, kind: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

/// The time as the API writes it, in whole seconds.
pub(crate) fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}

/// The time in microseconds, for Leases.
pub(crate) fn now_micros() -> String {
    format!("{:.6}", Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(phase: Phase, ready: bool) -> PodView {
        let mut container = ContainerView::new("redis", "redis:7", "ContainerCreating");
        container.phase = phase;
        container.ready = ready;
        PodView {
            pod_ip: "127.16.0.1".to_owned(),
            host_ip: "127.16.254.1".to_owned(),
            start_time: now(),
            inits: Vec::new(),
            mains: vec![container],
            initialized: true,
            init_failed: false,
            stopped: false,
        }
    }

    fn ending(exit_code: i32) -> Phase {
        Phase::Terminated(Ending {
            exit_code,
            reason: String::new(),
            message: String::new(),
            started_at: now(),
            finished_at: now(),
        })
    }

    #[test]
    fn phases_follow_the_restart_policy() {
        assert_eq!(view(Phase::Running { since: now() }, true).phase("Always"), "Running");
        assert_eq!(view(ending(0), false).phase("Always"), "Running");
        assert_eq!(view(ending(0), false).phase("Never"), "Succeeded");
        assert_eq!(view(ending(1), false).phase("Never"), "Failed");
        assert_eq!(view(ending(1), false).phase("OnFailure"), "Running");
    }

    #[test]
    fn transition_times_move_only_with_the_status() {
        let pod = Pod::default();
        let mut first = with_times(view(Phase::Running { since: now() }, true).status(&pod), None);
        for condition in first["conditions"].as_array_mut().unwrap() {
            condition["lastTransitionTime"] = json!("2020-01-01T00:00:00Z");
        }
        let second = view(Phase::Running { since: now() }, false).status(&pod);
        let second = with_times(second, Some(&first));
        assert_eq!(second["conditions"][2]["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_ne!(second["conditions"][4]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    }
}
