//! Leader election: carries out what `host_core::lease` decides about one Lease, and moves the gate accordingly.
//!
//! **Invariant:** the Lease is written by compare-and-swap only: replaced at the version that was seen, or created.
//! **Invariant:** the gate is open only from the start of the last successful renewal on for
//! [`host_core::lease::RENEW_DEADLINE`], whatever this task is doing, and closed before the Lease is released.

use std::pin::pin;
use std::time::Duration;

use host_core::lease::{Claim, Election, LEASE, RELEASED, Record, Step};
use host_core::queue::Moment;
use http::Request;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::{ApiError, ApiErrorKind};
use crate::gate::Gate;
use crate::purpose::Purpose;
use crate::uri::escape;

#[cfg(test)]
mod tests;

/// How long one request about the Lease may take: two that hang fit into the 10 s of a renewal.
const REQUEST_DEADLINE: Duration = Duration::from_secs(4);

/// How long a shutdown may wait for the release of the Lease. Without it the next leader waits for 15 s.
const RELEASE_DEADLINE: Duration = Duration::from_secs(2);

/// Whether this host leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// It does not.
    Standby {
        /// Who does, as far as is known.
        holder: Option<String>,
    },
    /// It does, and may write while its gate is open.
    Leading,
    /// It has led and does so no longer. Final: the process is meant to exit.
    Lost,
}

/// A candidate for one Lease.
pub struct Elector {
    client: Client,
    purpose: String,
    collection: String,
    name: String,
    election: Election,
    gate: Gate,
    leadership: watch::Sender<Leadership>,
    start: Instant,
    /// The Lease as last read: labels and the like are written back.
    lease: Value,
    /// The last trouble that was logged, so that it is logged once.
    said: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lease {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    renew_time: Option<String>,
    lease_transitions: Option<u32>,
}

impl From<Lease> for Record {
    fn from(Lease { metadata, spec }: Lease) -> Self {
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: spec
                .lease_duration_seconds
                .map_or(LEASE, |seconds| Duration::from_secs(seconds.into())),
            renewed: spec.renew_time.unwrap_or_default(),
            transitions: spec.lease_transitions.unwrap_or_default(),
            version: metadata.resource_version,
        }
    }
}

