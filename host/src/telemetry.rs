//! Logs, metrics, and the last words of a process that cannot go on.
//!
//! Metric names are controller-runtime's where the meaning is the same, so that existing dashboards work.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use host_core::queue::Priority;
use host_kube::Scope;
use host_wasm::{LogLevel, LogLine};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;
use crate::run::Host;

/// Starts logging to standard error.
pub(crate) fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        anyhow::anyhow!(
            "--log {filter:?} is not a log filter such as `info` or `operator_host=debug`: {error}"
        )
    })?;
    // The Kubernetes client logs refused answers whole at `debug`, and an answer may hold a Secret.
    let filter =
        filter.add_directive("kube_client=info".parse().context("a directive of our own")?);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
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

/// One line that a plugin has logged.
pub(crate) fn plugin_log(line: &LogLine) {
    let fields = line.fields.iter().fold(String::new(), |mut text, (key, value)| {
        // Writing to a String cannot fail.
        let _ = write!(text, " {key}={value:?}");
        text
    });
    match line.level {
        LogLevel::Trace => tracing::trace!(target: "plugin", "{}{fields}", line.message),
        LogLevel::Debug => tracing::debug!(target: "plugin", "{}{fields}", line.message),
        LogLevel::Info => tracing::info!(target: "plugin", "{}{fields}", line.message),
        LogLevel::Warn => tracing::warn!(target: "plugin", "{}{fields}", line.message),
        LogLevel::Error => tracing::error!(target: "plugin", "{}{fields}", line.message),
    }
}

