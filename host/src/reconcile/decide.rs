//! Stage *decide*: calls the plugin, answers its questions, until it decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use host_core::decision::{Decision, InvalidDecision, RawDecision};
use host_core::interest::Interest;
use host_core::limits;
use host_core::queue::ParentKey;
use host_core::selector::Selector;
use host_core::snapshot::{
    Answer, ObjectQuery, Outcome, ProbeQuery, Query, Reply, Snapshot, Verdict,
};
use host_wasm::{LogLine, Plugin};

use super::observe::{Observation, observed};
use crate::dispatch::Record;
use crate::error::{Error, chain};
use crate::plugins::LoadedPlugin;
use crate::recordings::Recording;
use crate::run::Host;

/// Probes of one run that are in flight at once.
const PROBES_AT_ONCE: usize = 32;

/// What for a plugin is asked.
#[derive(Clone, Copy)]
pub(crate) enum Mode<'a> {
    /// To act on the answer: what it reads is remembered, what it says is logged.
    Act(&'a ParentKey),
    /// To know what it would answer: providers are not asked what they were asked in these answers already.
    Shadow(&'a [Answer]),
}

/// Everything a plugin may look at before it has asked anything.
pub(crate) fn snapshot(
    plugin: &LoadedPlugin,
    observation: &Observation,
    previous: Option<Arc<Outcome>>,
) -> Snapshot {
    Snapshot {
        now: crate::telemetry::now(),
        parent: observation.parent.clone(),
        children: observation.children.clone(),
        answers: Vec::new(),
        previous,
        config: plugin.settings.config.clone().into_iter().collect(),
    }
}

/// Asks the plugin what should be.
pub(crate) async fn decide(
    host: &Host,
    plugin: &Arc<LoadedPlugin>,
    key: &ParentKey,
    observation: &Observation,
    record: &Record,
) -> Result<Decision, Error> {
    let started = tokio::time::Instant::now();
    let mut seen = Arc::new(snapshot(plugin, observation, record.previous.clone()));
    let raw = deliberate(host, plugin, observation, &mut seen, Mode::Act(key)).await;
    let end = raw.as_ref().map_err(|error| chain(error)).cloned();
    host.recordings.push(key, Recording::new(plugin.label(), seen, end, started.elapsed()));
    let decided = raw.and_then(|raw| validated(plugin, observation, raw));
    // What ends a call has been counted there; an answer that cannot be used is a fault as well.
    if let Err(error @ (Error::Invalid { .. } | Error::Undecided { .. })) = &decided {
        host.metrics.faulted(plugin.name(), &error.reason());
    }
    decided
}

/// Checks form and grants.
pub(crate) fn validated(
    plugin: &LoadedPlugin,
    observation: &Observation,
    raw: RawDecision,
) -> Result<Decision, Error> {
    let parent = &observation.parent.object.key;
    raw.validate(parent, &plugin.grants).map_err(|source| invalid(plugin, source))
}

/// Calls the plugin and answers its questions until it decides. The snapshot collects the answers.
pub(crate) async fn deliberate(
    host: &Host,
    plugin: &Arc<LoadedPlugin>,
    observation: &Observation,
    snapshot: &mut Arc<Snapshot>,
    mode: Mode<'_>,
) -> Result<RawDecision, Error> {
    let mut interests = BTreeSet::new();
    for _ in 0..limits::ROUNDS_MAX {
        match call(host, plugin, snapshot, mode).await? {
            Verdict::Ask(queries) => {
                answer(plugin, observation, snapshot, queries, mode, &mut interests).await?;
                // Remembered before the decision: a change in the middle of a run must not be missed.
                if let Mode::Act(key) = mode {
                    host.dispatch.remember_reads(key, interests.clone());
                }
            }
            Verdict::Decide(raw) => {
                if let Mode::Act(key) = mode {
                    host.dispatch.remember_reads(key, interests);
                }
                return Ok(raw);
            }
        }
    }
    Err(Error::Undecided { plugin: plugin.plugin.id().clone(), rounds: limits::ROUNDS_MAX })
}

fn invalid(plugin: &LoadedPlugin, source: InvalidDecision) -> Error {
    Error::Invalid { plugin: plugin.plugin.id().clone(), source }
}

/// One call, off the async threads.
async fn call(
    host: &Host,
    plugin: &Arc<LoadedPlugin>,
    snapshot: &Arc<Snapshot>,
    mode: Mode<'_>,
) -> Result<Verdict, Error> {
    let acting = matches!(mode, Mode::Act(_));
    let (span, seen) = (tracing::Span::current(), Arc::clone(snapshot));
    let end = off_thread(host, plugin, move |callee| {
        let started = tokio::time::Instant::now();
        let mut log = |line: LogLine| {
            // What a version that does not act has to say is nobody's news.
            if acting {
                span.in_scope(|| crate::telemetry::plugin_log(&line));
            }
        };
        let end = callee.reconcile(&seen, &mut log);
        drop(seen);
        (end, started.elapsed())
    });
    let (end, took) = end.await?;
    if acting {
        host.metrics.called(plugin.name(), took);
    }
    match end {
        Ok(Ok(verdict)) => Ok(verdict),
        Ok(Err(failure)) => Err(Error::Declined { failure }),
        Err(fault) => {
            if acting {
                host.metrics.faulted(plugin.name(), fault.reason());
            }
            Err(Error::Fault(fault))
        }
    }
}

/// Does something with a plugin that takes a processor, when it is its turn.
pub(crate) async fn off_thread<R: Send + 'static>(
    host: &Host,
    plugin: &Arc<LoadedPlugin>,
    work: impl FnOnce(&Plugin) -> R + Send + 'static,
) -> Result<R, Error> {
    // Its own turn first: a plugin that waits for itself takes no turn of the others.
    let own = Arc::clone(&plugin.calls).acquire_owned().await.map_err(|_| Error::ShuttingDown)?;
    let slot = Arc::clone(&host.calls).acquire_owned().await.map_err(|_| Error::ShuttingDown)?;
    let callee = Arc::clone(plugin);
    let joined = tokio::task::spawn_blocking(move || {
        let _held = (own, slot);
        work(&callee.plugin)
    });
    joined.await.map_err(|_| Error::ShuttingDown)
}

