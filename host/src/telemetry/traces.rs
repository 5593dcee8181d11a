//! Spans to an OpenTelemetry collector: one trace for each reconcile (ADR 0009).
//!
//! **Invariant:** a collector that is slow or gone costs dropped spans, never a reconcile: the queue to it is bounded,
//! and sending has a thread of its own.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

/// How long the collector may take for one batch; as long as the standard's default.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Answers of a collector are a few bytes; whatever is longer is not one.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Sends a batch, blocking: the batch processor has a thread for that.
#[derive(Debug)]
struct Sender(ureq::Agent);

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let response = self.0.run(Request::from_parts(head, body.to_vec()))?;
        let (head, mut body) = response.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(head, body.into()))
    }
}

/// A tracer that sends to `endpoint` (`http://collector:4318`), and its provider, to be shut down at the end.
pub(crate) fn tracer(endpoint: &str) -> anyhow::Result<(SdkTracer, SdkTracerProvider)> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .build()
        .into();
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Sender(agent))
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(TIMEOUT)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()
        .with_context(|| format!("setting up traces to {endpoint}"))?;
    let resource = Resource::builder().with_service_name("operator-host").build();
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    Ok((provider.tracer("operator-host"), provider))
}
