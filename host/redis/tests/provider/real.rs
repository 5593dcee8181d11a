//! Against a real redis-server: replies, logins, replication, errors by name.

use crate::ask::{act, act_with, class, groups, key, look, probe, request, until, with_secret};
use crate::server::Server;
use host_redis::Resolved;
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse battery staple";

fn with_password(address: std::net::SocketAddr, value: &str) -> Resolved {
    with_secret(Resolved::at(address), key("cart-auth", "password"), value)
}

fn logged_in(commands: Value) -> Value {
    let mut request = request(commands);
    request["auth"] = json!({"passwordSecret": {"name": "cart-auth", "key": "password"}});
    request
}

#[tokio::test]
async fn answers_with_a_reply_for_each_command_and_its_type() {
    let server = Server::start(&[]);
    let commands =
        json!([["ping"], ["DBSIZE"], ["Role"], ["CLUSTER", "MYID"], ["INFO", "replication"]]);
    let reply = look(server.address, commands).await;
    assert_eq!(reply["reachable"], true);
    assert_eq!(reply["address"], server.address.to_string());
    let replies = reply["replies"].as_array().unwrap();
    assert_eq!(replies[0], json!({"text": "PONG"}));
    assert_eq!(replies[1], json!({"integer": 0}));
    assert_eq!(replies[2]["list"][0], json!({"text": "master"}));
    assert_eq!(
        replies[3]["error"]["code"], "ERR",
        "an error is a reply, and the next command is still sent"
    );
    assert!(replies[4]["text"].as_str().unwrap().contains("role:master"));
    assert_eq!(replies.len(), 5);
}

#[tokio::test]
async fn a_line_break_in_an_argument_is_no_second_command() {
    let server = Server::start(&[]);
    let data = groups(&["observe", "data"]);
    act_with(&data, &request(json!([["SET", "k", "v"]])), &Resolved::at(server.address))
        .await
        .unwrap();
    let injected = json!([
        ["INFO", "server\r\nFLUSHALL\r\n"],
        ["PING", "*1\r\n$8\r\nFLUSHALL\r\n"],
        ["DBSIZE"]
    ]);
    let reply = look(server.address, injected).await;
    assert_eq!(reply["replies"][1]["text"], "*1\r\n$8\r\nFLUSHALL\r\n");
    assert_eq!(reply["replies"][2], json!({"integer": 1}));
}

#[tokio::test]
async fn logs_in_with_a_secret_that_no_output_shows() {
    let server = Server::start(&[("requirepass", PASSWORD)]);
    let reply =
        probe(&logged_in(json!([["ACL", "WHOAMI"]])), &with_password(server.address, PASSWORD))
            .await;
    assert_eq!(reply["replies"][0]["text"], "default");
    let mut named = logged_in(json!([["PING"]]));
    named["auth"]["username"] = json!("default");
    let reply = probe(&named, &with_password(server.address, PASSWORD)).await;
    assert_eq!(reply["replies"][0]["text"], "PONG");
    named["auth"]["username"] = json!("nobody");
    let reply = probe(&named, &with_password(server.address, PASSWORD)).await;
    assert_eq!(class(&reply), "auth");
    assert!(!reply.to_string().contains(PASSWORD));
}

#[tokio::test]
async fn a_wrong_a_missing_and_a_needless_password_are_told_apart() {
    let server = Server::start(&[("requirepass", PASSWORD)]);
    let ping = json!([["PING"]]);
    let wrong = probe(&logged_in(ping.clone()), &with_password(server.address, "wrong-one")).await;
    assert_eq!(class(&wrong), "auth");
    assert!(
        wrong.to_string().contains("WRONGPASS") && !wrong.to_string().contains("wrong-one"),
        "{wrong}"
    );
    let none = look(server.address, ping.clone()).await;
    assert_eq!(none["replies"][0]["error"]["code"], "NOAUTH");
    let absent = probe(&logged_in(ping.clone()), &Resolved::at(server.address)).await;
    assert_eq!(class(&absent), "noSecret");
    let open = Server::start(&[]);
    let needless = probe(&logged_in(ping.clone()), &with_password(open.address, PASSWORD)).await;
    assert_eq!(class(&needless), "auth");
    assert!(!needless.to_string().contains(PASSWORD));

    let problem = act(&request(ping.clone()), &Resolved::at(server.address)).await.unwrap_err();
    assert_eq!(problem.reason, "RedisNoAuth");
    let problem =
        act(&logged_in(ping), &with_password(server.address, "wrong-one")).await.unwrap_err();
    assert_eq!(problem.reason, "RedisAuth");
    assert!(!problem.message.contains("wrong-one"), "{problem:?}");
}

#[tokio::test]
async fn a_new_password_is_set_from_a_secret_and_never_shown() {
    let server = Server::start(&[]);
    let secret = json!({"name": "cart-auth", "key": "password", "prefix": ">"});
    let rotate = request(json!([
        ["ACL", "SETUSER", "default", "resetpass", {"secret": secret}],
        ["CONFIG", "SET", "masterauth", {"secret": {"name": "cart-auth", "key": "password"}}],
    ]));
    let reply = act(&rotate, &with_password(server.address, PASSWORD)).await.unwrap();
    assert_eq!(reply["replies"], json!([{"text": "OK"}, {"text": "OK"}]));
    let reply =
        probe(&logged_in(json!([["PING"]])), &with_password(server.address, PASSWORD)).await;
    assert_eq!(reply["replies"][0]["text"], "PONG");

    // Redis quotes a rule that it refuses.
    let other = json!({"name": "old-auth", "key": "password", "prefix": "<"});
    let remove = logged_in(json!([["ACL", "SETUSER", "default", {"secret": other}]]));
    let resolved = with_password(server.address, PASSWORD);
    let resolved = with_secret(resolved, key("old-auth", "password"), "never-was-a-password");
    let problem = act(&remove, &resolved).await.unwrap_err();
    assert!(
        problem.message.contains("[secret]") && !problem.message.contains("never-was"),
        "{problem:?}"
    );
}

