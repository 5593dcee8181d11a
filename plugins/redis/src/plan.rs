//! What is to be done, before it is put into the contract's words. Stage *diff* produces it, stage *act* carries it over.
//!
//! **Invariant:** a command goes to a pod that was asked in this run, and names other pods, never addresses:
//! the host fills in the address the pod has when the command is sent.

use std::collections::{BTreeMap, BTreeSet};

use operator_host_sdk::Time;

use crate::api::{Operation, OperationKind, Suspect};
use crate::current::{Life, PodView, Seen};
use crate::names::{self, PORT};
use crate::ordered;
use crate::role::Role;

/// One word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// As it is.
    Text(String),
    /// The address of this pod.
    IpOf(String),
}

/// One command to one pod's Redis. Harmless when repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// To whom.
    pub pod: String,
    /// What.
    pub words: Vec<Word>,
}

impl Command {
    /// A command of words; `PORT` and such are converted by the caller.
    pub fn new(pod: &PodView, words: &[&str]) -> Self {
        Self {
            pod: pod.name.clone(),
            words: words.iter().map(|word| Word::Text((*word).to_owned())).collect(),
        }
    }

    /// `pod` becomes a master and stays what it is if it is one.
    pub fn promote(pod: &PodView) -> Self {
        Self::new(pod, &["REPLICAOF", "NO", "ONE"])
    }

    /// `pod` becomes a replica of `master`.
    pub fn attach(pod: &PodView, master: &PodView) -> Self {
        Self::addressed(pod, &["REPLICAOF"], master, &[])
    }

    /// `<words> <address of other> <port> <rest>`.
    pub fn addressed(pod: &PodView, words: &[&str], other: &PodView, rest: &[&str]) -> Self {
        let mut command = Self::new(pod, words);
        command.words.push(Word::IpOf(other.name.clone()));
        command.words.push(Word::Text(PORT.to_string()));
        command.words.extend(rest.iter().map(|word| Word::Text((*word).to_owned())));
        command
    }

    /// For messages and tests: `cart-redis-1: REPLICAOF cart-redis-0 6379`.
    pub fn describe(&self) -> String {
        let words: Vec<&str> = self
            .words
            .iter()
            .map(|word| match word {
                Word::Text(text) | Word::IpOf(text) => text.as_str(),
            })
            .collect();
        format!("{}: {}", self.pod, words.join(" "))
    }
}

/// What a run remembers of earlier ones, read back from the status. Everything in it may be missing (corpus B44).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The pod last observed as the master.
    pub master: Option<String>,
    /// Pods that had everything when the master was last seen: those that may take over without being doubted.
    pub in_sync: BTreeSet<String>,
    /// The Redis Cluster has been complete once, so that slots without an owner are lost ones and not new ones.
    pub formed: bool,
    /// Node ids by pod.
    pub node_ids: BTreeMap<String, String>,
    /// What was going on.
    pub operation: Option<Operation>,
    /// What looked wrong.
    pub suspect: Option<Suspect>,
}

/// What a plan is made from.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The RedisCluster's name.
    pub cluster: &'a str,
    /// Pods there should be.
    pub desired: u32,
    /// Masters there should be, in cluster mode.
    pub shards: u32,
    /// What the StatefulSet asks for now; None when there is none.
    pub live_replicas: Option<u32>,
    /// The revision pods should have; None while it is not known for certain.
    pub update_revision: Option<&'a str>,
    /// Pods by ordinal.
    pub pods: &'a [PodView],
    /// What is remembered.
    pub memory: &'a Memory,
    /// The time of this run.
    pub now: Time,
    /// Data outlives a pod.
    pub persistent: bool,
    /// The user allowed this generation to lose data.
    pub allow_data_loss: bool,
}

impl<'a> Input<'a> {
    /// The pods there should be now: what the StatefulSet asks for, not what it will be asked for.
    pub fn expected(&self) -> impl Iterator<Item = (String, Option<&'a PodView>)> {
        let count = self.live_replicas.unwrap_or(self.desired);
        let (cluster, pods) = (self.cluster, self.pods);
        (0..count).map(move |ordinal| {
            let pod = pods.iter().find(|pod| pod.ordinal == ordinal);
            (names::pod(cluster, ordinal), pod)
        })
    }

    /// Whether every pod there should be has answered with true numbers.
    pub fn complete(&self) -> bool {
        self.expected().all(|(_, pod)| pod.is_some_and(|pod| pod.redis().is_some()))
    }

    /// Whether there was ever anything to lose, as far as is remembered.
    pub fn was_used(&self) -> bool {
        self.memory.master.is_some() || self.memory.formed
    }

