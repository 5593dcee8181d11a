//! What is refused before anything is sent, and how the refusal reads.

use host_redis::{ActionRequest, Group, ProbeRequest, RefusedRequest, limits};
use serde_json::{Value, json};

use crate::ask::{default_groups, groups, request};

fn as_probe(commands: Value) -> Result<ProbeRequest, RefusedRequest> {
    ProbeRequest::parse(&request(commands).to_string(), &default_groups())
}

fn as_action(granted: &[&str], command: &Value) -> Result<ActionRequest, RefusedRequest> {
    ActionRequest::parse(&request(json!([command])).to_string(), &groups(granted))
}

const ALL: [&str; 7] =
    ["observe", "topology", "config", "persistence", "migration", "destructive", "data"];

#[test]
fn a_probe_only_observes_even_when_everything_is_granted() {
    let all = groups(&ALL);
    for command in [
        json!(["FLUSHALL"]),
        json!(["flushall"]),
        json!(["GET", "k"]),
        json!(["EVAL", "return 1", "0"]),
        json!(["CONFIG", "SET", "maxmemory", "1"]),
        json!(["config", "Rewrite"]),
        json!(["BGSAVE"]),
        json!(["CLUSTER", "FORGET", "x"]),
        json!(["CLUSTER"]),
        json!(["CLUSTER INFO"]),
        json!(["ACL", "LIST"]),
        json!(["ACL", "GETUSER", "default"]),
        json!(["CLIENT", "LIST"]),
        json!(["COMMAND"]),
        json!(["INFO\r\nFLUSHALL"]),
        json!([" INFO"]),
        json!(["INFO\0"]),
        json!(["config|get", "requirepass"]),
        json!(["WAIT", "1", "0"]),
        json!(["SHUTDOWN"]),
    ] {
        let text = request(json!([["PING"], command])).to_string();
        let error = ProbeRequest::parse(&text, &all).expect_err(&text).to_string();
        assert!(
            error.starts_with("commands[1]: ") && error.contains("a probe only observes"),
            "{error}"
        );
    }
}

#[test]
fn each_command_takes_its_group() {
    let pod = json!({"podIp": "redis-1"});
    let table = [
        (json!(["INFO"]), Group::Observe),
        (json!(["cluster", "nodes"]), Group::Observe),
        (json!(["CLUSTER", "COUNTKEYSINSLOT", "1"]), Group::Observe),
        (json!(["ReplicaOf", "no", "ONE"]), Group::Topology),
        (json!(["REPLICAOF", pod, "6379"]), Group::Topology),
        (json!(["FAILOVER", "TO", pod, "6379", "TIMEOUT", "5000"]), Group::Topology),
        (json!(["FAILOVER", "ABORT"]), Group::Topology),
        (json!(["CLUSTER", "MEET", pod, "6379"]), Group::Topology),
        (json!(["CLUSTER", "SETSLOT", "1", "NODE", "x"]), Group::Topology),
        (json!(["CONFIG", "SET", "maxmemory", "1", "appendonly", "no"]), Group::Config),
        (json!(["ACL", "SETUSER", "app", "on", "+@read"]), Group::Config),
        (json!(["BGREWRITEAOF"]), Group::Persistence),
        (
            json!(["MIGRATE", pod, "6379", "", "0", "5000", "REPLACE", "KEYS", "AUTH", "x"]),
            Group::Migration,
        ),
        (json!(["CLUSTER", "GETKEYSINSLOT", "1", "10"]), Group::Migration),
        (json!(["CLUSTER", "RESET", "HARD"]), Group::Destructive),
        (json!(["CLUSTER", "DELSLOTS", "1"]), Group::Destructive),
        (json!(["SHUTDOWN", "NOSAVE"]), Group::Destructive),
        (json!(["FLUSHALL"]), Group::Data),
        (json!(["FLUSHDB"]), Group::Data),
        (json!(["DEBUG", "SLEEP", "1"]), Group::Data),
        (json!(["MODULE", "LOAD", "x"]), Group::Data),
        (json!(["GET", "k"]), Group::Data),
        (json!(["CLUSTER", "NEW-IN-99"]), Group::Data),
    ];
    for (command, group) in table {
        as_action(&[group.as_str()], &command).unwrap_or_else(|error| panic!("{command}: {error}"));
        let others: Vec<_> = ALL.into_iter().filter(|name| *name != group.as_str()).collect();
        let error = as_action(&others, &command).expect_err(&command.to_string());
        assert!(
            matches!(&error, RefusedRequest::NotGranted { group: wanted, .. } if *wanted == group),
            "{error}"
        );
        assert_eq!(error.problem().reason, "NotGranted");
        let safe = Group::DEFAULT.contains(&group);
        assert_eq!(as_action(&[], &command).is_ok(), safe, "{command}");
    }
}

