//! Version 1 of the contract: what `wit/v1` says, and its conversion from and to the host's own types.
//!
//! **Invariant:** an object's JSON is copied once, from the cache into the guest's memory:
//! everything handed in is borrowed.

use host_core::decision::{Event, EventKind, OnImmutable, Ownership, RawDecision, RawObject};
use host_core::ident::Kind;
use host_core::snapshot as core;

wasmtime::component::bindgen!({
    path: "../../wit/v1",
    world: "plugin",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { default: trappable },
});

use exports::operator_host::plugin::reconciler as wit;

/// Lends `snapshot` to `call` in the contract's shape.
pub(crate) fn lend<R>(snapshot: &core::Snapshot, call: impl FnOnce(wit::Snapshot<'_>) -> R) -> R {
    let children = objects(&snapshot.children);
    // Lists within lists are borrowed too, so each level needs an owner that outlives the next.
    let replies: Vec<_> =
        snapshot.answers.iter().map(|answer| reply_objects(&answer.reply)).collect();
    let answers: Vec<_> = snapshot
        .answers
        .iter()
        .zip(&replies)
        .map(|(answer, objects)| wit::Answer {
            query: query(&answer.query),
            reply: match &answer.reply {
                core::Reply::Objects(_) => wit::Reply::Objects(objects),
                core::Reply::Probe(json) => wit::Reply::Probe(json),
            },
        })
        .collect();
    let previous = snapshot.previous.as_deref();
    let object_outcomes: Vec<_> =
        previous.iter().flat_map(|outcome| &outcome.objects).map(object_outcome).collect();
    let action_outcomes: Vec<_> =
        previous.iter().flat_map(|outcome| &outcome.actions).map(action_outcome).collect();
    let config: Vec<_> =
        snapshot.config.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    call(wit::Snapshot {
        now: &snapshot.now,
        parent: object(&snapshot.parent),
        children: &children,
        answers: &answers,
        previous: previous
            .map(|_| wit::Outcome { objects: &object_outcomes, actions: &action_outcomes }),
        config: &config,
    })
}

fn object(observed: &core::Observed) -> wit::Object<'_> {
    wit::Object {
        api_version: &observed.kind.api_version,
        kind: &observed.kind.kind,
        namespace: &observed.object.key.namespace,
        name: &observed.object.key.name,
        body: &observed.object.json,
    }
}

fn objects(observed: &[core::Observed]) -> Vec<wit::Object<'_>> {
    observed.iter().map(object).collect()
}

fn reply_objects(reply: &core::Reply) -> Vec<wit::Object<'_>> {
    match reply {
        core::Reply::Objects(observed) => objects(observed),
        core::Reply::Probe(_) => Vec::new(),
    }
}

fn kind(kind: &Kind) -> wit::KindRefParam<'_> {
    wit::KindRefParam { api_version: &kind.api_version, kind: &kind.kind }
}

fn query(query: &core::Query) -> wit::QueryParam<'_> {
    match query {
        core::Query::Objects(query) => wit::QueryParam::Objects(wit::ObjectQueryParam {
            kind: kind(&query.kind),
            namespace: query.namespace.as_deref(),
            name: query.name.as_deref(),
            label_selector: query.label_selector.as_deref(),
        }),
        core::Query::Probe(query) => wit::QueryParam::Probe(wit::ProbeQueryParam {
            provider: &query.provider,
            request: &query.request,
        }),
    }
}

fn problem(problem: &core::Problem) -> wit::Problem<'_> {
    wit::Problem { reason: &problem.reason, message: &problem.message }
}

fn object_outcome(outcome: &core::ObjectOutcome) -> wit::ObjectOutcome<'_> {
    wit::ObjectOutcome {
        kind: kind(&outcome.id.kind),
        namespace: &outcome.id.key.namespace,
        name: &outcome.id.key.name,
        result: match &outcome.result {
            core::ObjectResult::Unchanged => wit::ObjectResult::Unchanged,
            core::ObjectResult::Applied => wit::ObjectResult::Applied,
            core::ObjectResult::Deleted => wit::ObjectResult::Deleted,
            core::ObjectResult::Failed(why) => wit::ObjectResult::Failed(problem(why)),
        },
    }
}

