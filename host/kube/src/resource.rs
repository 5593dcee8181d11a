//! How a kind is served, or why it cannot be used.

use host_core::ident::Kind;

use crate::error::{ApiError, ApiErrorKind};
use crate::purpose::Purpose;

/// How one kind is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Which kind.
    pub kind: Kind,
    /// `statefulsets`.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it has a status subresource.
    pub has_status: bool,
    /// `get`, `list`, `watch`, `patch`…
    pub verbs: Vec<String>,
}

impl Resource {
    /// Whether the kind offers a verb.
    pub fn offers(&self, verb: &str) -> bool {
        self.verbs.iter().any(|offered| offered == verb)
    }

    /// The collection's path, in one namespace or in all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let root = root(&self.kind.api_version);
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }
}

/// The path of a group and version.
pub(crate) fn root(api_version: &str) -> String {
    let prefix = if api_version.contains('/') { "apis" } else { "api" };
    format!("/{prefix}/{api_version}")
}

/// Why a kind cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// The server does not know it.
    #[error("the API server has no {0}; is its CRD installed?")]
    NotFound(Kind),
    /// The server did not say.
    #[error("cannot tell whether the API server has {0}: {1}")]
    Unavailable(Kind, ApiError),
}

impl DiscoveryError {
    /// The failure of a call that needed the kind.
    pub(crate) fn during(&self, purpose: &Purpose) -> ApiError {
        let kind = match self {
            Self::NotFound(_) => ApiErrorKind::KindMissing,
            Self::Unavailable(_, error) => error.kind(),
        };
        ApiError::new(purpose, kind, &self.to_string())
    }
}
