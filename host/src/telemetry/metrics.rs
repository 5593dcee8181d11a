//! Everything that is counted, and its text for a scrape.
//!
//! Names and labels are those of controller-runtime and client-go where the meaning is the same, so that existing
//! dashboards work; `operator_host_` is ours. The dashboard and the alerts in `deploy/monitoring` use both.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use host_core::queue::{LaneReport, Priority};
use host_engine::{Gauges, Meter};
use host_kube::{InformerReport, RequestDone, Scope};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use super::process;

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
struct ByStage {
    controller: String,
    stage: &'static str,
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

/// client-go's `name` and controller-runtime's `controller` are the same thing here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQueue {
    name: String,
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPriority {
    name: String,
    controller: String,
    priority: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByInformer {
    kind: String,
    scope: String,
    form: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRequest {
    code: String,
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByVerb {
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByName {
    name: &'static str,
}

/// controller-runtime's buckets for reconcile time, without the empty upper half; also for waits in the queue.
const RECONCILE_BUCKETS: [f64; 12] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A plugin call costs 0.07 to 1 ms, and so does planning; the deadline of a call is 1 s.
const CALL_BUCKETS: [f64; 10] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
type Seconds = Gauge<f64, AtomicU64>;

fn slow<L: Clone + std::hash::Hash + Eq>() -> Histograms<L> {
    Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS))
}

fn fast<L: Clone + std::hash::Hash + Eq>() -> Histograms<L> {
    Family::new_with_constructor(|| Histogram::new(CALL_BUCKETS))
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<ByResult, Counter>,
    reconcile_errors: Family<ByController, Counter>,
    terminal_errors: Family<ByController, Counter>,
    reconcile_seconds: Histograms<ByController>,
    panics: Family<ByController, Counter>,
    active: Family<ByController, Gauge>,
    concurrency: Family<ByController, Gauge>,
    depth: Family<ByPriority, Gauge>,
    adds: Family<ByQueue, Counter>,
    retries: Family<ByQueue, Counter>,
    queue_seconds: Histograms<ByQueue>,
    work_seconds: Histograms<ByQueue>,
    unfinished: Family<ByQueue, Seconds>,
    longest: Family<ByQueue, Seconds>,
    delayed: Gauge,
    hot: Family<ByController, Gauge>,
    repairs: Family<ByController, Counter>,
    stage_seconds: Histograms<ByStage>,
    call_seconds: Histograms<ByController>,
    faults: Family<ByFault, Counter>,
    info: Family<ByDigest, Gauge>,
    loads: Family<ByResult, Counter>,
    requests: Family<ByRequest, Counter>,
    request_seconds: Histograms<ByVerb>,
    leading: Family<ByName, Gauge>,
    objects: Family<ByInformer, Gauge>,
    bytes: Family<ByInformer, Gauge>,
    synced: Family<ByInformer, Gauge>,
    staleness: Family<ByInformer, Gauge>,
    relists: Family<ByInformer, Counter>,
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge,
    /// One scrape at a time: each clears what it fills.
    scraping: Mutex<()>,
}

impl Metrics {
    #[rustfmt::skip] // a table
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        Self {
            reconciles: add(r, "controller_runtime_reconcile", "Runs by result", Family::default()),
            reconcile_errors: add(r, "controller_runtime_reconcile_errors", "Runs that did not go through", Family::default()),
            terminal_errors: add(r, "controller_runtime_terminal_reconcile_errors", "Runs that only a change can mend", Family::default()),
            reconcile_seconds: add(r, "controller_runtime_reconcile_time_seconds", "Duration of a run", slow()),
            panics: add(r, "controller_runtime_reconcile_panics", "Runs that panicked", Family::default()),
            active: add(r, "controller_runtime_active_workers", "Runs in progress", Family::default()),
            concurrency: add(r, "controller_runtime_max_concurrent_reconciles", "Runs that may be in progress", Family::default()),
            depth: add(r, "workqueue_depth", "Parents ready to run", Family::default()),
            adds: add(r, "workqueue_adds", "Parents that became ready", Family::default()),
            retries: add(r, "workqueue_retries", "Runs to be tried again", Family::default()),
            queue_seconds: add(r, "workqueue_queue_duration_seconds", "How long a parent was ready before it ran", slow()),
            work_seconds: add(r, "workqueue_work_duration_seconds", "How long a run took", slow()),
            unfinished: add(r, "workqueue_unfinished_work_seconds", "How long runs in progress have taken so far, added up", Family::default()),
            longest: add(r, "workqueue_longest_running_processor_seconds", "How long the longest of them has", Family::default()),
            requests: add(r, "rest_client_requests", "Requests to the API server", Family::default()),
            request_seconds: add(r, "rest_client_request_duration_seconds", "How long they took; a watch until it opened", slow()),
            leading: add(r, "leader_election_master_status", "1 while this host acts", Family::default()),
            cpu: add(r, "process_cpu_seconds", "Processor time used", Counter::default()),
            resident: add(r, "process_resident_memory_bytes", "Memory in use", Gauge::default()),
            delayed: add(r, "operator_host_workqueue_delayed", "Parents waiting for a time", Gauge::default()),
            hot: add(r, "operator_host_circuit_open", "Parents slowed down by the hot-loop breaker", Family::default()),
            repairs: add(r, "operator_host_contested_repairs", "Repairs of objects that somebody else keeps changing back", Family::default()),
            stage_seconds: add(r, "operator_host_stage_seconds", "Duration of one stage of a run", fast()),
            call_seconds: add(r, "operator_host_plugin_call_seconds", "Duration of one call into a plugin", fast()),
            faults: add(r, "operator_host_plugin_faults", "Calls that broke a limit or trapped", Family::default()),
            info: add(r, "operator_host_plugin_info", "1 for the active version", Family::default()),
            loads: add(r, "operator_host_plugin_loads", "Plugin loads by result", Family::default()),
            objects: add(r, "operator_host_informer_objects", "Cached objects", Family::default()),
            bytes: add(r, "operator_host_informer_bytes", "Their text", Family::default()),
            synced: add(r, "operator_host_informer_synced", "1 when the cache can be read", Family::default()),
            staleness: add(r, "operator_host_informer_staleness_seconds", "Time since the API server was last heard of", Family::default()),
            relists: add(r, "operator_host_informer_relists", "Whole lists taken", Family::default()),
            registry,
            scraping: Mutex::new(()),
        }
    }

    /// The API server has answered, or not (code 0).
    pub(crate) fn requested(&self, done: &RequestDone) {
        let code = if done.code == 0 { "<error>".to_owned() } else { done.code.to_string() };
        let method = method(done.verb);
        self.requests.get_or_create(&ByRequest { code, method }).inc();
        let verb = ByVerb { verb: done.verb };
        self.request_seconds.get_or_create(&verb).observe(done.took.as_secs_f64());
    }

    /// The text for a scrape.
    pub(crate) fn render(&self, gauges: &Gauges) -> Result<String, std::fmt::Error> {
        let _alone = self.scraping.lock().unwrap_or_else(PoisonError::into_inner);
        self.info.clear();
        self.depth.clear();
        for plugin in &gauges.plugins {
            let label = ByDigest {
                plugin: plugin.name.clone(),
                version: plugin.version.clone(),
                digest: plugin.digest.clone(),
            };
            self.info.get_or_create(&label).set(1);
            if let Some(report) = &plugin.queue {
                self.queued(&plugin.name, report);
            }
        }
        self.delayed.set(gauge(gauges.delayed));
        let name = ByName { name: "operator-host" };
        self.leading.get_or_create(&name).set(i64::from(gauges.leading));
        self.informers(&gauges.informers);
        let (cpu, resident) = process::usage();
        rise(&self.cpu, cpu);
        self.resident.set(gauge(resident));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn queued(&self, plugin: &str, report: &LaneReport) {
        for (priority, waiting) in Priority::ALL.into_iter().zip(report.depth) {
            let ByQueue { name, controller } = queue(plugin);
            let label = ByPriority { name, controller, priority: priority.as_str() };
            self.depth.get_or_create(&label).set(gauge(waiting));
        }
        let (queue, controller) = (queue(plugin), controller(plugin));
        let adds = self.adds.get_or_create(&queue);
        adds.inc_by(report.adds.saturating_sub(adds.get()));
        let retries = self.retries.get_or_create(&queue);
        retries.inc_by(report.retries.saturating_sub(retries.get()));
        self.unfinished.get_or_create(&queue).set(report.unfinished.as_secs_f64());
        self.longest.get_or_create(&queue).set(report.longest.as_secs_f64());
        self.concurrency.get_or_create(&controller).set(gauge(report.concurrency));
        self.hot.get_or_create(&controller).set(gauge(report.hot));
    }

    fn informers(&self, informers: &[InformerReport]) {
        self.objects.clear();
        self.bytes.clear();
        self.synced.clear();
        self.staleness.clear();
        for informer in informers {
            let scope = match &informer.scope {
                Scope::All => String::new(),
                Scope::Namespace(namespace) => namespace.clone(),
            };
            let label =
                ByInformer { kind: informer.kind.to_string(), scope, form: informer.form.as_str() };
            self.objects.get_or_create(&label).set(gauge(informer.objects));
            self.bytes.get_or_create(&label).set(gauge(informer.bytes));
            self.synced.get_or_create(&label).set(i64::from(informer.synced));
            let seconds = informer.staleness.map_or(-1, |age| gauge(age.as_secs()));
            self.staleness.get_or_create(&label).set(seconds);
            let relists = self.relists.get_or_create(&label);
            relists.inc_by(informer.relists.saturating_sub(relists.get()));
        }
    }
}

impl Meter for Metrics {
    fn popped(&self, plugin: &str, waited: Duration) {
        self.queue_seconds.get_or_create(&queue(plugin)).observe(waited.as_secs_f64());
        self.active.get_or_create(&controller(plugin)).inc();
    }

    fn finished(&self, plugin: &str, took: Duration) {
        self.work_seconds.get_or_create(&queue(plugin)).observe(took.as_secs_f64());
        self.active.get_or_create(&controller(plugin)).dec();
    }

    fn reconciled(&self, plugin: &str, result: &'static str, took: Duration) {
        let controller = controller(plugin);
        self.reconcile_seconds.get_or_create(&controller).observe(took.as_secs_f64());
        if !matches!(result, "success" | "gone" | "waiting") {
            self.reconcile_errors.get_or_create(&controller).inc();
        }
        if result == "terminal" {
            self.terminal_errors.get_or_create(&controller).inc();
        }
        self.reconciles.get_or_create(&ByResult { controller: plugin.to_owned(), result }).inc();
    }

    fn stage(&self, plugin: &str, stage: &'static str, took: Duration) {
        let label = ByStage { controller: plugin.to_owned(), stage };
        self.stage_seconds.get_or_create(&label).observe(took.as_secs_f64());
    }

    fn panicked(&self, plugin: &str) {
        self.panics.get_or_create(&controller(plugin)).inc();
    }

    fn contested(&self, plugin: &str, objects: usize) {
        self.repairs.get_or_create(&controller(plugin)).inc_by(gauge(objects).cast_unsigned());
    }

    fn called(&self, plugin: &str, took: Duration) {
        self.call_seconds.get_or_create(&controller(plugin)).observe(took.as_secs_f64());
    }

    fn faulted(&self, plugin: &str, reason: &str) {
        let fault = ByFault { plugin: plugin.to_owned(), reason: reason.to_owned() };
        self.faults.get_or_create(&fault).inc();
    }

    fn loaded(&self, source: &str, result: &'static str) {
        self.loads.get_or_create(&ByResult { controller: source.to_owned(), result }).inc();
    }
}

/// Makes a metric known under its name. The encoder appends `_total` to counters.
fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// The HTTP method of what Kubernetes calls a verb.
fn method(verb: &str) -> &'static str {
    match verb {
        "create" => "POST",
        "update" => "PUT",
        "apply" | "patch" => "PATCH",
        "delete" => "DELETE",
        _ => "GET",
    }
}

fn controller(plugin: &str) -> ByController {
    ByController { controller: plugin.to_owned() }
}

fn queue(plugin: &str) -> ByQueue {
    ByQueue { name: plugin.to_owned(), controller: plugin.to_owned() }
}

fn gauge(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

fn rise(counter: &Counter<f64, AtomicU64>, to: f64) {
    counter.inc_by((to - counter.get()).max(0.0));
}
