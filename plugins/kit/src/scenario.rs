//! One situation, as a person writes it: what exists, and what should therefore be decided.
//!
//! **Invariant:** an unknown key is an error; a scenario never tests something else than it says.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// The time of the run, RFC 3339.
    #[serde(default = "start")]
    pub now: String,
    /// The parent. A missing `metadata.uid` is filled in; without a namespace it is cluster-scoped.
    pub parent: Value,
    /// The parent's live owned objects. Namespace, uid and owner reference are filled in.
    #[serde(default)]
    pub children: Vec<Value>,
    /// What else there is in the cluster, for object queries. Children are found by them as well.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// What providers reply.
    #[serde(default)]
    pub probes: Vec<Probe>,
    /// What became of the decision before.
    pub previous: Option<Previous>,
    /// The plugin's configuration.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
}

/// A provider's reply, for requests that contain `request`: objects by subset, anything else by equality.
/// The first one that fits is used.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Of which provider.
    pub provider: String,
    /// What the request must contain.
    pub request: Value,
    /// What is replied.
    pub reply: Value,
}

/// What became of the previous decision.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Previous {
    /// Each object.
    #[serde(default)]
    pub(crate) objects: Vec<PreviousObject>,
    /// Each action.
    #[serde(default)]
    pub(crate) actions: Vec<PreviousAction>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PreviousObject {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) result: PreviousResult,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PreviousResult {
    Unchanged,
    Applied,
    Deleted,
    #[serde(untagged)]
    Failed {
        failed: PreviousProblem,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviousProblem {
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviousAction {
    pub(crate) provider: String,
    pub(crate) request: Value,
    pub(crate) reply: Option<Value>,
    pub(crate) failed: Option<PreviousProblem>,
}

fn start() -> String {
    "2026-01-31T08:00:00Z".to_owned()
}

/// A scenario cannot be used, or the plugin did what a scenario cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file is not a scenario.
    #[error("reading the scenario")]
    Yaml(#[from] serde_norway::Error),
    /// An object in it is no Kubernetes object.
    #[error("{what} in the scenario is not a Kubernetes object: {problem}")]
    Object {
        /// Which one.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The plugin asked a provider what no probe in the scenario answers.
    #[error("no probe in the scenario answers what the plugin asks {provider}: {request}")]
    NoProbe {
        /// Which provider.
        provider: String,
        /// The plugin's request.
        request: String,
    },
    /// The plugin asked something that the host would refuse.
    #[error("the plugin asks for what it may not: {0}")]
    Query(String),
    /// The plugin does not come to an end.
    #[error("the plugin still asks after {0} rounds; ask for more at once, with Context::ask_all")]
    Rounds(usize),
    /// The plugin failed.
    #[error(transparent)]
    Call(#[from] host_wasm::CallFault),
    /// The host would refuse the decision.
    #[error("the plugin's decision is not valid")]
    Decision(#[from] host_core::decision::InvalidDecision),
    /// The plugin says two things about one situation.
    #[error("the plugin decides differently {when}\n{diff}")]
    Undetermined {
        /// What was done differently.
        when: &'static str,
        /// The two decisions.
        diff: String,
    },
}

impl Scenario {
    /// Reads a scenario.
    pub fn from_yaml(yaml: &str) -> Result<Self, ScenarioError> {
        Ok(serde_norway::from_str(yaml)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_kind_of_outcome() {
        let scenario = Scenario::from_yaml(
            r"
            parent: {}
            previous:
              objects:
                - {apiVersion: v1, kind: A, name: a, result: applied}
                - {apiVersion: v1, kind: A, name: b, result: {failed: {reason: Conflict}}}
              actions:
                - {provider: redis, request: {}, failed: {reason: Timeout, message: late}}
            ",
        )
        .unwrap();
        let previous = scenario.previous.unwrap();
        assert!(matches!(previous.objects[0].result, PreviousResult::Applied));
        assert!(
            matches!(&previous.objects[1].result, PreviousResult::Failed { failed } if failed.reason == "Conflict")
        );
        assert_eq!(previous.actions[0].failed.as_ref().unwrap().reason, "Timeout");
    }

    #[test]
    fn refuses_unknown_keys() {
        assert!(Scenario::from_yaml("{parent: {}, chidlren: []}").is_err());
        assert!(Scenario::from_yaml("{children: []}").is_err());
    }
}
