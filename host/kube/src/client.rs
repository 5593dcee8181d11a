//! The one place that sends requests: each with a deadline, each failure classified.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures::AsyncBufRead;
use host_core::ident::{Kind, ObjectId};
use http::Request;

use crate::discovery::Discovery;
use crate::error::ApiError;

/// How long one call may take, kube's retries of 429, 503 and 504 included. The API server gives up after 60 s;
/// a reconcile would rather try again later.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// A connection to one cluster, cheap to clone.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    address: Arc<str>,
    pub(crate) discovery: Arc<Discovery>,
}

/// What a request is for: the beginning of its error message, and whether its answer may be quoted.
#[derive(Clone, Debug)]
pub(crate) struct Purpose {
    pub(crate) text: String,
    pub(crate) confidential: bool,
}

impl Purpose {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), confidential: false }
    }

    pub(crate) fn on(verb: impl Display, id: &ObjectId) -> Self {
        Self { text: format!("{verb} {id}"), confidential: is_secret(&id.kind) }
    }
}

/// Whether objects of this kind hold what must not be quoted.
pub(crate) fn is_secret(kind: &Kind) -> bool {
    kind.kind == "Secret" && kind.group().is_empty()
}

impl Client {
    /// Wraps a kube client: a test's fake service comes in here. `address` is for messages.
    pub fn from_kube(kube: kube::Client, address: &str) -> Self {
        Self { kube, address: address.into(), discovery: Arc::default() }
    }

    /// Where the API server is, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request and takes the whole answer.
    pub(crate) async fn text(
        &self,
        purpose: &Purpose,
        request: Request<Vec<u8>>,
        deadline: Duration,
    ) -> Result<String, ApiError> {
        match tokio::time::timeout(deadline, self.kube.request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(ApiError::from_kube(purpose, &error)),
            Err(_) => Err(ApiError::timed_out(purpose, deadline)),
        }
    }

    /// Sends a request whose answer goes on; the deadline is for its head.
    pub(crate) async fn stream(
        &self,
        purpose: &Purpose,
        request: Request<Vec<u8>>,
    ) -> Result<impl AsyncBufRead + use<>, ApiError> {
        match tokio::time::timeout(CALL_DEADLINE, self.kube.request_stream(request)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(ApiError::from_kube(purpose, &error)),
            Err(_) => Err(ApiError::timed_out(purpose, CALL_DEADLINE)),
        }
    }
}
