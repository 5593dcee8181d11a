//! Counting API requests by who made them and by verb.
//!
//! The API server counts requests by flow schema. So each candidate has an account of its own, and each account a flow
//! schema for each verb: nobody else's requests (the benchmark's, the controllers') are among them, and nothing has to be
//! subtracted. The priority level is `exempt`: the server limits neither candidate.

use std::collections::BTreeMap;

use anyhow::Context as _;
use devcluster::DevCluster;
use serde_json::{Value, json};

use crate::api::Api;

/// The verbs the API server tells apart.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// What is no resource, such as discovery.
const OTHER: &str = "other";
/// Events, whatever the verb: they tell, they do not change.
const EVENTS: &str = "events";
/// What the API server calls the counter.
const COUNTER: &str = "apiserver_flowcontrol_dispatched_requests_total";

/// Requests by verb, with those of [`EVENTS`] and [`OTHER`] apart; all are there, if only as zero.
pub(crate) type Requests = BTreeMap<&'static str, u64>;

/// A service account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Where it is, and what it is called: both have the same name.
    pub(crate) name: &'static str,
}

impl Account {
    fn schema(self, class: &str) -> String {
        format!("bench-{}-{class}", self.name)
    }

    /// Has its requests counted from now on.
    pub(crate) async fn count(self, cluster: &DevCluster) -> anyhow::Result<()> {
        let schemas: Vec<Value> = classes().map(|class| self.flow_schema(class)).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": schemas});
        cluster.kubectl_stdin(&["apply", "-f", "-"], &list.to_string()).await?;
        Ok(())
    }

    fn flow_schema(self, class: &str) -> Value {
        match class {
            OTHER => {
                let rule = json!({
                    "subjects": self.subjects(),
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                });
                self.schema_of(class, 11, &rule)
            }
            // The first that matches counts: events before their verbs.
            EVENTS => self.schema_of(class, 10, &self.rule("*", EVENTS)),
            verb => self.schema_of(class, 11, &self.rule(verb, "*")),
        }
    }

    fn subjects(self) -> Value {
        let account = json!({"name": self.name, "namespace": self.name});
        json!([{"kind": "ServiceAccount", "serviceAccount": account}])
    }

    fn rule(self, verb: &str, resource: &str) -> Value {
        json!({
            "subjects": self.subjects(),
            "resourceRules": [{
                "verbs": [verb], "apiGroups": ["*"], "resources": [resource],
                "namespaces": ["*"], "clusterScope": true,
            }],
        })
    }

    fn schema_of(self, class: &str, precedence: u32, rule: &Value) -> Value {
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": self.schema(class)},
            "spec": {
                "priorityLevelConfiguration": {"name": "exempt"},
                "matchingPrecedence": precedence,
                "rules": [rule],
            },
        })
    }

    /// Has requests for one resource counted apart from now on, whatever the verb: they are no longer among the others.
    pub(crate) async fn count_apart(
        self,
        cluster: &DevCluster,
        class: &str,
        resource: &str,
    ) -> anyhow::Result<()> {
        let schema = self.schema_of(class, 9, &self.rule("*", resource));
        cluster.kubectl_stdin(&["apply", "-f", "-"], &schema.to_string()).await?;
        Ok(())
    }

    /// Requests so far of a class that is counted apart.
    pub(crate) async fn requests_apart(self, api: &Api, class: &str) -> anyhow::Result<u64> {
        Ok(counted(&api.metrics().await?, &self.schema(class)))
    }

    /// Requests so far.
    pub(crate) async fn requests(self, api: &Api) -> anyhow::Result<Requests> {
        let metrics = api.metrics().await?;
        Ok(classes().map(|class| (class, counted(&metrics, &self.schema(class)))).collect())
    }

    /// A kubeconfig with a token of this account, made from the administrator's.
    pub(crate) async fn kubeconfig(self, cluster: &DevCluster) -> anyhow::Result<String> {
        let token = cluster
            .kubectl(&["-n", self.name, "create", "token", self.name, "--duration", "24h"])
            .await?;
        let text = cluster.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
        let mut config: Value = serde_json::from_str(&text).context("kubectl printed no JSON")?;
        let user = config.pointer_mut("/users/0/user").context("the kubeconfig has no user")?;
        *user = json!({"token": token.trim()});
        Ok(config.to_string())
    }
}

fn classes() -> impl Iterator<Item = &'static str> {
    VERBS.into_iter().chain([OTHER, EVENTS])
}

/// What has changed between two samples.
pub(crate) fn difference(after: &Requests, before: &Requests) -> Requests {
    let since = |(verb, count): (&&'static str, &u64)| {
        (*verb, count.saturating_sub(before.get(verb).copied().unwrap_or_default()))
    };
    after.iter().map(since).collect()
}

/// Those that change something; events are not among them.
pub(crate) fn writes(requests: &Requests) -> u64 {
    ["create", "update", "patch", "delete"].iter().filter_map(|verb| requests.get(verb)).sum()
}

fn counted(metrics: &str, schema: &str) -> u64 {
    let label = format!("flow_schema=\"{schema}\"");
    let samples = metrics.lines().filter(|line| {
        line.strip_prefix(COUNTER)
            .is_some_and(|rest| rest.starts_with('{') && rest.contains(&label))
    });
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_one_schema_only() {
        let metrics = "\
apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"bench-a-get\",priority_level=\"exempt\"} 3
apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"bench-a-get\",priority_level=\"x\"} 4
apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"bench-a-getter\",priority_level=\"exempt\"} 50
apiserver_flowcontrol_rejected_requests_total{flow_schema=\"bench-a-get\",priority_level=\"exempt\"} 600
";
        assert_eq!(counted(metrics, "bench-a-get"), 7);
    }

    #[test]
    fn reads_and_events_are_no_writes() {
        let before = Requests::from([("get", 1), ("patch", 1)]);
        let after = Requests::from([("get", 9), ("patch", 4), ("create", 2), (EVENTS, 7)]);
        let since = difference(&after, &before);
        assert_eq!(since, Requests::from([("get", 8), ("patch", 3), ("create", 2), (EVENTS, 7)]));
        assert_eq!(writes(&since), 5);
    }
}