/// This moment as Kubernetes writes it. The one place where the host reads the wall clock.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByController {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    controller: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByFault {
    plugin: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDigest {
    plugin: String,
    version: String,
    digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPriority {
    controller: String,
    priority: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByInformer {
    kind: String,
    scope: String,
}

/// controller-runtime's buckets for reconcile time, without the empty upper half.
const RECONCILE_BUCKETS: [f64; 12] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A plugin call costs 0.07 to 1 ms; the deadline is 1 s.
const CALL_BUCKETS: [f64; 10] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

type Durations = Family<ByController, Histogram, fn() -> Histogram>;

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<ByResult, Counter>,
    reconcile_errors: Family<ByController, Counter>,
    reconcile_seconds: Durations,
    panics: Family<ByController, Counter>,
    active: Family<ByController, Gauge>,
    call_seconds: Durations,
    faults: Family<ByFault, Counter>,
    info: Family<ByDigest, Gauge>,
    loads: Family<ByResult, Counter>,
    depth: Family<ByPriority, Gauge>,
    delayed: Gauge,
    objects: Family<ByInformer, Gauge>,
    synced: Family<ByInformer, Gauge>,
    staleness: Family<ByInformer, Gauge>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_seconds: Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS)),
            panics: Family::default(),
            active: Family::default(),
            call_seconds: Family::new_with_constructor(|| Histogram::new(CALL_BUCKETS)),
            faults: Family::default(),
            info: Family::default(),
            loads: Family::default(),
            depth: Family::default(),
            delayed: Gauge::default(),
            objects: Family::default(),
            synced: Family::default(),
            staleness: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        // The encoder appends `_total` to counters.
        registry.register(
            "controller_runtime_reconcile",
            "Runs by result",
            self.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Runs that did not go through",
            self.reconcile_errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a run",
            self.reconcile_seconds.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Runs that panicked",
            self.panics.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Runs in progress",
            self.active.clone(),
        );
        registry.register(
            "operator_host_plugin_call_seconds",
            "Duration of one call into a plugin",
            self.call_seconds.clone(),
        );
        registry.register(
            "operator_host_plugin_faults",
            "Calls that broke a limit or trapped",
            self.faults.clone(),
        );
        registry.register(
            "operator_host_plugin_info",
            "1 for the active version",
            self.info.clone(),
        );
        registry.register(
            "operator_host_plugin_loads",
            "Plugin loads by result",
            self.loads.clone(),
        );
        registry.register("workqueue_depth", "Parents waiting to run", self.depth.clone());
        registry.register(
            "operator_host_workqueue_delayed",
            "Parents waiting for a time",
            self.delayed.clone(),
        );
        registry.register("operator_host_informer_objects", "Cached objects", self.objects.clone());
        registry.register(
            "operator_host_informer_synced",
            "1 when the cache is complete",
            self.synced.clone(),
        );
        registry.register(
            "operator_host_informer_staleness_seconds",
            "Time since the API server was last heard of",
            self.staleness.clone(),
        );
    }

    /// A run has ended.
    pub(crate) fn reconciled(&self, plugin: &str, result: &'static str, took: Duration) {
        let controller = ByController { controller: plugin.to_owned() };
        self.reconcile_seconds.get_or_create(&controller).observe(took.as_secs_f64());
        if !matches!(result, "success" | "gone" | "waiting") {
            self.reconcile_errors.get_or_create(&controller).inc();
        }
        self.reconciles.get_or_create(&ByResult { controller: plugin.to_owned(), result }).inc();
    }

    /// Runs in progress have changed.
    pub(crate) fn active(&self, plugin: &str, change: i64) {
        self.active.get_or_create(&ByController { controller: plugin.to_owned() }).inc_by(change);
    }

    /// A run has panicked.
    pub(crate) fn panicked(&self, plugin: &str) {
        self.panics.get_or_create(&ByController { controller: plugin.to_owned() }).inc();
    }

    /// One call into a plugin has ended.
    pub(crate) fn called(&self, plugin: &str, took: Duration) {
        let controller = ByController { controller: plugin.to_owned() };
        self.call_seconds.get_or_create(&controller).observe(took.as_secs_f64());
    }

    /// A plugin has trapped or broken a limit.
    pub(crate) fn faulted(&self, plugin: &str, reason: &str) {
        let fault = ByFault { plugin: plugin.to_owned(), reason: reason.to_owned() };
        self.faults.get_or_create(&fault).inc();
    }

    /// A load has ended.
    pub(crate) fn loaded(&self, source: &str, result: &'static str) {
        self.loads.get_or_create(&ByResult { controller: source.to_owned(), result }).inc();
    }

    /// The text for a scrape.
    pub(crate) fn render(&self, host: &Host) -> Result<String, std::fmt::Error> {
        self.info.clear();
        self.depth.clear();
        self.objects.clear();
        self.synced.clear();
        self.staleness.clear();
        let plugins = host.plugins.all();
        for plugin in &plugins {
            let descriptor = plugin.plugin.descriptor();
            let label = ByDigest {
                plugin: descriptor.name.clone(),
                version: descriptor.version.clone(),
                digest: plugin.plugin.id().digest.to_string(),
            };
            self.info.get_or_create(&label).set(1);
        }
        let (depth, delayed) = host.dispatch.depth();
        for plugin in &plugins {
            for priority in Priority::ALL {
                let waiting = depth
                    .iter()
                    .filter(|(lane, which, _)| *lane == plugin.lane && *which == priority)
                    .map(|(_, _, count)| count)
                    .sum::<usize>();
                let controller = plugin.name().to_owned();
                let label = ByPriority { controller, priority: priority.as_str() };
                self.depth.get_or_create(&label).set(gauge(waiting));
            }
        }
        self.delayed.set(gauge(delayed));
        for informer in host.informers.report() {
            let scope = match &informer.scope {
                Scope::All => String::new(),
                Scope::Namespace(namespace) => namespace.clone(),
            };
            let label = ByInformer { kind: informer.kind.to_string(), scope };
            self.objects.get_or_create(&label).set(gauge(informer.objects));
            self.synced.get_or_create(&label).set(i64::from(informer.synced));
            let seconds = informer.staleness.map_or(-1, |age| gauge(age.as_secs()));
            self.staleness.get_or_create(&label).set(seconds);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn gauge(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
