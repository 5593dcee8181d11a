//! What a plugin may do: the intersection of what it asks for and what it was granted.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ident::Kind;
use crate::invalid_decision::InvalidDecision;
use crate::limits;
use crate::snapshot::Descriptor;
use crate::text;

/// A plugin's settings: the `plugin.yaml` beside its bytes. Unknown keys are errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PluginSettings {
    /// What the plugin may do. Nothing by default.
    pub grants: GrantSpec,
    /// Handed to the plugin with every snapshot.
    pub config: BTreeMap<String, String>,
    /// Parents reconciled at once; at least 1. Default 4.
    pub concurrency: Option<u16>,
    /// Bounds of one call.
    pub limits: CallLimits,
    /// The service account, in the host's namespace, for which everything is done that the plugin wants.
    /// Default: the host's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The only namespaces that the plugin sees and acts in. Default: all that the host watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<String>>,
}

impl PluginSettings {
    /// Namespaces that these let a plugin act in and others do not, as `acts in namespace shop`, sorted.
    pub fn namespaces_beyond(&self, other: &Self) -> Vec<String> {
        let Some(theirs) = &other.namespaces else { return Vec::new() };
        match &self.namespaces {
            None => vec!["acts in all namespaces".to_owned()],
            Some(mine) => {
                mine.difference(theirs).map(|name| format!("acts in namespace {name}")).collect()
            }
        }
    }
}

/// Powers, as a person writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GrantSpec {
    /// Kinds the plugin may own: create, change, delete.
    pub owns: Vec<Kind>,
    /// Kinds the plugin may query.
    pub reads: Vec<Kind>,
    /// Kinds the plugin may query, set some fields on, and delete single objects of.
    pub patches: Vec<Kind>,
    /// Providers, each with the command groups it may use; an empty list means the provider's own safe default.
    pub providers: BTreeMap<String, Vec<String>>,
}

/// Bounds of one call into the plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CallLimits {
    /// Longest duration of one call, in milliseconds.
    pub call_deadline_ms: u32,
    /// Largest memory of one call, in MiB; at most 64.
    pub memory_mib: u32,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { call_deadline_ms: 1_000, memory_mib: 64 }
    }
}

/// What a loaded plugin may do: asked ∩ granted, with the parent kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    owns: BTreeSet<Kind>,
    reads: BTreeSet<Kind>,
    patches: BTreeSet<Kind>,
    providers: BTreeMap<String, Vec<String>>,
}

/// Why a descriptor is refused at load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedDescriptor {
    /// The descriptor breaks the contract.
    #[error("the plugin describes itself wrongly: {field} {problem}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The plugin needs what it was not granted.
    #[error("the plugin asks for what it was not granted: {}; add it to plugin.yaml, or use a plugin that needs less", missing.join(", "))]
    NotGranted {
        /// Each missing power, as `grants.owns: v1/Secret`.
        missing: Vec<String>,
    },
}

impl Grants {
    /// Intersects what a plugin asks for with what it was granted. A plugin that would run crippled does not run.
    pub fn intersect(asked: &Descriptor, granted: &GrantSpec) -> Result<Self, RefusedDescriptor> {
        check_descriptor(asked)?;
        let mut missing = Vec::new();
        let mut need = |list: &str, kinds: &[Kind], granted: &[&[Kind]]| {
            for kind in kinds {
                if !granted.iter().any(|list| list.contains(kind)) {
                    missing.push(format!("grants.{list}: {kind}"));
                }
            }
        };
        need("owns", &asked.owns, &[&granted.owns]);
        need("patches", &asked.patches, &[&granted.patches]);
        need("reads", &asked.reads, &[&granted.reads, &granted.patches, &granted.owns]);
        for provider in &asked.providers {
            if !granted.providers.contains_key(provider) {
                missing.push(format!("grants.providers: {provider}"));
            }
        }
        if !missing.is_empty() {
            return Err(RefusedDescriptor::NotGranted { missing });
        }
        Ok(Self::from_parts(asked, &granted.providers))
    }

    /// Grants exactly what is asked, providers with their safe default: for development from a file.
    pub fn as_asked(asked: &Descriptor) -> Result<Self, RefusedDescriptor> {
        check_descriptor(asked)?;
        Ok(Self::from_parts(asked, &BTreeMap::new()))
    }

