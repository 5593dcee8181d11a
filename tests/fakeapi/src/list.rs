//! Lists, whole or page by page: all pages show the state at the first.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kind::Kind;
use crate::refusal::Refusal;
use crate::state::{Rest, State};

/// A page to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    /// Objects at most; None: all.
    pub(crate) limit: Option<usize>,
    /// Of a list that was begun.
    pub(crate) token: Option<String>,
}

/// Lists objects of a kind, each in the form that `form` gives it.
pub(crate) fn list(
    state: &mut State,
    kind: &Kind,
    namespace: Option<&str>,
    page: &Page,
    form: impl Fn(&Value) -> Value,
) -> Result<Value, Refusal> {
    let Rest { version, mut objects } = match &page.token {
        Some(token) => state.rests.get(token).cloned().ok_or_else(|| {
            Refusal::expired("The provided continue parameter is too old to display a list result")
        })?,
        None => Rest {
            version: state.version(),
            objects: state.list(&kind.api_version, &kind.name, namespace),
        },
    };
    let mut metadata = json!({"resourceVersion": version.to_string()});
    let later = objects.split_off(page.limit.unwrap_or(usize::MAX).min(objects.len()));
    if let Some(next) = later.first() {
        let (api_version, kind) = kind.names();
        let scope = namespace.unwrap_or("*");
        let first = &next["metadata"];
        let token = format!(
            "{version} {api_version} {kind} {scope} {}/{}",
            first["namespace"], first["name"]
        );
        metadata["continue"] = token.as_str().into();
        metadata["remainingItemCount"] = later.len().into();
        state.rests.insert(token, Rest { version, objects: later });
    }
    let items: Vec<_> = objects.iter().map(Arc::as_ref).map(form).collect();
    let list = format!("{}List", kind.name);
    Ok(json!({"apiVersion": kind.api_version, "kind": list, "metadata": metadata, "items": items}))
}