fn action_outcome(outcome: &core::ActionOutcome) -> wit::ActionOutcome<'_> {
    wit::ActionOutcome {
        action: wit::ActionParam {
            provider: &outcome.action.provider,
            request: &outcome.action.request,
        },
        result: outcome.result.as_deref().map_err(problem),
    }
}

impl From<wit::KindRefResult> for Kind {
    fn from(kind: wit::KindRefResult) -> Self {
        Self::new(kind.api_version, kind.kind)
    }
}

fn all<T, U: From<T>>(items: Vec<T>) -> Vec<U> {
    items.into_iter().map(U::from).collect()
}

impl From<wit::Descriptor> for core::Descriptor {
    fn from(descriptor: wit::Descriptor) -> Self {
        Self {
            name: descriptor.name,
            version: descriptor.version,
            parent: descriptor.parent.into(),
            owns: all(descriptor.owns),
            reads: all(descriptor.reads),
            patches: all(descriptor.patches),
            providers: descriptor.providers,
            finalizer: descriptor.finalizer,
            hints: descriptor.hints,
        }
    }
}

impl From<wit::QueryResult> for core::Query {
    fn from(query: wit::QueryResult) -> Self {
        match query {
            wit::QueryResult::Objects(query) => Self::Objects(core::ObjectQuery {
                kind: query.kind.into(),
                namespace: query.namespace,
                name: query.name,
                label_selector: query.label_selector,
            }),
            wit::QueryResult::Probe(query) => {
                Self::Probe(core::ProbeQuery { provider: query.provider, request: query.request })
            }
        }
    }
}

impl From<wit::DesiredObject> for RawObject {
    fn from(object: wit::DesiredObject) -> Self {
        Self {
            ownership: match object.ownership {
                wit::Ownership::Owned => Ownership::Owned,
                wit::Ownership::Partial => Ownership::Partial,
            },
            on_immutable: match object.on_immutable {
                wit::OnImmutable::Report => OnImmutable::Report,
                wit::OnImmutable::Recreate => OnImmutable::Recreate,
                wit::OnImmutable::RecreateOrphan => OnImmutable::RecreateOrphan,
            },
            body: object.body,
        }
    }
}

impl From<wit::Event> for Event {
    fn from(event: wit::Event) -> Self {
        Self {
            kind: match event.kind {
                wit::EventKind::Normal => EventKind::Normal,
                wit::EventKind::Warning => EventKind::Warning,
            },
            reason: event.reason,
            action: event.action,
            note: event.note,
        }
    }
}

impl From<wit::ActionResult> for core::Action {
    fn from(action: wit::ActionResult) -> Self {
        Self { provider: action.provider, request: action.request }
    }
}

impl From<wit::Decision> for RawDecision {
    fn from(decision: wit::Decision) -> Self {
        Self {
            objects: all(decision.objects),
            status: decision.status,
            events: all(decision.events),
            actions: all(decision.actions),
            requeue_after_ms: decision.requeue_after_ms,
            finished: decision.finished,
        }
    }
}

impl From<wit::Verdict> for core::Verdict {
    fn from(verdict: wit::Verdict) -> Self {
        match verdict {
            wit::Verdict::Ask(queries) => Self::Ask(all(queries)),
            wit::Verdict::Decide(decision) => Self::Decide(decision.into()),
        }
    }
}

impl From<wit::Failure> for core::Failure {
    fn from(failure: wit::Failure) -> Self {
        Self {
            kind: match failure.kind {
                wit::FailureKind::Transient => core::FailureKind::Transient,
                wit::FailureKind::Terminal => core::FailureKind::Terminal,
            },
            reason: failure.reason,
            message: failure.message,
        }
    }
}