    /// A pod by name.
    pub fn pod(&self, name: &str) -> Option<&'a PodView> {
        self.pods.iter().find(|pod| pod.name == name)
    }

    /// Seconds for which `subject` has looked wrong; None when it has not before this run.
    pub fn suspected_for(&self, subject: &str) -> Option<i64> {
        let suspect = self.memory.suspect.as_ref()?;
        (suspect.subject == subject).then(|| self.now.secs_since(suspect.since))
    }

    /// Seconds since an operation of this kind began on some pod.
    pub fn operating_for(&self, kind: OperationKind) -> Option<(&'a str, i64)> {
        let operation = self.memory.operation.as_ref()?;
        (operation.kind == kind)
            .then(|| (operation.target.as_str(), self.now.secs_since(operation.started_at)))
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `CamelCase`.
    pub reason: &'static str,
    /// What, and what is needed.
    pub message: String,
}

/// What is to be done about the pods, and what they were found to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The role label of each pod.
    pub roles: BTreeMap<String, Role>,
    /// What each pod was found to be.
    pub states: BTreeMap<String, &'static str>,
    /// What the StatefulSet should ask for.
    pub replicas: u32,
    /// In order; the first failure ends them.
    pub commands: Vec<Command>,
    /// At most one pod to delete, after the commands.
    pub delete: Option<String>,
    /// The pod observed as the master.
    pub master: Option<String>,
    /// Pods known to have everything.
    pub in_sync: BTreeSet<String>,
    /// Node ids by pod.
    pub node_ids: BTreeMap<String, String>,
    /// Masters that own slots and slots that are owned; cluster mode.
    pub shards: Option<(u32, u32)>,
    /// What is going on.
    pub operation: Option<(OperationKind, String)>,
    /// What looks wrong.
    pub suspect: Option<String>,
    /// What is not as it should be, worst first.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// A plan that does nothing: pods keep the labels they have, except that whoever is found to be something else
    /// by the caller gets another.
    pub fn idle(input: &Input<'_>) -> Self {
        let keep = |pod: &PodView| (pod.name.clone(), pod.label.unwrap_or(Role::Joining));
        Self {
            roles: ordered::map(input.pods.iter().map(keep)),
            states: ordered::map(input.pods.iter().map(|pod| (pod.name.clone(), state(pod)))),
            replicas: input.live_replicas.unwrap_or(input.desired),
            in_sync: input.memory.in_sync.clone(),
            node_ids: input.memory.node_ids.clone(),
            ..Self::default()
        }
    }

    /// The same plan without anything that would be done: labels and counts stay as they are.
    #[must_use]
    pub fn only_observed(self, input: &Input<'_>) -> Self {
        let idle = Self::idle(input);
        Self {
            roles: idle.roles,
            replicas: idle.replicas,
            commands: Vec::new(),
            delete: None,
            operation: None,
            ..self
        }
    }

    /// Adds a problem.
    pub fn problem(&mut self, reason: &'static str, message: impl Into<String>) {
        self.problems.push(Problem { reason, message: message.into() });
    }

    /// Replaces a pod of an old revision that cannot start: with a bad image or directive taken back, nothing else would.
    /// What never ran holds nothing; what has ended holds at most what is on its volume.
    pub fn replace_unstartable(&mut self, input: &Input<'_>) {
        let Some(revision) = input.update_revision else { return };
        let spare = input.persistent || input.allow_data_loss || !input.was_used();
        let unstartable = input.pods.iter().rev().find(|pod| {
            let outdated = pod.revision.as_deref().is_some_and(|current| current != revision);
            let gone = pod.life == Life::Coming || (pod.life == Life::Stopped && spare);
            outdated && gone && !pod.terminating
        });
        if let Some(pod) = unstartable {
            self.operation = Some((OperationKind::Restart, pod.name.clone()));
            self.delete = Some(pod.name.clone());
        }
    }

    /// Nobody but `master` keeps a master's label.
    pub fn fence(&mut self, master: Option<&str>) {
        for (pod, role) in &mut self.roles {
            if *role == Role::Master && Some(pod.as_str()) != master {
                *role = Role::Joining;
            }
        }
    }
}

fn state(pod: &PodView) -> &'static str {
    match &pod.seen {
        Seen::Nothing => "Down",
        Seen::Silent(_) => "Silent",
        Seen::Redis(_) if pod.loading() => "Loading",
        Seen::Redis(_) if pod.gated() => "Gated",
        Seen::Redis(_) => "Member",
    }
}
