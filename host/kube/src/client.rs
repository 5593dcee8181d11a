//! The one place that sends requests: each with a deadline, each failure classified.
//!
//! **Invariant:** what changes the cluster goes through [`Client::change`], and so through the gate; only the Lease
//! that decides about the gate does not.

use std::sync::Arc;
use std::time::Duration;

use futures::AsyncBufRead;
use http::{HeaderName, HeaderValue, Request};
use tokio::time::Instant;

use crate::discovered::Discovered;
use crate::error::{ApiError, ApiErrorKind};
use crate::gate::Gate;
use crate::purpose::Purpose;
use crate::request::{self, OnRequest, RequestDone};

/// How long one call may take, kube's retries of 429, 503 and 504 included. The API server gives up after 60 s;
/// a reconcile would rather try again later.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// For whom a request is made. Groups are the API server's to add.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// A name that cannot be that of a service account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be the name of a service account")]
pub struct InvalidName(String);

/// A connection to one cluster, cheap to clone.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    address: Arc<str>,
    pub(crate) discovered: Arc<Discovered>,
    gate: Gate,
    on_request: Option<OnRequest>,
    /// Whom requests are made for, when that is not the host itself.
    impersonates: Option<HeaderValue>,
}

impl Client {
    /// Wraps a kube client: a test's fake service comes in here. `address` is for messages.
    pub fn from_kube(kube: kube::Client, address: &str) -> Self {
        Self {
            kube,
            address: address.into(),
            discovered: Arc::default(),
            gate: Gate::open(),
            on_request: None,
            impersonates: None,
        }
    }

    /// The same client, whose single requests are made for a service account: the API server allows what that may do,
    /// if this client's own account may impersonate it.
    pub fn as_service_account(self, namespace: &str, name: &str) -> Result<Self, InvalidName> {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let user = HeaderValue::from_str(&user).map_err(|_| InvalidName(name.to_owned()))?;
        Ok(Self { impersonates: Some(user), ..self })
    }

    /// The same client, whose changes go through a gate: while it is closed they fail with
    /// [`ApiErrorKind::NotLeader`] and are not sent.
    #[must_use]
    pub fn gated(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// The same client, which tells of every request it has made.
    #[must_use]
    pub fn observed(self, on_request: OnRequest) -> Self {
        Self { on_request: Some(on_request), ..self }
    }

    /// Where the API server is, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request that changes something, if the gate is open, and takes the whole answer. It is given up when
    /// the lease ends: from then on another host may write.
    pub(crate) async fn change(
        &self,
        purpose: &Purpose,
        request: Request<Vec<u8>>,
        deadline: Duration,
    ) -> Result<String, ApiError> {
        self.gate.check().map_err(|closed| {
            ApiError::new(purpose, ApiErrorKind::NotLeader, &closed.to_string())
        })?;
        let left = self.gate.lease_end().map(|end| end.saturating_duration_since(Instant::now()));
        self.text(purpose, request, left.unwrap_or(deadline).min(deadline)).await
    }

    /// Sends a request and takes the whole answer.
    pub(crate) async fn text(
        &self,
        purpose: &Purpose,
        mut request: Request<Vec<u8>>,
        deadline: Duration,
    ) -> Result<String, ApiError> {
        let verb = request::verb(&request);
        if let Some(user) = &self.impersonates {
            request.headers_mut().insert(IMPERSONATE_USER, user.clone());
        }
        self.answer(purpose, verb, self.kube.request_text(request), deadline).await
    }

    /// Sends a request whose answer goes on; the deadline is for its head.
    pub(crate) async fn stream(
        &self,
        purpose: &Purpose,
        request: Request<Vec<u8>>,
    ) -> Result<impl AsyncBufRead + use<>, ApiError> {
        let verb = request::verb(&request);
        self.answer(purpose, verb, self.kube.request_stream(request), CALL_DEADLINE).await
    }

    async fn answer<T>(
        &self,
        purpose: &Purpose,
        verb: &'static str,
        call: impl Future<Output = kube::Result<T>>,
        deadline: Duration,
    ) -> Result<T, ApiError> {
        let began = Instant::now();
        let answer = tokio::time::timeout(deadline, call).await;
        if let Some(on_request) = &self.on_request {
            let code = answer.as_ref().map_or(0, request::code);
            on_request(&RequestDone { verb, code, took: began.elapsed() });
        }
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(ApiError::from_kube(purpose, &error)),
            Err(_) => Err(ApiError::timed_out(purpose, deadline)),
        }
    }
}
