//! redis.conf, and the ConfigMap it is in.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::blueprint::{Blueprint, metadata};
use crate::api::Spec;
use crate::names;

/// `cluster-node-timeout`: how long a node is silent before others suspect it.
pub const NODE_TIMEOUT_MS: u32 = 5_000;

/// The text of redis.conf: what the operator needs, defaults, and the user's directives in their place.
pub(super) fn redis_conf(spec: &Spec) -> String {
    let mut directives: BTreeMap<&str, &str> = BTreeMap::new();
    // Diskless: copies start a second after the first replica asks, not five.
    directives.insert("repl-diskless-sync-delay", "1");
    if spec.storage.is_some() {
        directives.extend([("appendonly", "yes"), ("save", "")]);
    } else {
        // A copy received from a master must not be what a restarted pod takes for its own data.
        directives.extend([("appendonly", "no"), ("save", ""), ("rdb-del-sync-files", "yes")]);
    }
    directives.extend(spec.config.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let node_timeout = NODE_TIMEOUT_MS.to_string();
    let port = names::PORT.to_string();
    directives.extend([("dir", "/data"), ("port", port.as_str()), ("protected-mode", "no")]);
    // So that a replica can vouch for its master within seconds.
    directives.insert("repl-ping-replica-period", "2");
    if spec.cluster_mode {
        directives.extend([
            ("cluster-enabled", "yes"),
            ("cluster-config-file", "nodes.conf"),
            ("cluster-node-timeout", node_timeout.as_str()),
        ]);
    }
    let mut text = "# Written by the operator; edits are undone. Use spec.config.\n".to_owned();
    for (key, value) in directives {
        let value = if value.is_empty() { "\"\"" } else { value };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{key} {value}");
    }
    text
}

/// The ConfigMap pods mount.
pub(super) fn config_map(blueprint: &Blueprint<'_>, config: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(blueprint, &names::workload(blueprint.cluster)),
        "data": {"redis.conf": config},
    })
}

/// FNV-1a, 64 bits, in hexadecimal: tells one configuration from another, and is no protection against anything.
pub(super) fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::tests::spec;

    #[test]
    fn the_users_directives_replace_defaults_but_not_what_the_operator_needs() {
        let conf = redis_conf(&spec(
            &json!({"config": {"appendonly": "no", "save": "60 1", "maxmemory": "1gb", "dir": "/tmp"}, "storage": {"size": "1Gi"}}),
        ));
        for line in ["appendonly no\n", "save 60 1\n", "maxmemory 1gb\n", "dir /data\n"] {
            assert!(conf.contains(line), "{conf}");
        }
        assert_eq!(conf.matches("\nsave ").count(), 1);
        assert!(!conf.contains("cluster-enabled"));
    }

    #[test]
    fn data_is_kept_on_a_volume_and_only_there() {
        assert!(redis_conf(&spec(&json!({"storage": {"size": "1Gi"}}))).contains("appendonly yes"));
        let without = redis_conf(&spec(&json!({})));
        assert!(without.contains("appendonly no\n") && without.contains("save \"\"\n"));
        assert!(without.contains("rdb-del-sync-files yes\n"));
    }

    #[test]
    fn a_fingerprint_stays_what_it_is() {
        // Another value would restart every pod of every user on an upgrade of the operator.
        assert_eq!(fingerprint(""), "cbf29ce484222325");
        assert_eq!(fingerprint("appendonly yes\n"), fingerprint("appendonly yes\n"));
        assert_ne!(fingerprint("a"), fingerprint("b"));
    }
}