    fn from_parts(asked: &Descriptor, providers: &BTreeMap<String, Vec<String>>) -> Self {
        let reads =
            asked.reads.iter().chain(&asked.patches).chain(&asked.owns).chain([&asked.parent]);
        let groups = |provider: &String| {
            (provider.clone(), providers.get(provider).cloned().unwrap_or_default())
        };
        Self {
            owns: asked.owns.iter().cloned().collect(),
            reads: reads.cloned().collect(),
            patches: asked.patches.iter().cloned().collect(),
            providers: asked.providers.iter().map(groups).collect(),
        }
    }

    /// What these allow and others do not, as `owns v1/ConfigMap`, sorted.
    pub fn beyond(&self, other: &Self) -> Vec<String> {
        let kinds = |verb: &'static str, mine: &BTreeSet<Kind>, theirs: &BTreeSet<Kind>| {
            let more = mine.difference(theirs).map(|kind| format!("{verb} {kind}"));
            more.collect::<Vec<_>>()
        };
        let mut more = kinds("owns", &self.owns, &other.owns);
        more.extend(kinds("patches", &self.patches, &other.patches));
        more.extend(kinds("reads", &self.reads, &other.reads));
        for (provider, groups) in &self.providers {
            match other.providers.get(provider) {
                None => more.push(format!("uses provider {provider}")),
                Some(before) => {
                    let new = groups.iter().filter(|group| !before.contains(group));
                    more.extend(new.map(|group| format!("uses {provider} commands {group}")));
                }
            }
        }
        more
    }

    /// Kinds the plugin owns, sorted.
    pub fn owns(&self) -> impl Iterator<Item = &Kind> {
        self.owns.iter()
    }

    /// Kinds the plugin may delete single objects of.
    pub fn may_delete(&self, kind: &Kind) -> bool {
        self.owns.contains(kind) || self.patches.contains(kind)
    }

    /// Every kind the plugin may see, sorted.
    pub fn reads(&self) -> impl Iterator<Item = &Kind> {
        self.reads.iter()
    }

    /// Kinds the plugin sets some fields on, sorted.
    pub fn patches(&self) -> impl Iterator<Item = &Kind> {
        self.patches.iter()
    }

    /// Command groups granted for a provider; None when the provider is not granted at all.
    pub fn provider_groups(&self, provider: &str) -> Option<&[String]> {
        self.providers.get(provider).map(Vec::as_slice)
    }

    /// Fails unless `kind` may be owned.
    pub fn check_owns(&self, kind: &Kind) -> Result<(), InvalidDecision> {
        check("owning", "owns", kind, self.owns.contains(kind))
    }

    /// Fails unless some fields of `kind` may be set.
    pub fn check_patches(&self, kind: &Kind) -> Result<(), InvalidDecision> {
        check("patching", "patches", kind, self.patches.contains(kind))
    }

    /// Fails unless `kind` may be queried.
    pub fn check_reads(&self, kind: &Kind) -> Result<(), InvalidDecision> {
        check("reading", "reads", kind, self.reads.contains(kind))
    }

    /// Fails unless `provider` may be used.
    pub fn check_provider(&self, provider: &str) -> Result<(), InvalidDecision> {
        if self.providers.contains_key(provider) {
            return Ok(());
        }
        Err(InvalidDecision::NotGranted {
            what: format!("provider {provider}"),
            fix: format!(
                "name it in the descriptor's providers and under grants.providers of {}",
                text::KEY_SETTINGS
            ),
        })
    }
}

fn check(verb: &str, list: &str, kind: &Kind, granted: bool) -> Result<(), InvalidDecision> {
    if granted {
        return Ok(());
    }
    Err(InvalidDecision::NotGranted {
        what: format!("{verb} {kind}"),
        fix: format!(
            "name it in the descriptor's {list} and under grants.{list} of {}",
            text::KEY_SETTINGS
        ),
    })
}

