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
    Answer, ObjectQuery, Observed, Outcome, ProbeQuery, Query, Reply, Snapshot, Verdict,
};
use host_wasm::LogLine;

use super::observe::{Observation, observed};
use crate::clock::Clock;
use crate::dispatch::Record;
use crate::error::{Error, chain};
use crate::logic::Logic;
use crate::meter::Meter;
use crate::outlook::Outlook;
use crate::plugin_log::plugin_log;
use crate::providers;
use crate::recordings::Recording;

/// Probes of one run that are in flight at once.
const PROBES_AT_ONCE: usize = 32;

/// What for a plugin is asked.
#[derive(Clone, Copy)]
pub(crate) enum Mode<'a> {
    /// To act on the answer: what it reads is remembered, what it says is logged, what it takes is counted.
    Act(&'a Acting<'a>),
    /// To know what it would answer: providers are not asked what they were asked in these answers already.
    Shadow(&'a [Answer]),
}

/// For whom a plugin is asked, and who wants to know what that takes.
pub(crate) struct Acting<'a> {
    pub(crate) key: &'a ParentKey,
    pub(crate) meter: &'a dyn Meter,
}

/// Everything a plugin may look at before it has asked anything.
pub(crate) fn snapshot(
    clock: &Clock,
    plugin: &Logic,
    observation: &Observation,
    previous: Option<Arc<Outcome>>,
) -> Snapshot {
    Snapshot {
        now: clock.now(),
        parent: observation.parent.clone(),
        children: observation.children.clone(),
        answers: Vec::new(),
        previous,
        config: plugin.settings.config.clone().into_iter().collect(),
    }
}

/// Asks the plugin what should be.
pub(crate) async fn decide(
    outlook: &Outlook,
    acting: &Acting<'_>,
    plugin: &Arc<Logic>,
    observation: &Observation,
    record: &Record,
) -> Result<Decision, Error> {
    let started = tokio::time::Instant::now();
    let previous = record.previous.clone();
    let mut seen = Arc::new(snapshot(&outlook.clock, plugin, observation, previous));
    let raw = deliberate(outlook, plugin, observation, &mut seen, Mode::Act(acting)).await;
    let end = raw.as_ref().map_err(|error| chain(error)).cloned();
    let recording = Recording::new(plugin.label(), seen, end, started.elapsed());
    outlook.recordings.push(acting.key, recording);
    let decided = raw.and_then(|raw| validated(plugin, observation, raw));
    // What ends a call has been counted there; an answer that cannot be used is a fault as well.
    if let Err(error @ (Error::Invalid { .. } | Error::Undecided { .. })) = &decided {
        acting.meter.faulted(plugin.name(), &error.reason());
    }
    decided
}

/// Checks form and grants.
pub(crate) fn validated(
    plugin: &Logic,
    observation: &Observation,
    raw: RawDecision,
) -> Result<Decision, Error> {
    let parent = &observation.parent.object.key;
    raw.validate(parent, &plugin.grants).map_err(|source| invalid(plugin, source))
}

/// Calls the plugin and answers its questions until it decides. The snapshot collects the answers.
pub(crate) async fn deliberate(
    outlook: &Outlook,
    plugin: &Arc<Logic>,
    observation: &Observation,
    snapshot: &mut Arc<Snapshot>,
    mode: Mode<'_>,
) -> Result<RawDecision, Error> {
    let mut interests = BTreeSet::new();
    for _ in 0..limits::ROUNDS_MAX {
        match call(outlook, plugin, snapshot, mode).await? {
            Verdict::Ask(queries) => {
                answer(plugin, observation, snapshot, queries, mode, &mut interests).await?;
                // Remembered before the decision: a change in the middle of a run must not be missed.
                if let Mode::Act(acting) = mode {
                    outlook.dispatch.remember_reads(acting.key, interests.clone());
                }
            }
            Verdict::Decide(raw) => {
                if let Mode::Act(acting) = mode {
                    outlook.dispatch.remember_reads(acting.key, interests);
                }
                return Ok(raw);
            }
        }
    }
    Err(Error::Undecided { plugin: plugin.plugin.id().clone(), rounds: limits::ROUNDS_MAX })
}

fn invalid(plugin: &Logic, source: InvalidDecision) -> Error {
    Error::Invalid { plugin: plugin.plugin.id().clone(), source }
}

/// One call, off the async threads.
async fn call(
    outlook: &Outlook,
    plugin: &Arc<Logic>,
    snapshot: &Arc<Snapshot>,
    mode: Mode<'_>,
) -> Result<Verdict, Error> {
    let meter = match mode {
        Mode::Act(acting) => Some(acting.meter),
        Mode::Shadow(_) => None,
    };
    let acts = meter.is_some();
    let (span, seen) = (tracing::Span::current(), Arc::clone(snapshot));
    let end = outlook.calls.make(plugin, move |callee| {
        let started = tokio::time::Instant::now();
        let mut log = |line: LogLine| {
            // What a version that does not act has to say is nobody's news.
            if acts {
                span.in_scope(|| plugin_log(&line));
            }
        };
        let end = callee.reconcile(&seen, &mut log);
        drop(seen);
        (end, started.elapsed())
    });
    let (end, took) = end.await?;
    if let Some(meter) = meter {
        meter.called(plugin.name(), took);
    }
    match end {
        Ok(Ok(verdict)) => Ok(verdict),
        Ok(Err(failure)) => Err(Error::Declined { failure }),
        Err(fault) => {
            if let Some(meter) = meter {
                meter.faulted(plugin.name(), fault.reason());
            }
            Err(Error::Fault(fault))
        }
    }
}

/// Answers every question that has not been answered in this run yet.
async fn answer(
    plugin: &Logic,
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
    plugin: &Logic,
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
    providers::probe(plugin, namespace, probe).await.map(Reply::Probe)
}

/// Resolves an object query: grants, the parent's namespace, the selector.
fn interest(plugin: &Logic, namespace: &str, query: &ObjectQuery) -> Result<Interest, Error> {
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

fn select(plugin: &Logic, interest: &Interest) -> Result<Vec<Observed>, Error> {
    let store = plugin.store(&interest.kind, interest.namespace.as_deref().unwrap_or_default())?;
    let (namespace, name) = (interest.namespace.as_deref(), interest.name.as_deref());
    Ok(observed(&interest.kind, store.select(namespace, name, Some(&interest.selector))).collect())
}
