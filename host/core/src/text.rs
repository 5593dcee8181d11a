//! Every name the host writes where users see it: labels, annotations, finalizers, field managers,
//! condition types and reasons.

/// The prefix of the host's own labels and annotations.
pub const DOMAIN: &str = "operator-host.dev";

/// Label on a plugin's ConfigMap: the plugin's name. Its presence makes the ConfigMap a plugin.
pub const LABEL_PLUGIN: &str = "operator-host.dev/plugin";

/// Label on a ConfigMap that keeps a revision: the plugin's name. Such a ConfigMap is no plugin by itself.
pub const LABEL_REVISION_OF: &str = "operator-host.dev/revision-of";

/// Annotation on a ConfigMap that keeps a revision: the version its descriptor states.
pub const ANNOTATION_VERSION: &str = "operator-host.dev/version";

/// The recommended label that says who manages an object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The value of [`LABEL_MANAGED_BY`] on owned objects.
pub const MANAGED_BY: &str = "operator-host";

/// Annotation on every object the host applies: `<parent uid>/<hash of what was applied>`.
pub const ANNOTATION_APPLIED: &str = "operator-host.dev/applied";

/// Annotation a user puts on a parent to let a held mass deletion go on: the parent's generation.
pub const ANNOTATION_ALLOW_DELETIONS: &str = "operator-host.dev/allow-deletions";

/// Annotation a user puts on a parent to give up its deletion logic when the plugin is gone: `true`.
pub const ANNOTATION_ABANDON: &str = "operator-host.dev/abandon";

/// Key of a plugin ConfigMap's component, plain.
pub const KEY_WASM: &str = "plugin.wasm";

/// Key of the signature of a plugin ConfigMap's component.
pub const KEY_SIGNATURE: &str = "plugin.wasm.sig";

/// Annotation on the layer of an OCI artifact: the signature of the component in it, in base64.
pub const ANNOTATION_SIGNATURE: &str = "operator-host.dev/signature";

/// Key of a plugin ConfigMap's settings: grants, configuration, limits.
pub const KEY_SETTINGS: &str = "plugin.yaml";

/// The host's own condition on every parent: did the last run go through?
pub const CONDITION_RECONCILED: &str = "Reconciled";

/// The summary condition, the plugin's to set.
pub const CONDITION_READY: &str = "Ready";

/// The field manager of a plugin; the same for all its versions.
pub fn field_manager(plugin: &str) -> String {
    format!("operator-host/{plugin}")
}

/// The finalizer of a plugin.
pub fn finalizer(plugin: &str) -> String {
    format!("{DOMAIN}/{plugin}")
}

/// Kubernetes' own finalizer on an object that is deleted without its dependents.
pub const ORPHAN: &str = "orphan";

/// True for a CamelCase word as Kubernetes wants reasons to be: a letter, then letters, digits, at most 128.
pub fn is_reason(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// True for a DNS-1123 label of at most `max` characters.
pub fn is_dns_label(text: &str, max: usize) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.len() <= max
        && text.chars().all(inner)
        && text.starts_with(edge)
        && text.ends_with(edge)
}