#[test]
fn credentials_are_never_read() {
    for name in [
        "requirepass",
        "RequirePass",
        "masterauth",
        "masteruser",
        "tls-key-file-pass",
        "tls-client-key-file-pass",
        "*",
        "require*",
        "requirepas?",
        "[r]equirepass",
        "m*",
        "\\requirepass",
        "",
        "requirepass\r\n",
        "max memory",
    ] {
        as_probe(json!([["CONFIG", "GET", name]])).expect_err(name);
        as_probe(json!([["config", "get", "maxmemory", name]])).expect_err(name);
        as_action(&ALL, &json!(["CONFIG", "GET", name])).expect_err(name);
    }
    as_probe(json!([["CONFIG", "GET", "maxmemory", "tls-cert-file"]])).unwrap();
}

#[test]
fn settings_that_reach_beyond_the_server_are_never_set() {
    for name in [
        "dir",
        "DIR",
        "dbfilename",
        "logfile",
        "aclfile",
        "enable-debug-command",
        "replicaof",
        "d?r",
    ] {
        as_action(&ALL, &json!(["CONFIG", "SET", name, "x"])).expect_err(name);
        as_action(&ALL, &json!(["CONFIG", "SET", "maxmemory", "1", name, "x"])).expect_err(name);
    }
    as_action(&ALL, &json!(["CONFIG", "SET", "maxmemory"])).expect_err("half a pair");
}

#[test]
fn a_server_is_only_told_of_pods() {
    let secret = json!({"secret": {"name": "s", "key": "k"}});
    for host in [json!("10.0.0.1"), json!("::1"), json!("evil.example.com"), json!(""), secret] {
        for command in [
            json!(["REPLICAOF", host, "6379"]),
            json!(["slaveof", host, "6379"]),
            json!(["CLUSTER", "MEET", host, "6379"]),
            json!(["FAILOVER", "TO", host, "6379"]),
            json!(["failover", "timeout", "5000", "to", host, "6379", "FORCE"]),
            json!(["MIGRATE", host, "6379", "k", "0", "5000"]),
        ] {
            let error = as_action(&ALL, &command).expect_err(&command.to_string()).to_string();
            assert!(error.contains("podIp"), "{error}");
        }
    }
    for command in
        [json!(["REPLICAOF", "NO", "6379"]), json!(["REPLICAOF"]), json!(["FAILOVER", "TO"])]
    {
        as_action(&ALL, &command).expect_err(&command.to_string());
    }
}

#[test]
fn a_secret_stands_only_where_it_cannot_be_read_back() {
    let secret = json!({"secret": {"name": "auth", "key": "password"}});
    let adds = json!({"secret": {"name": "auth", "key": "password", "prefix": ">"}});
    let pod = json!({"podIp": "redis-1"});
    for command in [
        json!(["CONFIG", "SET", "masterauth", secret, "requirepass", secret]),
        json!(["CONFIG", "SET", "MasterAuth", ""]),
        json!(["ACL", "SETUSER", "default", "on", adds]),
        json!(["MIGRATE", pod, "6379", "", "0", "5000", "AUTH", secret, "KEYS", "k"]),
        json!([
            "MIGRATE", pod, "6379", "", "0", "5000", "COPY", "AUTH2", "default", secret, "KEYS",
            "k"
        ]),
    ] {
        let parsed = as_action(&ALL, &command).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert_eq!(parsed.secrets().is_empty(), command[2] == "MasterAuth", "{command}");
    }
    for command in [
        json!([secret]),
        json!(["PING", secret]),
        json!(["INFO", secret]),
        json!(["CLUSTER", secret]),
        json!(["CLUSTER", "KEYSLOT", secret]),
        json!(["CONFIG", "GET", secret]),
        json!(["CONFIG", "SET", secret, "x"]),
        json!(["CONFIG", "SET", "cluster-announce-hostname", secret]),
        json!(["CONFIG", "SET", "maxmemory", "masterauth", "proc-title-template", secret]),
        json!(["CONFIG", "SET", "masterauth", adds]),
        json!(["CONFIG", "SET", "masterauth", "written-out"]),
        json!(["ACL", "SETUSER", secret, "on"]),
        json!(["ACL", "SETUSER", "default", secret]),
        json!(["ACL", "SETUSER", "default", {"secret": {"name": "auth", "key": "password", "prefix": "~"}}]),
        json!(["ACL", "SETUSER", "default", ">written-out"]),
        json!(["SET", "k", secret]),
        json!(["MIGRATE", pod, "6379", secret, "0", "5000"]),
        json!(["MIGRATE", pod, "6379", "", "0", "5000", "KEYS", "AUTH", secret]),
        json!(["MIGRATE", pod, "6379", "", "0", "5000", "AUTH2", secret, "x"]),
    ] {
        as_action(&ALL, &command).expect_err(&command.to_string());
    }
}

