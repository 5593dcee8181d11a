//! One request, read: its verb as Kubernetes names it, its path, query and body.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, header, request};
use serde_json::Value;

use crate::refusal::Refusal;

/// What can be asked for in a query. Whoever asks for more must learn that it is not there.
const PARAMETERS: [&str; 12] = [
    "watch",
    "allowWatchBookmarks",
    "timeoutSeconds",
    "sendInitialEvents",
    "resourceVersionMatch",
    "resourceVersion",
    "limit",
    "continue",
    "fieldManager",
    "force",
    "fieldValidation",
    "dryRun",
];

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Apply,
    Merge,
    JsonPatch,
    Delete,
    /// Something else.
    Unknown,
}

impl Verb {
    /// As Kubernetes and `host_kube::RequestDone` name it.
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Apply => "apply",
            Self::Merge | Self::JsonPatch => "patch",
            Self::Delete => "delete",
            Self::Unknown => "unknown",
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) path: String,
    query: BTreeMap<String, String>,
    body: Bytes,
    /// Whether only metadata is asked for.
    pub(crate) metadata_only: bool,
}

impl Call {
    pub(crate) fn new(head: &request::Parts, body: Bytes) -> Self {
        let text = |name: HeaderName| {
            head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        let query = head.uri.query().unwrap_or_default();
        let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let verb = match (&head.method, text(header::CONTENT_TYPE)) {
            (&Method::GET, _) if query.get("watch").is_some_and(|watch| watch == "true") => {
                Verb::Watch
            }
            (&Method::GET, _) if query.contains_key("limit") => Verb::List,
            (&Method::GET, _) => Verb::Get,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, _) => Verb::Update,
            (&Method::DELETE, _) => Verb::Delete,
            (&Method::PATCH, "application/apply-patch+yaml") => Verb::Apply,
            (&Method::PATCH, "application/merge-patch+json") => Verb::Merge,
            (&Method::PATCH, "application/json-patch+json") => Verb::JsonPatch,
            _ => Verb::Unknown,
        };
        let metadata_only = text(header::ACCEPT).contains("as=PartialObjectMetadata");
        Self { verb, path: head.uri.path().to_owned(), query, body, metadata_only }
    }

    /// `apply /path`; of the query, only that it is a trial.
    pub(crate) fn line(&self) -> String {
        let trial = if self.is_dry_run() { "?dryRun=All" } else { "" };
        format!("{} {}{trial}", self.verb.name(), self.path)
    }

    /// Whether the request asks for nothing that this server has not.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.verb == Verb::Unknown {
            return Err(Refusal::new(415, "UnsupportedMediaType", "this is not understood here"));
        }
        match self.query.keys().find(|name| !PARAMETERS.contains(&name.as_str())) {
            Some(name) => Err(Refusal::bad(format!("fakeapi has no parameter {name}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.query.get("dryRun").is_some_and(|all| all == "All")
    }

    pub(crate) fn asks(&self, parameter: &str) -> bool {
        self.query.get(parameter).is_some_and(|value| value == "true")
    }

    pub(crate) fn text(&self, parameter: &str) -> Option<&str> {
        self.query.get(parameter).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A number in the query; None: it is not there.
    pub(crate) fn number(&self, parameter: &str) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(parameter) else { return Ok(None) };
        let bad = |_| Refusal::bad(format!("{parameter}={text} is not a number"));
        text.parse().map(Some).map_err(bad)
    }

    /// How long a watch goes on.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, Refusal> {
        Ok(self.number("timeoutSeconds")?.map(Duration::from_secs))
    }

    /// The body; an empty one is `{}`.
    pub(crate) fn json(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        let malformed = |error| Refusal::bad(format!("the body is not JSON: {error}"));
        serde_json::from_slice(&self.body).map_err(malformed)
    }
}
