//! Stage *decide*: calls the plugin, answers its questions, until it decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use host_core::decision::{Decision, InvalidDecision};
use host_core::interest::Interest;
use host_core::limits;
use host_core::queue::ParentKey;
use host_core::selector::Selector;
use host_core::snapshot::{Answer, ObjectQuery, Query, Reply, Snapshot, Verdict};
use host_wasm::LogLine;

use super::observe::{Observation, observed};
use crate::dispatch::Record;
use crate::error::Error;
use crate::plugins::ActivePlugin;
use crate::run::Host;

/// Probes of one run that are in flight at once.
const PROBES_AT_ONCE: usize = 32;

/// Asks the plugin what should be.
pub(crate) async fn decide(
    host: &Host,
    plugin: &Arc<ActivePlugin>,
    key: &ParentKey,
    observation: &Observation,
    record: &Record,
) -> Result<Decision, Error> {
    let mut snapshot = Snapshot {
        now: crate::telemetry::now(),
        parent: observation.parent.clone(),
        children: observation.children.clone(),
        answers: Vec::new(),
        previous: record.previous.clone(),
        config: plugin.settings.config.clone().into_iter().collect(),
    };
    let mut interests = BTreeSet::new();
    for _ in 0..limits::ROUNDS_MAX {
        let (back, verdict) = call(host, plugin, snapshot).await?;
        snapshot = back;
        match verdict {
            Verdict::Ask(queries) => {
                answer(host, plugin, observation, &mut snapshot, queries, &mut interests).await?;
                // Remembered before the decision: a change in the middle of a run must not be missed.
                host.dispatch.remember_reads(key, interests.clone());
            }
            Verdict::Decide(raw) => {
                host.dispatch.remember_reads(key, interests);
                let parent = &observation.parent.object.key;
                return raw
                    .validate(parent, &plugin.grants)
                    .map_err(|source| invalid(plugin, source));
            }
        }
    }
    Err(Error::Undecided { plugin: plugin.plugin.id().clone(), rounds: limits::ROUNDS_MAX })
}

fn invalid(plugin: &ActivePlugin, source: InvalidDecision) -> Error {
    Error::Invalid { plugin: plugin.plugin.id().clone(), source }
}

/// One call, off the async threads. The snapshot goes in and comes back, so nothing is copied.
async fn call(
    host: &Host,
    plugin: &Arc<ActivePlugin>,
    snapshot: Snapshot,
) -> Result<(Snapshot, Verdict), Error> {
    // Its own turn first: a plugin that waits for itself takes no turn of the others.
    let own = Arc::clone(&plugin.calls).acquire_owned().await.map_err(|_| Error::ShuttingDown)?;
    let slot = Arc::clone(&host.calls).acquire_owned().await.map_err(|_| Error::ShuttingDown)?;
    let (span, callee) = (tracing::Span::current(), Arc::clone(plugin));
    let started = tokio::time::Instant::now();
    let joined = tokio::task::spawn_blocking(move || {
        let _held = (own, slot);
        let mut log = |line: LogLine| span.in_scope(|| crate::telemetry::plugin_log(&line));
        let end = callee.plugin.reconcile(&snapshot, &mut log);
        (snapshot, end)
    })
    .await;
    host.metrics.called(plugin.name(), started.elapsed());
    let (snapshot, end) = joined.map_err(|_| Error::ShuttingDown)?;
    match end {
        Ok(Ok(verdict)) => Ok((snapshot, verdict)),
        Ok(Err(failure)) => Err(Error::Declined { failure }),
        Err(fault) => {
            host.metrics.faulted(plugin.name(), fault.reason());
            Err(Error::Fault(fault))
        }
    }
}

/// Answers every question that has not been answered in this run yet.
async fn answer(
    host: &Host,
    plugin: &ActivePlugin,
    observation: &Observation,
    snapshot: &mut Snapshot,
    queries: Vec<Query>,
    interests: &mut BTreeSet<Interest>,
) -> Result<(), Error> {
    let known: BTreeSet<&Query> = snapshot.answers.iter().map(|answer| &answer.query).collect();
    let mut asked = BTreeSet::new();
    let fresh: Vec<Query> = queries
        .into_iter()
        .filter(|query| !known.contains(query) && asked.insert(query.clone()))
        .collect();
    let count = known.len() + fresh.len();
    if count > limits::QUERIES_MAX {
        let max = limits::QUERIES_MAX;
        return Err(invalid(plugin, InvalidDecision::TooMany { what: "queries", count, max }));
    }
    let namespace = &*observation.parent.object.key.namespace;
    let replies = futures::stream::iter(fresh.into_iter().map(|query| async move {
        let reply = match &query {
            Query::Objects(objects) => {
                let interest = interest(plugin, namespace, objects)?;
                let reply = Reply::Objects(select(plugin, &interest)?);
                (reply, Some(interest))
            }
            Query::Probe(probe) => {
                plugin
                    .grants
                    .check_provider(&probe.provider)
                    .map_err(|source| invalid(plugin, source))?;
                let reply = crate::providers::probe(host, plugin, namespace, probe).await?;
                (Reply::Probe(reply), None)
            }
        };
        Ok::<_, Error>((query, reply))
    }))
    .buffered(PROBES_AT_ONCE)
    .collect::<Vec<_>>()
    .await;
    for reply in replies {
        let (query, (reply, interest)) = reply?;
        interests.extend(interest);
        snapshot.answers.push(Answer { query, reply });
    }
    Ok(())
}

/// Resolves an object query: grants, the parent's namespace, the selector.
fn interest(
    plugin: &ActivePlugin,
    namespace: &str,
    query: &ObjectQuery,
) -> Result<Interest, Error> {
    plugin.grants.check_reads(&query.kind).map_err(|source| invalid(plugin, source))?;
    let field = |problem: String| {
        let path = format!("query for {}", query.kind);
        invalid(plugin, InvalidDecision::Field { path, problem })
    };
    if let Some(other) =
        query.namespace.as_deref().filter(|other| !namespace.is_empty() && *other != namespace)
    {
        return Err(field(format!(
            "asks for namespace {other}; a parent in {namespace} can read its own only"
        )));
    }
    let selector = query.label_selector.as_deref().unwrap_or_default();
    Ok(Interest {
        kind: query.kind.clone(),
        namespace: query
            .namespace
            .clone()
            .or_else(|| Some(namespace.to_owned()).filter(|own| !own.is_empty())),
        name: query.name.clone(),
        selector: Selector::parse(selector).map_err(|error| field(error.to_string()))?,
    })
}

fn select(
    plugin: &ActivePlugin,
    interest: &Interest,
) -> Result<Vec<host_core::snapshot::Observed>, Error> {
    let store = plugin.store(&interest.kind, interest.namespace.as_deref().unwrap_or_default())?;
    let (namespace, name) = (interest.namespace.as_deref(), interest.name.as_deref());
    Ok(observed(&interest.kind, store.select(namespace, name, Some(&interest.selector))).collect())
}
