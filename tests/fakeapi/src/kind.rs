//! Which kinds are served and how, and how one object of them is named.

use serde_json::{Value, json};

/// Name of the kind that defines kinds.
pub(crate) const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// How one kind is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// `group/version`, or `v1`.
    pub(crate) api_version: String,
    /// `kind`.
    pub(crate) name: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
    /// Whether it has a status subresource.
    pub(crate) status: bool,
    /// Whether its objects count the changes of their spec.
    pub(crate) generation: bool,
}

/// One object, named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Group, version, kind, plural, whether it is namespaced, has a status subresource, and counts generations.
type Row = (&'static str, &'static str, &'static str, &'static str, bool, bool, bool);

const KNOWN: [Row; 9] = [
    ("", "v1", "ConfigMap", "configmaps", true, false, false),
    ("", "v1", "Secret", "secrets", true, false, false),
    ("", "v1", "Pod", "pods", true, true, true),
    ("", "v1", "Service", "services", true, true, false),
    ("events.k8s.io", "v1", "Event", "events", true, false, false),
    ("coordination.k8s.io", "v1", "Lease", "leases", true, false, false),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
        true,
        true,
    ),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", false, true, false),
    ("plugins.operator-host.dev", "v1alpha1", "Plugin", "plugins", true, true, true),
];

impl Kind {
    pub(crate) fn new(
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
        namespaced: bool,
        status: bool,
    ) -> Self {
        let api_version =
            if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let (name, plural) = (kind.to_owned(), plural.to_owned());
        Self { api_version, name, plural, namespaced, status, generation: status }
    }

    /// What every server knows.
    pub(crate) fn known() -> Vec<Self> {
        KNOWN
            .iter()
            .map(|(group, version, kind, plural, namespaced, status, generation)| Self {
                generation: *generation,
                ..Self::new(group, version, kind, plural, *namespaced, *status)
            })
            .collect()
    }

    /// The kinds that a CRD defines: one for each version that is served.
    pub(crate) fn of_definition(definition: &Value) -> Vec<Self> {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        versions
            .iter()
            .filter(|version| version["served"] == true)
            .map(|version| Self {
                generation: true,
                ..Self::new(
                    &text(&spec["group"]),
                    &text(&version["name"]),
                    &text(&spec["names"]["kind"]),
                    &text(&spec["names"]["plural"]),
                    spec["scope"] == "Namespaced",
                    version["subresources"]["status"].is_object(),
                )
            })
            .collect()
    }

    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// `apiVersion` and `kind`.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.api_version, &self.name)
    }

    /// `plural.group`, as messages name it.
    pub(crate) fn resource(&self) -> String {
        if self.group().is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group())
        }
    }

    pub(crate) fn id(&self, namespace: &str, name: &str) -> Id {
        Id {
            api_version: self.api_version.clone(),
            kind: self.name.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// What discovery says about one group and version; None: it has no kinds.
    pub(crate) fn discovery(kinds: &[Self], api_version: &str) -> Option<Value> {
        let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
        let of_group = kinds.iter().filter(|kind| kind.api_version == api_version);
        let resources: Vec<_> = of_group
            .flat_map(|kind| {
                let entry = |name: String, verbs: &[&str]| {
                    json!({"name": name, "singularName": kind.name.to_lowercase(),
                        "kind": kind.name, "namespaced": kind.namespaced, "verbs": verbs})
                };
                let status = kind
                    .status
                    .then(|| entry(format!("{}/status", kind.plural), &["get", "patch", "update"]));
                std::iter::once(entry(kind.plural.clone(), &verbs)).chain(status)
            })
            .collect();
        (!resources.is_empty()).then(|| {
            json!({"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": api_version,
                "resources": resources})
        })
    }
}
