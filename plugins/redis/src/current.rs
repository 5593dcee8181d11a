//! What is there: stage *current*. Pods from Kubernetes joined with what their Redis said.
//!
//! **Invariant:** silent is not stopped, stopped is not empty. A Redis that did not answer has no numbers here at all.

use operator_host_sdk::{ObjectMeta, Time};
use serde::Deserialize;

use crate::info::{Info, InfoRole};
use crate::names::{self, GATE_PORT, LABEL_ROLE, PORT};
use crate::nodes::Table;
use crate::role::Role;

/// A Pod as the API has it, as far as it matters here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Name, labels, owner.
    pub metadata: ObjectMeta,
    /// What the kubelet reports.
    pub status: PodStatus,
}

/// What the kubelet reports.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: String,
    /// Empty until the pod has an address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// `Ready` among them.
    pub conditions: Vec<PodCondition>,
    /// One per container.
    pub container_statuses: Vec<ContainerStatus>,
}

/// One condition of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
}

/// What the kubelet reports of one container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// What it does now.
    pub state: ContainerState,
    /// How often it was restarted.
    pub restart_count: u32,
}

/// What a container does now; one of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It runs.
    pub running: Option<Running>,
    /// It has ended.
    pub terminated: Option<serde_json::Value>,
}

/// It runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Since when.
    pub started_at: Option<Time>,
}

/// Kubernetes' opinion of a pod's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has not run yet.
    Coming,
    /// It runs.
    Running,
    /// It ran and has ended; with it everything that was only in memory.
    Stopped,
}

/// Why a Redis is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing listens: the process is not there, or not yet.
    Refused,
    /// No answer in time, or no way to it.
    NoAnswer,
    /// It answers, but not us: the password is wrong, or it speaks otherwise.
    Rejected,
}

/// What was seen of a pod's Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// There was nothing to ask.
    Nothing,
    /// It was asked and did not answer usefully.
    Silent(Silence),
    /// It answered.
    Redis(Box<Redis>),
}

/// What a Redis said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redis {
    /// `INFO`.
    pub info: Info,
    /// `CLUSTER NODES`, in cluster mode, unless it could not be answered.
    pub table: Option<Table>,
    /// `cluster_state:ok` of `CLUSTER INFO`: in its own view it can serve. True without cluster mode.
    pub cluster_ok: bool,
}

/// One pod, with everything known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its place in the StatefulSet.
    pub ordinal: u32,
    /// Which pod of that name.
    pub uid: String,
    /// Its address; empty while it has none.
    pub ip: String,
    /// Kubernetes' opinion.
    pub life: Life,
    /// Its deletion was requested.
    pub terminating: bool,
    /// Services send clients to it.
    pub ready: bool,
    /// When its container started.
    pub started_at: Option<Time>,
    /// What its role label says now.
    pub label: Option<Role>,
    /// `controller-revision-hash`.
    pub revision: Option<String>,
    /// What its Redis said.
    pub seen: Seen,
}

impl PodView {
    /// A pod of the cluster, not asked yet. None when it is not one of the StatefulSet with this uid (corpus B51).
    pub fn of(cluster: &str, workload_uid: &str, pod: &Pod) -> Option<Self> {
        if pod.metadata.controller() != Some(workload_uid) {
            return None;
        }
        let running = pod
            .status
            .container_statuses
            .iter()
            .find_map(|container| container.state.running.as_ref());
        Some(Self {
            name: pod.metadata.name.clone(),
            ordinal: names::ordinal(cluster, &pod.metadata.name)?,
            uid: pod.metadata.uid.clone(),
            ip: pod.status.pod_ip.clone(),
            life: life(&pod.status),
            terminating: pod.metadata.deleting(),
            ready: pod
                .status
                .conditions
                .iter()
                .any(|one| one.kind == "Ready" && one.status == "True"),
            started_at: running.and_then(|running| running.started_at),
            label: pod.metadata.label(LABEL_ROLE).and_then(Role::from_label),
            revision: pod.metadata.label("controller-revision-hash").map(str::to_owned),
            seen: Seen::Nothing,
        })
    }

    /// Whether there is a process to ask. One without an address is never asked (corpus B58).
    pub fn can_be_asked(&self) -> bool {
        self.life == Life::Running && !self.ip.is_empty()
    }

    /// Its Redis, when it answered and its numbers are true.
    pub fn redis(&self) -> Option<&Redis> {
        match &self.seen {
            Seen::Redis(redis) if !redis.info.loading => Some(redis),
            Seen::Redis(_) | Seen::Silent(_) | Seen::Nothing => None,
        }
    }

    /// `INFO`, when its numbers are true.
    pub fn info(&self) -> Option<&Info> {
        self.redis().map(|redis| &redis.info)
    }

    /// Whether a dataset is being loaded: alive, but nothing is known about its data.
    pub fn loading(&self) -> bool {
        matches!(&self.seen, Seen::Redis(redis) if redis.info.loading)
    }

    /// Whether it waits, as every pod does after its start, for the operator to give it a role.
    pub fn gated(&self) -> bool {
        self.info().is_some_and(|info| {
            info.role == InfoRole::Replica
                && info.master_port == GATE_PORT
                && info.master_host == self.ip
        })
    }

