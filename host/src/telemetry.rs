//! Logs, traces, metrics, and the last words of a process that cannot go on.

mod metrics;
mod process;
mod traces;

use std::process::ExitCode;

use anyhow::Context as _;
use host_engine::STAGES;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::flags::LogFormat;

pub(crate) use metrics::Metrics;

/// Keeps traces going; dropping it sends what is waiting.
#[derive(Debug)]
pub(crate) struct Traces(Option<SdkTracerProvider>);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.as_ref().map(SdkTracerProvider::shutdown) {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// Starts logging to standard error, and traces to a collector if one is named.
pub(crate) fn init(
    filter: &str,
    format: LogFormat,
    collector: Option<&str>,
) -> anyhow::Result<Traces> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        anyhow::anyhow!(
            "--log {filter:?} is not a log filter such as `info` or `host_engine=debug`: {error}"
        )
    })?;
    // The Kubernetes client logs refused answers whole at `debug`, and an answer may hold a Secret.
    let filter =
        filter.add_directive("kube_client=info".parse().context("a directive of our own")?);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let (spans, provider) = match collector.map(traces::tracer).transpose()? {
        Some((tracer, provider)) => {
            // Spans of the host only: those of libraries are for their developers.
            let ours =
                EnvFilter::new(format!("operator_host=info,host_engine=info,{STAGES}=debug"));
            let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours);
            (Some(layer), Some(provider))
        }
        None => (None, None),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans).init();
    Ok(Traces(provider))
}

/// Prints why the process ends, and how it exits then.
#[expect(
    clippy::print_stderr,
    reason = "the last words of a process whose logging may not have started"
)]
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("operator-host: {error:#}");
    ExitCode::FAILURE
}