#[test]
fn a_mistake_is_named_with_its_place() {
    let table = [
        (json!({"commands": [["PING"]]}), "pod"),
        (json!({"pod": "p", "commands": [["PING"]], "prot": 1}), "prot"),
        (
            json!({"pod": "p", "commands": [["PING"]], "auth": {"passwordSecret": {"name": "n", "key": "k"}, "user": "u"}}),
            "user",
        ),
        (json!({"pod": "p", "commands": [["PING"]], "tls": {"caSecret": {"name": "n"}}}), "key"),
        (
            json!({"pod": "p", "commands": [["PING"]], "tls": {"caSecret": {"name": "N", "key": "k"}}}),
            "tls.caSecret",
        ),
        (json!({"pod": "../p", "commands": [["PING"]]}), "pod: "),
        (json!({"pod": "p", "commands": []}), "commands: has 0 commands"),
        (json!({"pod": "p", "commands": [[]]}), "commands[0]: must start with"),
        (json!({"pod": "p", "commands": [["PING", 1]]}), "commands[0][1]: must be a string"),
        (json!({"pod": "p", "commands": [["PING", {"podIP": "p"}]]}), "podIP"),
        (json!({"pod": "p", "commands": [["PING", {"podIp": "P"}]]}), "commands[0][1]: podIp"),
        (json!({"pod": "p", "commands": [["PING"]], "port": 0}), "port: "),
        (json!({"pod": "p", "commands": [["PING"]], "port": 65536}), "65536"),
        (json!({"pod": "p", "commands": [["PING"]], "timeoutMs": 0}), "timeoutMs: "),
        (json!([]), "request: "),
    ];
    for (written, part) in table {
        let error =
            ProbeRequest::parse(&written.to_string(), &default_groups()).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    let twice = r#"{"pod":"p","pod":"q","commands":[["PING"]]}"#;
    assert!(
        ProbeRequest::parse(twice, &default_groups())
            .unwrap_err()
            .to_string()
            .contains("duplicate field")
    );
}

#[test]
fn a_request_has_bounds() {
    let table = [
        (
            json!({"pod": "p", "commands": vec![["PING"]; limits::COMMANDS_MAX + 1]}),
            "commands: has 65 commands",
        ),
        (
            json!({"pod": "p", "commands": [vec!["PING"; limits::WORDS_MAX + 1]]}),
            "commands[0]: has 16387 words",
        ),
        (
            json!({"pod": "p", "commands": [["PING", "x".repeat(limits::REQUEST_BYTES_MAX)]]}),
            "at most 262144",
        ),
    ];
    for (written, part) in table {
        let error =
            ProbeRequest::parse(&written.to_string(), &default_groups()).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_request_says_which_names_it_needs() {
    let written = json!({
        "pod": "redis-0", "podUid": "u-1", "port": 7000,
        "commands": [
            ["REPLICAOF", {"podIp": "redis-1"}, "6379"],
            ["CONFIG", "SET", "masterauth", {"secret": {"name": "new", "key": "password"}}],
        ],
        "auth": {"passwordSecret": {"name": "old", "key": "password"}},
        "tls": {"caSecret": {"name": "tls", "key": "ca.crt"}, "clientCertSecret": {"name": "tls"}},
    });
    let parsed = ActionRequest::parse(&written.to_string(), &default_groups()).unwrap();
    assert_eq!((parsed.pod(), parsed.pod_uid(), parsed.port()), ("redis-0", Some("u-1"), 7000));
    let secrets: Vec<_> = parsed
        .secrets()
        .into_iter()
        .map(|secret| format!("{}/{}", secret.name, secret.key))
        .collect();
    assert_eq!(
        secrets,
        ["new/password", "old/password", "tls/ca.crt", "tls/tls.crt", "tls/tls.key"]
    );
    assert_eq!(parsed.pod_ips().into_iter().collect::<Vec<_>>(), ["redis-1"]);
}
