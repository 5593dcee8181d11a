//! `INFO` of one Redis, parsed (redis.io/commands/info; checked on 7.0.15).
//!
//! **Invariant:** a field that is absent is absent, never guessed: an unparsable reply is no observation at all.

use std::collections::BTreeMap;

use crate::ordered;

/// What role Redis says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoRole {
    /// It accepts writes.
    Master,
    /// It follows another, or tries to.
    Replica,
}

/// The part of `INFO` that decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "these are the fields of the protocol")]
pub struct Info {
    /// `redis_version`.
    pub version: String,
    /// Keys in all databases.
    pub keys: u64,
    /// A dataset is being read from disk or from a master; the other numbers are not yet true.
    pub loading: bool,
    /// Master or replica.
    pub role: InfoRole,
    /// Whom a replica follows, or tries to.
    pub master_host: String,
    /// The port of it.
    pub master_port: u16,
    /// A replica's link works.
    pub link_up: bool,
    /// A replica is receiving a whole dataset.
    pub syncing: bool,
    /// Seconds since a replica last heard from its master; None when it is not connected.
    pub last_io_seconds: Option<u64>,
    /// Replicas that are connected.
    pub connected_replicas: u32,
    /// A coordinated `FAILOVER` is going on.
    pub failing_over: bool,
    /// The history the dataset belongs to.
    pub replid: String,
    /// The history it was promoted out of, if it was.
    pub replid2: Option<String>,
    /// The first offset at which the two differ.
    pub second_offset: i64,
    /// How far in the history the dataset is.
    pub offset: i64,
}

impl Info {
    /// None when it is no complete `INFO`.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: BTreeMap<&str, &str> = ordered::map(
            text.lines().filter_map(|line| line.trim_end_matches('\r').split_once(':')),
        );
        let number = |key: &str| fields.get(key).and_then(|value| value.parse::<i64>().ok());
        let flag = |key: &str| fields.get(key).is_some_and(|value| *value == "1");
        let text = |key: &str| fields.get(key).copied().unwrap_or_default().to_owned();
        let role = match *fields.get("role")? {
            "master" => InfoRole::Master,
            "slave" => InfoRole::Replica,
            _ => return None,
        };
        let replid2 = text("master_replid2");
        let offset = match role {
            InfoRole::Master => number("master_repl_offset")?,
            InfoRole::Replica => number("slave_repl_offset")?,
        };
        Some(Self {
            version: text("redis_version"),
            keys: keys(&fields),
            loading: flag("loading") || flag("async_loading"),
            role,
            master_host: text("master_host"),
            master_port: number("master_port")
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(0),
            link_up: fields.get("master_link_status").is_some_and(|link| *link == "up"),
            syncing: flag("master_sync_in_progress"),
            last_io_seconds: number("master_last_io_seconds_ago")
                .and_then(|ago| u64::try_from(ago).ok()),
            connected_replicas: number("connected_slaves")
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
            failing_over: fields
                .get("master_failover_state")
                .is_some_and(|state| *state != "no-failover"),
            replid: (*fields.get("master_replid")?).to_owned(),
            replid2: (!replid2.is_empty() && replid2.bytes().any(|byte| byte != b'0'))
                .then_some(replid2),
            second_offset: number("second_repl_offset").unwrap_or(-1),
            offset,
        })
    }

    /// Whether the two datasets have a common history.
    pub fn related(&self, other: &Self) -> bool {
        self.replid == other.replid || self.promoted_from(other) || other.promoted_from(self)
    }

    /// Whether this one was promoted out of the other's history, so that it has the newer claim.
    pub fn promoted_from(&self, other: &Self) -> bool {
        self.replid != other.replid && self.replid2.as_ref() == Some(&other.replid)
    }

    /// Whether attaching `replica` to this one would throw away keys for nothing:
    /// this one is empty and has never been where the replica was.
    pub fn would_wipe(&self, replica: &Self) -> bool {
        self.keys == 0 && replica.keys > 0 && !self.related(replica)
    }
}

/// Sum over `db0:keys=12,expires=0,avg_ttl=0`.
fn keys(fields: &BTreeMap<&str, &str>) -> u64 {
    let of_database = |value: &&str| {
        value.split(',').find_map(|part| part.strip_prefix("keys=")?.parse::<u64>().ok())
    };
    fields
        .range("db0".."dc")
        .filter(|(key, _)| key.bytes().skip(2).all(|byte| byte.is_ascii_digit()))
        .filter_map(|(_, value)| of_database(value))
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MASTER: &str = "# Server\r\nredis_version:7.0.15\r\n# Persistence\r\nloading:0\r\nasync_loading:0\r\n\
        # Replication\r\nrole:master\r\nconnected_slaves:2\r\nslave0:ip=127.9.1.2,port=6379,state=online,offset=1464,lag=0\r\n\
        master_failover_state:no-failover\r\nmaster_replid:8ac88fb1cd347ff1d024d5510aee7e1d3e82f6b1\r\n\
        master_replid2:c68a07703bd2545210fc4fc8d1da4437cbf2a440\r\nmaster_repl_offset:1464\r\nsecond_repl_offset:1465\r\n\
        # Keyspace\r\ndb0:keys=50,expires=0,avg_ttl=0\r\ndb11:keys=2,expires=1,avg_ttl=9\r\n";

    pub(crate) const REPLICA: &str = "# Replication\r\nrole:slave\r\nmaster_host:127.9.1.1\r\nmaster_port:6379\r\n\
        master_link_status:down\r\nmaster_last_io_seconds_ago:-1\r\nmaster_sync_in_progress:0\r\nslave_repl_offset:1464\r\n\
        connected_slaves:0\r\nmaster_failover_state:no-failover\r\nmaster_replid:c68a07703bd2545210fc4fc8d1da4437cbf2a440\r\n\
        master_replid2:0000000000000000000000000000000000000000\r\nmaster_repl_offset:1464\r\nsecond_repl_offset:-1\r\n";

    #[test]
    fn reads_a_master() {
        let info = Info::parse(MASTER).unwrap();
        assert_eq!(
            (info.role, info.keys, info.offset, info.connected_replicas),
            (InfoRole::Master, 52, 1464, 2)
        );
        assert_eq!((info.loading, info.failing_over), (false, false));
        assert_eq!(info.replid2.as_deref(), Some("c68a07703bd2545210fc4fc8d1da4437cbf2a440"));
    }

    #[test]
    fn reads_a_replica_without_link() {
        let info = Info::parse(REPLICA).unwrap();
        assert_eq!(
            (info.role, info.keys, info.link_up, info.last_io_seconds),
            (InfoRole::Replica, 0, false, None)
        );
        assert_eq!(
            (info.master_host.as_str(), info.master_port, info.replid2),
            ("127.9.1.1", 6379, None)
        );
    }

    #[test]
    fn a_promoted_replica_descends_from_its_old_master() {
        let (master, replica) = (Info::parse(MASTER).unwrap(), Info::parse(REPLICA).unwrap());
        assert!(master.promoted_from(&replica) && !replica.promoted_from(&master));
        assert!(master.related(&replica) && replica.related(&master));
    }

    #[test]
    fn an_error_reply_is_no_observation() {
        for text in [
            "",
            "LOADING Redis is loading the dataset in memory",
            "role:sentinel\r\n",
            "role:master\r\n",
        ] {
            assert_eq!(Info::parse(text), None);
        }
    }
}
