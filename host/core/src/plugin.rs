//! The `Plugin` kind: what a user wants of a plugin, and what the host tells about it (ADR 0011).
//!
//! **Invariant:** the spec is the user's. The host creates an empty one where there is none and writes the status alone.

mod revision;

pub use revision::{InvalidRevision, Revision};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::divergence::PlanSummary;
use crate::grants::{CallLimits, GrantSpec, PluginSettings};
use crate::ident::Kind;
use crate::rollout::RolloutSpec;

/// Group and version of the kind.
pub const API_VERSION: &str = "plugins.operator-host.dev/v1alpha1";

/// The kind itself.
pub fn kind() -> Kind {
    Kind::new(API_VERSION, "Plugin")
}

/// Where a plugin's bytes come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.configMap) && has(self.oci))",
    "message": "name one source: configMap or oci",
}]))]
pub struct PluginSource {
    /// A ConfigMap in the same namespace.
    /// Default: the one with the label `operator-host.dev/plugin` and this Plugin's name as its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// An OCI artifact: what `operator-host plugin push` makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciSource>,
}

/// An OCI artifact with a component, as the CNCF's layout for Wasm artifacts has it: one layer `application/wasm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciSource {
    /// Registry, repository and tag, or digest: `registry.example.com/team/redis:1.4.0`, or with `@sha256:…`.
    #[schemars(length(min = 1, max = 512))]
    pub reference: String,
    /// A Secret of type `kubernetes.io/dockerconfigjson` in the same namespace. The host needs the right to get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub pull_secret_name: Option<String>,
    /// How often a tag is looked up again, in seconds. A digest is pulled once. Default 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86_400))]
    pub interval_seconds: Option<u32>,
}

/// Seconds between two looks at a tag, unless a Plugin says otherwise.
const INTERVAL_SECONDS: u32 = 300;

impl OciSource {
    /// Between two looks at a tag.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_seconds.unwrap_or(INTERVAL_SECONDS).into())
    }
}

/// A ConfigMap with a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key of the component, plain, gzip or zstd.
    #[serde(default = "key_wasm")]
    pub key: String,
}

fn key_wasm() -> String {
    crate::text::KEY_WASM.to_owned()
}

/// What a user wants of a plugin. Everything has a default; a field that is set counts more than the same field
/// of the ConfigMap's `plugin.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginSpec {
    /// Where the bytes come from.
    pub source: PluginSource,
    /// Take these bytes and no others: `sha256:` and 64 hexadecimal characters of the unpacked component.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// What the plugin may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantSpec>,
    /// Handed to the plugin with every snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<BTreeMap<String, String>>,
    /// Parents reconciled at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub concurrency: Option<u16>,
    /// Bounds of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<CallLimits>,
    /// The service account, in this namespace, for which the host does what the plugin wants, reads included.
    /// Default: the host's own. The host needs the right to impersonate it (`deploy/impersonation`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// The only namespaces that the plugin sees and acts in. Default: all that the host watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Vec<String>",
        length(min = 1, max = 100),
        inner(regex(pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub namespaces: Option<BTreeSet<String>>,
    /// How a new revision comes to act.
    pub rollout: RolloutSpec,
    /// A revision that may act whatever its plan says: what `operator-host plugin approve` sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<Revision>,
    /// Run this revision, whatever the source holds: what `operator-host plugin rollback` sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Load and plan new revisions, but let none act.
    pub paused: bool,
    /// How many earlier revisions are kept to go back to. Default 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 20))]
    pub revision_history_limit: Option<u8>,
}

/// Earlier revisions that are kept unless a Plugin says otherwise.
const REVISION_HISTORY_LIMIT: u8 = 3;

impl PluginSpec {
    /// Whether the user has asked for a revision by its name.
    pub fn names(&self, revision: Revision) -> bool {
        [self.approved, self.revision].contains(&Some(revision))
    }

    /// How many earlier revisions are kept.
    pub fn history_limit(&self) -> usize {
        self.revision_history_limit.unwrap_or(REVISION_HISTORY_LIMIT).into()
    }

    /// What is set here, and where nothing is, what came with the bytes.
    pub fn settings(&self, with_bytes: PluginSettings) -> PluginSettings {
        PluginSettings {
            grants: self.grants.clone().unwrap_or(with_bytes.grants),
            config: self.config.clone().unwrap_or(with_bytes.config),
            concurrency: self.concurrency.or(with_bytes.concurrency),
            limits: self.limits.clone().unwrap_or(with_bytes.limits),
            service_account_name: self
                .service_account_name
                .clone()
                .or(with_bytes.service_account_name),
            namespaces: self.namespaces.clone().or(with_bytes.namespaces),
        }
    }
}

/// One revision, described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionStatus {
    /// Which.
    pub revision: Revision,
    /// Its bytes: `sha256:…` of the unpacked component.
    pub digest: String,
    /// The version its descriptor states.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Since when it is what it is, RFC 3339.
    pub since: String,
    /// It has not proved itself yet: its first fault takes it back, after a restart too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_probation: bool,
}

/// How far a candidate has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Stage {
    /// It is being verified and compiled.
    Loading,
    /// It cannot run: not a plugin, not granted, not what its source says.
    Refused,
    /// It runs beside the active revision, without acting.
    Shadowing,
    /// It waits for somebody's consent.
    Held,
    /// It acts for some parents.
    Canary,
    /// It has acted and was taken back.
    RolledBack,
}

impl Stage {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "Loading",
            Self::Refused => "Refused",
            Self::Shadowing => "Shadowing",
            Self::Held => "Held",
            Self::Canary => "Canary",
            Self::RolledBack => "RolledBack",
        }
    }
}

/// A revision that does not act, or not everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// Which revision; absent when the source cannot even be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Its bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The version its descriptor states.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// How far it has come.
    pub stage: Stage,
    /// Why it is there, `CamelCase`.
    pub reason: String,
    /// The same for people, and what to do.
    pub message: String,
}

/// One line of a plugin's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// Which revision.
    pub revision: Revision,
    /// Its bytes.
    pub digest: String,
    /// The version its descriptor states.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// When it began to act, RFC 3339.
    pub promoted: String,
    /// Why it no longer acts; empty while it does, and `Replaced` when a later one took over.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ended: String,
}

/// A revision that was taken back and is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quarantined {
    /// Which revision.
    pub revision: Revision,
    /// Why.
    pub reason: String,
    /// It had been approved by name when it was taken back, and that approval is spent: approve another one, or none,
    /// before this one again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approval_spent: bool,
}

/// What the host tells about a plugin. `conditions` and `observedGeneration` are added when it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginStatus {
    /// The revision that acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<RevisionStatus>,
    /// In one word, what is to be said about the newest revision.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    /// The newest revision, while it does not act everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
    /// Objects that the plugin reconciles.
    #[schemars(range(min = 0))]
    pub parents: u32,
    /// What the candidate would do, from running it without acting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// Revisions that have acted, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// Revisions that were taken back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quarantined: Vec<Quarantined>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_in_the_plugin_counts_more_than_what_came_with_the_bytes() {
        let with_bytes = PluginSettings {
            config: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            concurrency: Some(2),
            ..PluginSettings::default()
        };
        let spec = PluginSpec { concurrency: Some(7), ..PluginSpec::default() };
        let settings = spec.settings(with_bytes.clone());
        assert_eq!((settings.concurrency, settings.config), (Some(7), with_bytes.config));
    }
}