fn check_descriptor(asked: &Descriptor) -> Result<(), RefusedDescriptor> {
    let invalid = |field, problem: String| Err(RefusedDescriptor::Invalid { field, problem });
    if !text::is_dns_label(&asked.name, limits::PLUGIN_NAME_MAX) {
        let problem = format!(
            "is {:?}, but must be a DNS label of at most {} characters",
            asked.name,
            limits::PLUGIN_NAME_MAX
        );
        return invalid("name", problem);
    }
    let lists = [("owns", &asked.owns), ("reads", &asked.reads), ("patches", &asked.patches)];
    let parent = std::iter::once(("parent", &asked.parent));
    for (field, kind) in
        parent.chain(lists.iter().flat_map(|(f, kinds)| kinds.iter().map(move |kind| (*f, kind))))
    {
        if kind.version().is_empty() || kind.kind.is_empty() {
            return invalid(
                field,
                format!("has {kind:?}, but both apiVersion and kind are needed"),
            );
        }
    }
    let mut kinds =
        lists.iter().flat_map(|(field, kinds)| kinds.iter().map(move |kind| (*field, kind)));
    if let Some((field, _)) = kinds.find(|(_, kind)| **kind == Kind::new("v1", "Secret")) {
        let problem =
            "lists v1/Secret, which no plugin may see; name the Secret's key in a provider request";
        return invalid(field, problem.to_owned());
    }
    if asked.owns.contains(&asked.parent) {
        return invalid(
            "owns",
            format!("lists the parent kind {}, which a plugin cannot own", asked.parent),
        );
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn descriptor() -> Descriptor {
        Descriptor {
            name: "demo".into(),
            version: "1.0.0".into(),
            parent: Kind::new("example.com/v1", "Demo"),
            owns: vec![Kind::new("v1", "ConfigMap"), Kind::new("apps/v1", "StatefulSet")],
            reads: vec![],
            patches: vec![Kind::new("v1", "Pod")],
            providers: vec!["redis".into()],
            finalizer: false,
            hints: vec![],
        }
    }

    pub(crate) fn grants_for_tests() -> Grants {
        Grants::as_asked(&descriptor()).unwrap()
    }

    #[test]
    fn lists_everything_that_is_missing_at_once() {
        let error =
            Grants::intersect(&descriptor(), &GrantSpec::default()).unwrap_err().to_string();
        for power in
            ["grants.owns: v1/ConfigMap", "grants.patches: v1/Pod", "grants.providers: redis"]
        {
            assert!(error.contains(power), "{error}");
        }
    }

    #[test]
    fn grants_no_more_than_was_asked() {
        let asked = descriptor();
        let mut granted = GrantSpec {
            owns: asked.owns.clone(),
            reads: vec![],
            patches: asked.patches.clone(),
            providers: BTreeMap::from([("redis".to_owned(), vec![])]),
        };
        granted.owns.push(Kind::new("v1", "Secret"));
        let grants = Grants::intersect(&asked, &granted).unwrap();
        assert!(grants.check_owns(&Kind::new("v1", "Secret")).is_err());
        assert!(grants.check_owns(&Kind::new("v1", "ConfigMap")).is_ok());
        assert!(grants.check_reads(&Kind::new("v1", "Pod")).is_ok());
    }

    #[test]
    fn names_what_is_allowed_beyond_another_plugin() {
        let before = grants_for_tests();
        assert_eq!(before.beyond(&before), Vec::<String>::new());
        let mut asked = descriptor();
        asked.owns.push(Kind::new("v1", "Service"));
        let providers = BTreeMap::from([("redis".to_owned(), vec!["topology".to_owned()])]);
        let after = Grants::from_parts(&asked, &providers);
        let more = ["owns v1/Service", "reads v1/Service", "uses redis commands topology"];
        assert_eq!(after.beyond(&before), more);
    }

    #[test]
    fn never_hands_out_secrets() {
        let mut asked = descriptor();
        asked.reads.push(Kind::new("v1", "Secret"));
        let error = Grants::as_asked(&asked).unwrap_err().to_string();
        assert!(error.contains("no plugin may see"), "{error}");
    }

    #[test]
    fn refuses_a_name_that_cannot_be_a_label() {
        let mut asked = descriptor();
        asked.name = "Not A Label".into();
        assert!(Grants::as_asked(&asked).is_err());
    }
}