#[tokio::test]
async fn attaches_a_replica_by_the_name_of_its_masters_pod() {
    let (master, replica) = (Server::start(&[]), Server::start(&[]));
    let attach = request(json!([["REPLICAOF", {"podIp": "redis-1"}, "6379"]]));
    let mut resolved = Resolved::at(replica.address);
    let problem = act(&attach, &resolved).await.unwrap_err();
    assert_eq!(problem.reason, "RedisNoAddress");
    resolved.pod_ips.insert("redis-1".into(), master.address.ip());
    let reply = act(&attach, &resolved).await.unwrap();
    assert_eq!(reply["replies"][0]["text"], "OK");
    let linked = |reply: &Value| reply.to_string().contains("master_link_status:up");
    let reply = until(replica.address, json!([["INFO", "replication"]]), linked).await;
    assert!(reply.to_string().contains(&format!("master_host:{}", master.address.ip())), "{reply}");

    let promote = request(json!([["replicaof", "no", "one"]]));
    act(&promote, &resolved).await.unwrap();
    let reply = look(replica.address, json!([["ROLE"]])).await;
    assert_eq!(reply["replies"][0]["list"][0]["text"], "master");
}

#[tokio::test]
async fn the_first_error_reply_ends_an_action_and_names_its_reason() {
    let server = Server::start(&[("cluster-enabled", "yes")]);
    let resolved = Resolved::at(server.address);
    let unknown = "0123456789012345678901234567890123456789";
    let table = [
        (json!(["CLUSTER", "FORGET", unknown]), "RedisUnknownNode"),
        (json!(["CLUSTER", "REPLICATE", unknown]), "RedisUnknownNode"),
        (json!(["CLUSTER", "FAILOVER"]), "RedisNotReplica"),
        (json!(["CLUSTER", "SETSLOT", "1", "MIGRATING", unknown]), "RedisNotSlotOwner"),
        (json!(["CLUSTER", "ADDSLOTS", "5"]), "RedisSlotBusy"),
        (json!(["CONFIG", "SET", "maxmemory", "1Gi"]), "RedisConfigRefused"),
        (json!(["CONFIG", "SET", "databases", "3"]), "RedisConfigRefused"),
        (json!(["CLUSTER", "SHARDS", "x"]), "RedisError"),
    ];
    act(&request(json!([["CLUSTER", "ADDSLOTS", "5"]])), &resolved).await.unwrap();
    for (command, reason) in table {
        let commands = json!([["PING"], command, ["CONFIG", "SET", "maxmemory", "12345678"]]);
        let problem = act(&request(commands), &resolved).await.unwrap_err();
        assert_eq!(problem.reason, reason, "{problem:?}");
    }
    let reply = look(server.address, json!([["CONFIG", "GET", "maxmemory"]])).await;
    assert_eq!(
        reply["replies"][0]["list"][1]["text"], "0",
        "what follows an error must not be sent"
    );
}

#[tokio::test]
async fn a_loading_server_is_reachable_and_says_so() {
    let state = tempfile::tempdir().unwrap();
    let filled =
        Server::start(&[("dir", state.path().to_str().unwrap()), ("enable-debug-command", "yes")]);
    let resolved = Resolved::at(filled.address);
    let data = groups(&["data", "persistence"]);
    act_with(&data, &request(json!([["DEBUG", "POPULATE", "20000"], ["SAVE"]])), &resolved)
        .await
        .unwrap();
    drop(filled);
    // 20,000 keys at 0.5 ms each: far longer than the test, which kills it.
    let slow = [("key-load-delay", "500"), ("loading-process-events-interval-bytes", "1024")];
    let server = Server::start_in(state, 6379, &slow);
    let reply = look(server.address, json!([["PING"], ["DBSIZE"], ["INFO", "persistence"]])).await;
    assert_eq!(reply["replies"][0]["error"]["code"], "LOADING", "{reply}");
    assert!(reply["replies"][2]["text"].as_str().unwrap().contains("loading:1"));
    let bgsave = request(json!([["BGSAVE"]]));
    let problem = act(&bgsave, &Resolved::at(server.address)).await.unwrap_err();
    assert_eq!(problem.reason, "RedisLoading");
}

#[tokio::test]
async fn a_cluster_is_met_and_given_its_slots_in_two_actions() {
    let cluster = [("cluster-enabled", "yes")];
    let (first, second) = (Server::start(&cluster), Server::start(&cluster));
    let mut resolved = Resolved::at(first.address);
    resolved.pod_ips.insert("redis-1".into(), second.address.ip());
    let meet = json!([
        ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"],
        ["CLUSTER", "MEET", {"podIp": "redis-1"}, "6379"],
    ]);
    act(&request(meet), &resolved).await.unwrap();
    let commands = json!([["CLUSTER", "INFO"], ["CLUSTER", "SLOTS"], ["CLUSTER", "SHARDS"]]);
    let whole = |reply: &Value| {
        let text = reply["replies"][0]["text"].as_str().unwrap_or_default();
        text.contains("cluster_state:ok") && text.contains("cluster_known_nodes:2")
    };
    let reply = until(second.address, commands, whole).await;
    assert_eq!(reply["replies"][1]["list"][0]["list"][1], json!({"integer": 16383}));
}