impl Elector {
    /// A candidate, and where to learn how it fares. `identity` must be new for each process (see
    /// [`Election::new`]); `seed` is for the jitter of its waits. Nothing happens before [`Elector::run`].
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
        seed: u64,
    ) -> (Self, watch::Receiver<Leadership>) {
        let (leadership, receiver) = watch::channel(Leadership::Standby { holder: None });
        let namespace_path = escape(namespace);
        let elector = Self {
            client,
            purpose: format!("Lease {namespace}/{name}"),
            collection: format!("/apis/coordination.k8s.io/v1/namespaces/{namespace_path}/leases"),
            name: name.to_owned(),
            election: Election::new(identity, seed),
            gate: Gate::closed(),
            leadership,
            start: Instant::now(),
            lease: Value::Null,
            said: None,
        };
        (elector, receiver)
    }

    /// The gate that is open while this candidate leads.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Stands for election until `shutdown` or a loss. After `shutdown`, which must come only when nothing is being
    /// written any more, the Lease is released; that takes 2 s at most.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                result = self.round() => self.report(result.err()),
            }
            let step = self.election.step(self.now());
            self.publish(&step);
            if step == Step::Lost {
                return;
            }
            let next = self.election.next_try(self.now());
            let until = match step {
                Step::WaitUntil(until) => Some(until),
                Step::Look | Step::Claim(_) | Step::Lost => self.election.writes_until(),
            };
            let wake = self.start + until.map_or(next, |until| until.min(next));
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        self.gate.close();
        self.leadership.send_replace(Leadership::Standby { holder: None });
        let released = tokio::time::timeout(RELEASE_DEADLINE, self.release()).await;
        self.report(released.unwrap_or(Ok(())).err());
    }

    fn now(&self) -> Moment {
        self.start.elapsed()
    }

    /// A leader writes at once; whoever does not lead looks first.
    async fn round(&mut self) -> Result<(), ApiError> {
        if self.election.writes_until().is_none() {
            self.look().await?;
        }
        // Twice: after a conflict, a leader whose Lease was only labelled tries once more.
        for _ in 0..2 {
            let Step::Claim(claim) = self.election.step(self.now()) else { return Ok(()) };
            match self.claim(&claim).await {
                Err(error)
                    if matches!(error.kind(), ApiErrorKind::Conflict | ApiErrorKind::NotFound) =>
                {
                    self.look().await?;
                }
                result => return result,
            }
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<(), ApiError> {
        let purpose = Purpose::new(format!("read {}", self.purpose));
        let request = Request::get(self.path()).body(Vec::new());
        match self.send(&purpose, request).await {
            Ok(record) => self.election.saw(Some(record), self.now()),
            Err(error) if error.kind() == ApiErrorKind::NotFound => {
                self.lease = Value::Null;
                self.election.saw(None, self.now());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn claim(&mut self, claim: &Claim) -> Result<(), ApiError> {
        let purpose = Purpose::new(format!("claim {}", self.purpose));
        let now = micro_time();
        let mut spec = json!({
            "holderIdentity": self.election.identity(),
            "leaseDurationSeconds": LEASE.as_secs(),
            "leaseTransitions": claim.transitions,
            "renewTime": now,
        });
        let acquired = if claim.first { Some(&Value::from(now)) } else { None };
        let acquired = acquired.or_else(|| self.lease.pointer("/spec/acquireTime"));
        if let (Some(acquired), Some(spec)) = (acquired.cloned(), spec.as_object_mut()) {
            spec.insert("acquireTime".to_owned(), acquired);
        }
        let request = self.write(claim.replaces.as_deref(), spec);
        let began = self.now();
        self.election.tries();
        let record = self.send(&purpose, request).await?;
        self.election.wrote(record, began, self.now());
        if let Some(until) = self.election.writes_until() {
            self.gate.extend(self.start + until);
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<(), ApiError> {
        let purpose = Purpose::new(format!("release {}", self.purpose));
        for _ in 0..2 {
            if self.election.release().is_none() {
                self.look().await?;
            }
            let Some((version, transitions)) = self.election.release() else { return Ok(()) };
            let now = micro_time();
            let spec = json!({
                "holderIdentity": "",
                "leaseDurationSeconds": RELEASED.as_secs(),
                "leaseTransitions": transitions,
                "acquireTime": now,
                "renewTime": now,
            });
            let request = self.write(Some(&version), spec);
            match self.send(&purpose, request).await {
                Ok(_) => {
                    tracing::info!(lease = self.purpose, "leadership released");
                    return Ok(());
                }
                Err(error) if error.kind() == ApiErrorKind::Conflict => self.look().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection, escape(&self.name))
    }

    /// The Lease as it was read, with another spec.
    fn write(&self, replaces: Option<&str>, spec: Value) -> http::Result<Request<Vec<u8>>> {
        let Some(version) = replaces else {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name},
                "spec": spec,
            });
            return Request::post(&self.collection)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(lease.to_string().into_bytes());
        };
        let mut lease = self.lease.clone();
        if let Some(fields) = lease.as_object_mut() {
            fields.insert("spec".to_owned(), spec);
        }
        if let Some(metadata) = lease.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
        Request::put(self.path())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(lease.to_string().into_bytes())
    }

    async fn send(
        &mut self,
        purpose: &Purpose,
        request: http::Result<Request<Vec<u8>>>,
    ) -> Result<Record, ApiError> {
        let request = request
            .map_err(|error| ApiError::new(purpose, ApiErrorKind::Invalid, &error.to_string()))?;
        let left = self.election.writes_until().map(|until| until.saturating_sub(self.now()));
        let deadline = left.unwrap_or(REQUEST_DEADLINE).min(REQUEST_DEADLINE);
        let text = self.client.text(purpose, request, deadline).await?;
        let malformed = |error| ApiError::malformed(purpose, &error);
        let lease: Value = serde_json::from_str(&text).map_err(malformed)?;
        let record = Lease::deserialize(&lease).map_err(malformed)?;
        self.lease = lease;
        Ok(record.into())
    }

    fn publish(&self, step: &Step) {
        let now = match step {
            Step::Lost => Leadership::Lost,
            _ if self.election.writes_until().is_some() => Leadership::Leading,
            Step::Look | Step::Claim(_) | Step::WaitUntil(_) => {
                Leadership::Standby { holder: self.election.holder().map(ToOwned::to_owned) }
            }
        };
        if now == Leadership::Lost {
            self.gate.close();
        }
        self.leadership.send_if_modified(|before| {
            let changed = *before != now;
            if changed {
                tracing::info!(
                    lease = self.purpose,
                    identity = self.election.identity(),
                    ?now,
                    "leadership"
                );
                *before = now;
            }
            changed
        });
    }

    fn report(&mut self, trouble: Option<ApiError>) {
        let message = trouble.map(|error| error.to_string());
        if let Some(message) = &message
            && self.said.as_ref() != Some(message)
        {
            tracing::warn!("{message}");
        }
        self.said = message;
    }
}

/// The wall clock, as Kubernetes writes a `MicroTime`: for people only.
fn micro_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
