//! From a path to what is meant by it.

use percent_encoding::percent_decode_str;

use crate::kind::Kind;
use crate::refusal::Refusal;
use crate::state::State;

/// What a path leads to.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// The server's version.
    Version,
    /// Questions about rights.
    AccessReviews,
    /// The kinds of a group and version.
    Kinds { api_version: String },
    /// The objects of a kind, in a namespace or in all.
    Collection { kind: Kind, namespace: Option<String> },
    /// One object, or its status.
    Object { kind: Kind, namespace: String, name: String, status: bool },
}

/// Finds it.
pub(crate) fn route(state: &State, path: &str) -> Result<Route, Refusal> {
    let segments: Vec<_> = path
        .trim_start_matches('/')
        .split('/')
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy())
        .collect();
    let segments: Vec<_> = segments.iter().map(AsRef::as_ref).collect();
    let (api_version, rest) = match segments.as_slice() {
        ["version"] => return Ok(Route::Version),
        ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] => {
            return Ok(Route::AccessReviews);
        }
        ["api", version, rest @ ..] => ((*version).to_owned(), rest),
        ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
        _ => return Err(Refusal::no_such_path()),
    };
    let (namespace, rest) = match rest {
        [] => return Ok(Route::Kinds { api_version }),
        // Two segments are an object of the kind Namespace.
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let [plural, rest @ ..] = rest else { return Err(Refusal::no_such_path()) };
    let kinds = state.kinds();
    let is_meant = |kind: &Kind| {
        let fits = kind.namespaced || namespace.is_none();
        kind.api_version == api_version && kind.plural == *plural && fits
    };
    let kind = kinds.into_iter().find(is_meant).ok_or_else(Refusal::no_such_path)?;
    let (name, status) = match rest {
        [] => {
            let namespace = namespace.map(ToOwned::to_owned);
            return Ok(Route::Collection { kind, namespace });
        }
        [name] => (*name, false),
        [name, "status"] if kind.status => (*name, true),
        _ => return Err(Refusal::no_such_path()),
    };
    if kind.namespaced != namespace.is_some() {
        return Err(Refusal::no_such_path());
    }
    let (namespace, name) = (namespace.unwrap_or_default().to_owned(), name.to_owned());
    Ok(Route::Object { kind, namespace, name, status })
}