/// Answers every question that has not been answered in this run yet.
async fn answer(
    plugin: &LoadedPlugin,
    observation: &Observation,
    snapshot: &mut Arc<Snapshot>,
    queries: Vec<Query>,
    mode: Mode<'_>,
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
                (probed(plugin, namespace, probe, mode).await?, None)
            }
        };
        Ok::<_, Error>((query, reply))
    }))
    .buffered(PROBES_AT_ONCE)
    .collect::<Vec<_>>()
    .await;
    // The call has let go of it: nothing is copied.
    let snapshot = Arc::make_mut(snapshot);
    for reply in replies {
        let (query, (reply, interest)) = reply?;
        interests.extend(interest);
        snapshot.answers.push(Answer { query, reply });
    }
    Ok(())
}

/// What a provider says, or what it said the last time.
async fn probed(
    plugin: &LoadedPlugin,
    namespace: &str,
    probe: &ProbeQuery,
    mode: Mode<'_>,
) -> Result<Reply, Error> {
    if let Mode::Shadow(known) = mode {
        let same = |answer: &&Answer| matches!(&answer.query, Query::Probe(one) if one == probe);
        if let Some(answer) = known.iter().find(same) {
            return Ok(answer.reply.clone());
        }
    }
    crate::providers::probe(plugin, namespace, probe).await.map(Reply::Probe)
}

/// Resolves an object query: grants, the parent's namespace, the selector.
fn interest(
    plugin: &LoadedPlugin,
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
    plugin: &LoadedPlugin,
    interest: &Interest,
) -> Result<Vec<host_core::snapshot::Observed>, Error> {
    let store = plugin.store(&interest.kind, interest.namespace.as_deref().unwrap_or_default())?;
    let (namespace, name) = (interest.namespace.as_deref(), interest.name.as_deref());
    Ok(observed(&interest.kind, store.select(namespace, name, Some(&interest.selector))).collect())
}
