//! Short forms for what every test does: parse, resolve, ask.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use host_core::snapshot::Problem;
use host_redis::{
    ActionRequest, Groups, ProbeRequest, Resolved, SecretKey, SecretValue, groups_from,
};
use serde_json::{Value, json};

/// The default groups.
pub(crate) fn default_groups() -> Groups {
    Groups::default()
}

/// Exactly these groups.
pub(crate) fn groups(names: &[&str]) -> Groups {
    groups_from(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// A request to the pod `redis-0` with some commands, and time enough for a busy machine.
pub(crate) fn request(commands: Value) -> Value {
    json!({"pod": "redis-0", "commands": commands, "timeoutMs": 5000})
}

/// The key of a Secret.
pub(crate) fn key(name: &str, key: &str) -> SecretKey {
    SecretKey { name: name.into(), key: key.into() }
}

/// `resolved` with one more Secret.
pub(crate) fn with_secret(mut resolved: Resolved, secret: SecretKey, value: &str) -> Resolved {
    resolved.secrets.insert(secret, SecretValue::new(value));
    resolved
}

/// Probes with a request as JSON.
pub(crate) async fn probe(request: &Value, resolved: &Resolved) -> Value {
    let request = ProbeRequest::parse(&request.to_string(), &default_groups()).unwrap();
    serde_json::from_str(&host_redis::probe(&request, resolved).await).unwrap()
}

/// Probes without Secrets.
pub(crate) async fn look(address: SocketAddr, commands: Value) -> Value {
    probe(&request(commands), &Resolved::at(address)).await
}

/// Acts with a request as JSON.
pub(crate) async fn act(request: &Value, resolved: &Resolved) -> Result<Value, Problem> {
    act_with(&default_groups(), request, resolved).await
}

/// Acts with some groups granted.
pub(crate) async fn act_with(
    groups: &Groups,
    request: &Value,
    resolved: &Resolved,
) -> Result<Value, Problem> {
    let request = ActionRequest::parse(&request.to_string(), groups).unwrap();
    host_redis::act(&request, resolved).await.map(|reply| serde_json::from_str(&reply).unwrap())
}

/// The class of a probe that did not reach its server.
pub(crate) fn class(reply: &Value) -> &str {
    assert_eq!(reply["reachable"], false, "{reply}");
    reply["error"]["class"].as_str().unwrap()
}

/// Asks again until the reply is as wanted, at most 20 s.
pub(crate) async fn until(
    address: SocketAddr,
    commands: Value,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let reply = look(address, commands.clone()).await;
        if wanted(&reply) {
            return reply;
        }
        assert!(Instant::now() < deadline, "still {reply}");
        tokio::task::yield_now().await;
    }
}
