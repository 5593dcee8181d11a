//! Which command is in which group, and what its arguments may be: deny by default.
//!
//! Names are those of Redis 7.0 and compare without regard to case, as Redis itself does.

use crate::groups::Group;

/// What the arguments of a command must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Anything but Secrets.
    Plain,
    /// Names of settings: exact, and none that holds a secret.
    ConfigGet,
    /// Pairs of a setting and its value.
    ConfigSet,
    /// A user and rules; a password in a rule comes from a Secret.
    AclSetUser,
    /// `NO ONE`, or the address of a pod.
    ReplicaOf,
    /// The address of a pod at this position.
    PodAt(usize),
    /// The address of a pod after the word `TO`.
    PodAfterTo,
    /// The address of a pod at position 1, passwords after `AUTH` and `AUTH2`.
    Migrate,
}

/// One row: the command's own words, its group, its shape.
#[derive(Debug)]
pub(crate) struct Row {
    /// One word, or two for a command with subcommands.
    pub(crate) words: &'static [&'static str],
    /// What it takes to send it.
    pub(crate) group: Group,
    /// What may follow.
    pub(crate) shape: Shape,
}

const fn row(words: &'static [&'static str], group: Group, shape: Shape) -> Row {
    Row { words, group, shape }
}

const fn plain(words: &'static [&'static str], group: Group) -> Row {
    row(words, group, Shape::Plain)
}

static TABLE: [Row; 48] = [
    plain(&["PING"], Group::Observe),
    plain(&["INFO"], Group::Observe),
    plain(&["ROLE"], Group::Observe),
    plain(&["DBSIZE"], Group::Observe),
    plain(&["LASTSAVE"], Group::Observe),
    plain(&["TIME"], Group::Observe),
    plain(&["ACL", "WHOAMI"], Group::Observe),
    row(&["CONFIG", "GET"], Group::Observe, Shape::ConfigGet),
    plain(&["CLUSTER", "INFO"], Group::Observe),
    plain(&["CLUSTER", "NODES"], Group::Observe),
    plain(&["CLUSTER", "MYID"], Group::Observe),
    plain(&["CLUSTER", "SHARDS"], Group::Observe),
    plain(&["CLUSTER", "SLOTS"], Group::Observe),
    plain(&["CLUSTER", "LINKS"], Group::Observe),
    plain(&["CLUSTER", "REPLICAS"], Group::Observe),
    plain(&["CLUSTER", "KEYSLOT"], Group::Observe),
    plain(&["CLUSTER", "COUNTKEYSINSLOT"], Group::Observe),
    plain(&["CLUSTER", "COUNT-FAILURE-REPORTS"], Group::Observe),
    row(&["REPLICAOF"], Group::Topology, Shape::ReplicaOf),
    row(&["SLAVEOF"], Group::Topology, Shape::ReplicaOf),
    row(&["FAILOVER"], Group::Topology, Shape::PodAfterTo),
    row(&["CLUSTER", "MEET"], Group::Topology, Shape::PodAt(2)),
    plain(&["CLUSTER", "ADDSLOTS"], Group::Topology),
    plain(&["CLUSTER", "ADDSLOTSRANGE"], Group::Topology),
    plain(&["CLUSTER", "REPLICATE"], Group::Topology),
    plain(&["CLUSTER", "FORGET"], Group::Topology),
    plain(&["CLUSTER", "FAILOVER"], Group::Topology),
    plain(&["CLUSTER", "SETSLOT"], Group::Topology),
    plain(&["CLUSTER", "SET-CONFIG-EPOCH"], Group::Topology),
    plain(&["CLUSTER", "SAVECONFIG"], Group::Topology),
    row(&["CONFIG", "SET"], Group::Config, Shape::ConfigSet),
    plain(&["CONFIG", "REWRITE"], Group::Config),
    plain(&["CONFIG", "RESETSTAT"], Group::Config),
    row(&["ACL", "SETUSER"], Group::Config, Shape::AclSetUser),
    plain(&["ACL", "DELUSER"], Group::Config),
    plain(&["ACL", "LOAD"], Group::Config),
    plain(&["ACL", "SAVE"], Group::Config),
    plain(&["BGSAVE"], Group::Persistence),
    plain(&["BGREWRITEAOF"], Group::Persistence),
    plain(&["SAVE"], Group::Persistence),
    row(&["MIGRATE"], Group::Migration, Shape::Migrate),
    plain(&["CLUSTER", "GETKEYSINSLOT"], Group::Migration),
    plain(&["CLUSTER", "BUMPEPOCH"], Group::Migration),
    plain(&["CLUSTER", "RESET"], Group::Destructive),
    plain(&["CLUSTER", "DELSLOTS"], Group::Destructive),
    plain(&["CLUSTER", "DELSLOTSRANGE"], Group::Destructive),
    plain(&["CLUSTER", "FLUSHSLOTS"], Group::Destructive),
    plain(&["SHUTDOWN"], Group::Destructive),
];

/// What is not in the table.
static UNLISTED: Row = plain(&[], Group::Data);

/// The row of a command, given its first two words. A word that is not a literal is None.
pub(crate) fn find(first: &str, second: Option<&str>) -> &'static Row {
    let matches = |row: &&Row| match *row.words {
        [name] => name.eq_ignore_ascii_case(first),
        [name, sub] => {
            name.eq_ignore_ascii_case(first)
                && second.is_some_and(|second| sub.eq_ignore_ascii_case(second))
        }
        _ => false,
    };
    TABLE.iter().find(matches).unwrap_or(&UNLISTED)
}

/// Settings whose value is a secret: never read, and set from a Secret only.
pub(crate) const SECRET_SETTINGS: [&str; 4] =
    ["requirepass", "masterauth", "tls-key-file-pass", "tls-client-key-file-pass"];

/// Settings that are not read although their value is no secret: a user's name is half of a login.
pub(crate) const HIDDEN_SETTINGS: [&str; 1] = ["masteruser"];

/// Settings that are never set. Each would let the server read or write files of the plugin's choosing,
/// load code, lift its own protection, or replicate from an address that is not a pod's.
/// Redis refuses most of them itself; an operator's word is not left to a server's version.
pub(crate) const FIXED_SETTINGS: [&str; 17] = [
    "aclfile",
    "appenddirname",
    "appendfilename",
    "cluster-config-file",
    "dbfilename",
    "dir",
    "enable-debug-command",
    "enable-module-command",
    "enable-protected-configs",
    "include",
    "loadmodule",
    "logfile",
    "pidfile",
    "rename-command",
    "replicaof",
    "slaveof",
    "unixsocket",
];
