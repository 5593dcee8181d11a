//! Providers: what plugins reach outside the Kubernetes API. Resolves the names in a request (pod, Secret) and hands
//! it to the provider's crate.
//!
//! **Invariant:** an address is always that of a pod in the parent's namespace; a plugin cannot name one itself.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use host_core::decision::InvalidDecision;
use host_core::ident::{Kind, ObjectId, ObjectKey};
use host_core::snapshot::{Action, ProbeQuery, Problem};
use host_redis::{
    ActionRequest, Class, Groups, ProbeRequest, Request, Resolved, SecretKey, SecretValue,
    Unreachable,
};
use serde::Deserialize;

use crate::error::Error;
use crate::loaded_plugin::LoadedPlugin;
use crate::logic::Logic;

/// The only provider so far, apart from `kubernetes`.
const REDIS: &str = "redis";

/// Looks at something outside; that it cannot be reached is a reply.
pub(crate) async fn probe(
    plugin: &Logic,
    namespace: &str,
    query: &ProbeQuery,
) -> Result<String, Error> {
    let invalid = |problem: String| Error::Invalid {
        plugin: plugin.plugin.id().clone(),
        source: InvalidDecision::Field { path: format!("probe of {}", query.provider), problem },
    };
    let groups = groups(plugin, &query.provider).map_err(|problem| invalid(problem.message))?;
    let request =
        ProbeRequest::parse(&query.request, &groups).map_err(|error| invalid(error.to_string()))?;
    Ok(match resolve(plugin, namespace, &request).await {
        Ok(resolved) => host_redis::probe(&request, &resolved).await,
        Err(unreachable) => unreachable.reply(),
    })
}

/// Does something outside: for a revision that acts.
pub(crate) async fn act(
    plugin: &LoadedPlugin,
    namespace: &str,
    action: &Action,
) -> Result<String, Problem> {
    let groups = groups(plugin, &action.provider)?;
    let request =
        ActionRequest::parse(&action.request, &groups).map_err(|error| error.problem())?;
    match resolve(plugin, namespace, &request).await {
        Ok(resolved) => host_redis::act(&request, &resolved).await,
        Err(unreachable) => Err(unreachable.problem()),
    }
}

fn groups(plugin: &Logic, provider: &str) -> Result<Groups, Problem> {
    let problem = |reason: &str, message: String| Problem { reason: reason.to_owned(), message };
    if provider != REDIS {
        return Err(problem(
            "UnknownProvider",
            format!("this host has no provider {provider:?}; it has redis and kubernetes"),
        ));
    }
    let granted = plugin.grants.provider_groups(provider).unwrap_or_default();
    host_redis::groups_from(granted).map_err(|error| problem("InvalidGrant", error.to_string()))
}

/// Names to addresses and values.
async fn resolve(
    plugin: &Logic,
    namespace: &str,
    request: &Request,
) -> Result<Resolved, Unreachable> {
    let address = pod_ip(plugin, namespace, request.pod(), request.pod_uid())?;
    let mut resolved = Resolved::at(SocketAddr::new(address, request.port()));
    for pod in request.pod_ips() {
        if let Ok(address) = pod_ip(plugin, namespace, &pod, None) {
            resolved.pod_ips.insert(pod, address);
        }
    }
    resolved.secrets = secrets(plugin, namespace, request).await?;
    Ok(resolved)
}

/// A pod's address, from the cache.
fn pod_ip(
    plugin: &Logic,
    namespace: &str,
    name: &str,
    uid: Option<&str>,
) -> Result<IpAddr, Unreachable> {
    #[derive(Deserialize)]
    struct Pod {
        #[serde(default)]
        status: PodStatus,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PodStatus {
        #[serde(rename = "podIP")]
        pod_ip: Option<IpAddr>,
    }
    let no_address = |message: String| Unreachable::new(Class::NoAddress, message);
    let store = plugin.store(&Kind::new("v1", "Pod"), namespace).map_err(|error| {
        no_address(format!("pod {name}: {error}; the plugin needs v1/Pod among its reads"))
    })?;
    let pod = store.get(&ObjectKey::new(namespace, name));
    let pod = pod.ok_or_else(|| no_address(format!("pod {name} does not exist")))?;
    if uid.is_some_and(|uid| *uid != *pod.uid) {
        return Err(no_address(format!("pod {name} is another one than the request is for")));
    }
    let parsed = serde_json::from_str::<Pod>(&pod.json).ok().and_then(|pod| pod.status.pod_ip);
    parsed.ok_or_else(|| no_address(format!("pod {name} has no address yet")))
}

/// Secrets are read by name when they are needed, and never cached: nothing but the request holds them.
async fn secrets(
    plugin: &Logic,
    namespace: &str,
    request: &Request,
) -> Result<BTreeMap<SecretKey, SecretValue>, Unreachable> {
    let mut values = BTreeMap::new();
    for key in request.secrets() {
        let value = plugin.reader.secret_value(namespace, &key.name, &key.key).await;
        let value =
            value.map_err(|error| Unreachable::new(Class::Auth, crate::error::chain(&error)))?;
        values.insert(key, SecretValue::new(value.expose()));
    }
    Ok(values)
}

/// The request of provider `kubernetes`: `{"delete":{"apiVersion","kind","name","uid"}}`.
#[derive(Debug)]
pub(crate) struct DeleteRequest {
    /// Which object, in the parent's namespace.
    pub(crate) id: ObjectId,
    /// Exactly that one.
    pub(crate) uid: String,
}

impl DeleteRequest {
    pub(crate) fn parse(json: &str, namespace: &str) -> Result<Self, Problem> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            delete: Target,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Target {
            api_version: String,
            kind: String,
            name: String,
            uid: String,
        }
        let written: Written = serde_json::from_str(json).map_err(|error| Problem {
            reason: "InvalidRequest".to_owned(),
            message: format!("request: {error}"),
        })?;
        let Target { api_version, kind, name, uid } = written.delete;
        let id =
            ObjectId { kind: Kind::new(api_version, kind), key: ObjectKey::new(namespace, name) };
        Ok(Self { id, uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_needs_a_uid() {
        let error =
            DeleteRequest::parse(r#"{"delete":{"apiVersion":"v1","kind":"Pod","name":"a"}}"#, "n");
        assert!(error.unwrap_err().message.contains("uid"));
    }

    #[test]
    fn a_deletion_stays_in_the_parents_namespace() {
        let request = DeleteRequest::parse(
            r#"{"delete":{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u"}}"#,
            "n",
        );
        assert_eq!(request.unwrap().id.to_string(), "Pod n/a");
    }
}
