//! Error replies of Redis, named: the reason of a problem, so that a plugin need not read prose.
//!
//! The texts are those of Redis 7.0; most have not changed since 3.0.

/// Codes that say it all.
const CODES: [(&str, &str); 16] = [
    ("BUSY", "RedisBusy"),
    ("BUSYKEY", "RedisBusyKey"),
    ("CLUSTERDOWN", "RedisClusterDown"),
    ("IOERR", "RedisIoError"),
    ("LOADING", "RedisLoading"),
    ("MASTERDOWN", "RedisMasterDown"),
    ("MISCONF", "RedisMisconfigured"),
    ("NOAUTH", "RedisNoAuth"),
    ("NOGOODSLAVE", "RedisNoGoodReplica"),
    ("NOPERM", "RedisNoPermission"),
    ("NOREPLICAS", "RedisNoReplicas"),
    ("OOM", "RedisOutOfMemory"),
    ("READONLY", "RedisReadOnly"),
    ("TRYAGAIN", "RedisTryAgain"),
    ("WRONGPASS", "RedisWrongPassword"),
    ("DENIED", "RedisDenied"),
];

/// Parts of messages of the code `ERR`. The first match counts.
const MESSAGES: [(&str, &str); 19] = [
    ("Unknown node ", "RedisUnknownNode"),
    ("I can only replicate a master", "RedisNotMaster"),
    ("Target node is not a master", "RedisNotMaster"),
    ("SETSLOT only with masters", "RedisNotMaster"),
    ("the node must be empty", "RedisNotEmpty"),
    ("can't be called with master nodes containing keys", "RedisNotEmpty"),
    ("Can't forget my master", "RedisForgetsMaster"),
    ("I can't forget myself", "RedisForgetsItself"),
    ("is already busy", "RedisSlotBusy"),
    ("I'm not the owner of hash slot", "RedisNotSlotOwner"),
    ("I'm already the owner of hash slot", "RedisAlreadySlotOwner"),
    ("while I still hold keys", "RedisSlotHoldsKeys"),
    ("Master is down or failed", "RedisMasterFailed"),
    ("You should send CLUSTER FAILOVER to a replica", "RedisNotReplica"),
    ("config epoch", "RedisConfigEpoch"),
    ("Invalid node address", "RedisInvalidAddress"),
    ("unknown command", "RedisUnknownCommand"),
    ("unknown subcommand", "RedisUnknownCommand"),
    ("CONFIG SET failed", "RedisConfigRefused"),
];

/// The reason for an error reply; `RedisError` when it is none of the known ones.
pub(crate) fn reason(code: &str, message: &str) -> &'static str {
    if code != "ERR" {
        return CODES
            .iter()
            .find(|(known, _)| *known == code)
            .map_or("RedisError", |(_, reason)| reason);
    }
    let known = MESSAGES.iter().find(|(part, _)| message.contains(part));
    known.map_or("RedisError", |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts_have_reasons_and_reasons_have_form() {
        let table = [
            ("ERR", "Unknown node 0123", "RedisUnknownNode"),
            ("ERR", "I can only replicate a master, not a replica.", "RedisNotMaster"),
            (
                "ERR",
                "To set a master the node must be empty and without assigned slots.",
                "RedisNotEmpty",
            ),
            ("ERR", "I tried hard but I can't forget myself...", "RedisForgetsItself"),
            ("ERR", "Slot 77 is already busy", "RedisSlotBusy"),
            ("ERR", "Please use SETSLOT only with masters.", "RedisNotMaster"),
            ("ERR", "The user can assign a config epoch only when …", "RedisConfigEpoch"),
            ("ERR", "something new", "RedisError"),
            ("CLUSTERDOWN", "Hash slot not served", "RedisClusterDown"),
            ("NEWCODE", "Unknown node", "RedisError"),
        ];
        for (code, message, expected) in table {
            assert_eq!(reason(code, message), expected, "{code} {message}");
        }
        for (_, reason) in CODES.iter().chain(&MESSAGES) {
            assert!(host_core::text::is_reason(reason), "{reason}");
        }
    }
}