    /// Whether it is a replica, or tries to be one, of the Redis in `master`.
    pub fn follows(&self, master: &Self) -> bool {
        self.info().is_some_and(|info| {
            info.role == InfoRole::Replica
                && info.master_port == PORT
                && info.master_host == master.ip
        })
    }

    /// Whether it follows with a working link and has what its master has.
    pub fn linked(&self) -> bool {
        self.info()
            .is_some_and(|info| info.role == InfoRole::Replica && info.link_up && !info.syncing)
    }
}

fn life(status: &PodStatus) -> Life {
    if matches!(status.phase.as_str(), "Failed" | "Succeeded") {
        return Life::Stopped;
    }
    let any = |test: fn(&ContainerStatus) -> bool| status.container_statuses.iter().any(test);
    if any(|container| container.state.running.is_some()) {
        Life::Running
    } else if any(|container| container.state.terminated.is_some() || container.restart_count > 0) {
        Life::Stopped
    } else if status.phase == "Running" && status.container_statuses.is_empty() {
        Life::Running
    } else {
        Life::Coming
    }
}

/// A probe's reply in the provider's format.
#[derive(Debug, Deserialize)]
struct Reply {
    reachable: bool,
    #[serde(default)]
    replies: Vec<CommandReply>,
    #[serde(default)]
    error: Option<ProbeError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CommandReply {
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ProbeError {
    class: String,
}

/// What is asked of each pod: `PING` proves that it serves, the others say what it is.
pub fn questions(cluster_mode: bool) -> Vec<Vec<&'static str>> {
    let mut commands = vec![vec!["PING"], vec!["INFO"]];
    if cluster_mode {
        commands.push(vec!["CLUSTER", "NODES"]);
        commands.push(vec!["CLUSTER", "INFO"]);
    }
    commands
}

/// Reads the reply to [`questions`].
pub fn read_reply(json: &str) -> Seen {
    let Ok(reply) = serde_json::from_str::<Reply>(json) else {
        return Seen::Silent(Silence::Rejected);
    };
    if !reply.reachable {
        let class = reply.error.map(|error| error.class).unwrap_or_default();
        return Seen::Silent(match class.as_str() {
            "refused" => Silence::Refused,
            "auth" | "tls" | "protocol" | "tooLarge" | "noSecret" => Silence::Rejected,
            _ => Silence::NoAnswer,
        });
    }
    let text = |index: usize| reply.replies.get(index).and_then(|reply| reply.text.as_deref());
    match text(1).and_then(Info::parse) {
        Some(info) => Seen::Redis(Box::new(Redis {
            info,
            table: text(2).and_then(Table::parse),
            cluster_ok: text(3).is_none_or(|info| info.contains("cluster_state:ok")),
        })),
        None => Seen::Silent(Silence::Rejected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::tests::MASTER;
    use serde_json::json;

    fn pod(status: &serde_json::Value) -> Option<PodView> {
        let body = json!({
            "metadata": {"name": "cart-redis-0", "uid": "u", "ownerReferences": [{"uid": "sts", "controller": true}]},
            "status": status,
        });
        PodView::of("cart", "sts", &serde_json::from_value(body).unwrap())
    }

    #[test]
    fn b51_takes_only_pods_of_its_own_statefulset() {
        let mut foreign = Pod::default();
        foreign.metadata.name = "cart-redis-0".into();
        assert_eq!(PodView::of("cart", "sts", &foreign), None);
    }

    #[test]
    fn tells_coming_running_and_stopped_apart() {
        let life = |status: serde_json::Value| pod(&status).unwrap().life;
        assert_eq!(life(json!({"phase": "Pending"})), Life::Coming);
        let waiting =
            json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {}}}]});
        assert_eq!(life(waiting), Life::Coming);
        let running = json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"state": {"running": {}}}]});
        assert_eq!(life(running.clone()), Life::Running);
        assert!(pod(&running).unwrap().can_be_asked());
        let ended = json!({"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 137}}}]});
        assert_eq!(life(ended), Life::Stopped);
        let back_off = json!({"phase": "Running", "containerStatuses": [{"restartCount": 2, "state": {"waiting": {}}}]});
        assert_eq!(life(back_off), Life::Stopped);
        assert_eq!(life(json!({"phase": "Failed"})), Life::Stopped);
    }

    #[test]
    fn b58_never_asks_a_pod_without_an_address() {
        let running =
            json!({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]});
        assert!(!pod(&running).unwrap().can_be_asked());
    }

    #[test]
    fn a_reply_is_read_or_is_silence() {
        let refused = r#"{"reachable":false,"error":{"class":"refused","message":"m"}}"#;
        assert_eq!(read_reply(refused), Seen::Silent(Silence::Refused));
        let denied = json!({"reachable": true, "replies": [{"error": {"code": "NOAUTH", "message": "m"}}, {"error": {"code": "NOAUTH", "message": "m"}}]});
        assert_eq!(read_reply(&denied.to_string()), Seen::Silent(Silence::Rejected));
        assert_eq!(read_reply("?"), Seen::Silent(Silence::Rejected));
        let fine = json!({"reachable": true, "replies": [{"text": "PONG"}, {"text": MASTER}]});
        assert!(
            matches!(read_reply(&fine.to_string()), Seen::Redis(redis) if redis.info.keys == 52)
        );
    }
}
