//! Situations in a few words.

use operator_host_sdk::Time;
use redis_plugin::api::{Operation, OperationKind, Suspect};
use redis_plugin::current::{Life, PodView, Redis, Seen, Silence};
use redis_plugin::info::{Info, InfoRole};
use redis_plugin::nodes::{Row, SlotSet, Table};
use redis_plugin::plan::{Input, Memory, Plan};
use redis_plugin::role::Role;
use redis_plugin::{cluster, names, replication};

pub(crate) const CLUSTER: &str = "cart";
pub(crate) const NOW: i64 = 1_000_000;

pub(crate) fn time(seconds_ago: i64) -> Time {
    Time::from_unix(NOW - seconds_ago).unwrap()
}

pub(crate) fn name(ordinal: u32) -> String {
    names::pod(CLUSTER, ordinal)
}

pub(crate) fn ip(ordinal: u32) -> String {
    format!("10.0.0.{}", ordinal + 1)
}

/// A pod that runs and was not asked yet.
pub(crate) fn pod(ordinal: u32) -> PodView {
    PodView {
        name: name(ordinal),
        ordinal,
        uid: format!("uid-{ordinal}"),
        ip: ip(ordinal),
        life: Life::Running,
        terminating: false,
        ready: true,
        started_at: None,
        label: None,
        revision: Some("new".to_owned()),
        seen: Seen::Nothing,
    }
}

pub(crate) fn stopped(ordinal: u32) -> PodView {
    PodView { life: Life::Stopped, ..pod(ordinal) }
}

pub(crate) fn silent(ordinal: u32, silence: Silence) -> PodView {
    PodView { seen: Seen::Silent(silence), ..pod(ordinal) }
}

pub(crate) fn master(replid: &str, offset: i64, keys: u64) -> Info {
    Info {
        version: "7.0.15".to_owned(),
        keys,
        loading: false,
        role: InfoRole::Master,
        master_host: String::new(),
        master_port: 0,
        link_up: false,
        syncing: false,
        last_io_seconds: None,
        connected_replicas: 0,
        failing_over: false,
        replid: replid.to_owned(),
        replid2: None,
        second_offset: -1,
        offset,
    }
}

/// A replica of the pod with this ordinal, with a working link.
pub(crate) fn replica_of(ordinal: u32, replid: &str, offset: i64, keys: u64) -> Info {
    Info {
        role: InfoRole::Replica,
        master_host: ip(ordinal),
        master_port: names::PORT,
        link_up: true,
        last_io_seconds: Some(1),
        ..master(replid, offset, keys)
    }
}

/// The same, without link.
pub(crate) fn cut_off(info: Info) -> Info {
    Info { link_up: false, last_io_seconds: None, ..info }
}

pub(crate) fn gated(ordinal: u32, replid: &str, offset: i64, keys: u64) -> Info {
    Info { master_port: names::GATE_PORT, ..cut_off(replica_of(ordinal, replid, offset, keys)) }
}

pub(crate) fn says(ordinal: u32, info: Info) -> PodView {
    PodView {
        seen: Seen::Redis(Box::new(Redis { info, table: None, cluster_ok: true })),
        ..pod(ordinal)
    }
}

/// Everything a plan is made from, owned.
#[derive(Clone, Debug)]
pub(crate) struct Situation {
    pub(crate) pods: Vec<PodView>,
    pub(crate) desired: u32,
    pub(crate) live: u32,
    pub(crate) shards: u32,
    pub(crate) memory: Memory,
    pub(crate) persistent: bool,
    pub(crate) allow_data_loss: bool,
}

impl Situation {
    pub(crate) fn of(pods: Vec<PodView>) -> Self {
        let count = u32::try_from(pods.len()).unwrap();
        Self {
            pods,
            desired: count,
            live: count,
            shards: 1,
            memory: Memory::default(),
            persistent: false,
            allow_data_loss: false,
        }
    }

    pub(crate) fn remembering(mut self, master: u32, in_sync: &[u32]) -> Self {
        self.memory.master = Some(name(master));
        self.memory.in_sync = in_sync.iter().map(|ordinal| name(*ordinal)).collect();
        self
    }

    pub(crate) fn suspecting(mut self, subject: &str, seconds: i64) -> Self {
        self.memory.suspect = Some(Suspect { subject: subject.to_owned(), since: time(seconds) });
        self
    }

    pub(crate) fn operating(mut self, kind: OperationKind, target: u32, seconds: i64) -> Self {
        self.memory.operation =
            Some(Operation { kind, target: name(target), started_at: time(seconds) });
        self
    }

    pub(crate) fn input(&self) -> Input<'_> {
        Input {
            cluster: CLUSTER,
            desired: self.desired,
            shards: self.shards,
            live_replicas: Some(self.live),
            update_revision: Some("new"),
            pods: &self.pods,
            memory: &self.memory,
            now: time(0),
            persistent: self.persistent,
            allow_data_loss: self.allow_data_loss,
        }
    }

    pub(crate) fn replication(&self) -> Plan {
        replication::plan(&self.input())
    }

    pub(crate) fn cluster(&self) -> Plan {
        cluster::plan(&self.input())
    }
}

pub(crate) fn commands(plan: &Plan) -> Vec<String> {
    plan.commands.iter().map(|command| command.describe().replace("cart-redis-", "")).collect()
}

pub(crate) fn problems(plan: &Plan) -> Vec<&'static str> {
    plan.problems.iter().map(|problem| problem.reason).collect()
}

pub(crate) fn roles(plan: &Plan) -> Vec<Role> {
    plan.roles.values().copied().collect()
}

// Redis Cluster.

pub(crate) fn id(ordinal: u32) -> String {
    format!("{ordinal:040x}")
}

/// One row of a table: a master with slots, or a replica of another.
pub(crate) fn row(ordinal: u32, slots: Option<(u16, u16)>, master: Option<u32>) -> Row {
    Row {
        id: id(ordinal),
        ip: ip(ordinal),
        myself: false,
        master: master.is_none(),
        suspected: false,
        failed: false,
        handshake: false,
        no_address: false,
        master_id: master.map(id),
        epoch: u64::from(ordinal) + 1,
        connected: true,
        slots: slots.map(|(first, last)| SlotSet::range(first, last)).unwrap_or_default(),
    }
}

/// A node with its table.
pub(crate) fn node(ordinal: u32, info: Info, rows: &[Row]) -> PodView {
    let rows = rows.iter().cloned().map(|mut row| {
        row.myself = row.id == id(ordinal);
        (row.id.clone(), row)
    });
    let table = Table { myself: id(ordinal), rows: rows.collect() };
    PodView {
        seen: Seen::Redis(Box::new(Redis { info, table: Some(table), cluster_ok: true })),
        ..pod(ordinal)
    }
}

/// A fresh node.
pub(crate) fn fresh(ordinal: u32) -> PodView {
    let alone = Row { epoch: 0, ..row(ordinal, None, None) };
    node(ordinal, master(&format!("fresh{ordinal}"), 0, 0), &[alone])
}
