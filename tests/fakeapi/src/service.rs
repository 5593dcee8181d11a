//! From an HTTP request to its answer.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};

use crate::call::{Call, Verb};
use crate::delete::delete;
use crate::kind::Kind;
use crate::list::{Page, list};
use crate::object;
use crate::patch::{json_patch, merge_patch};
use crate::refusal::Refusal;
use crate::route::{Route, route};
use crate::shared::{Fault, Shared};
use crate::state::State;
use crate::watch::Watch;
use crate::write::{Target, apply, create, update};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Answers a request.
pub(crate) async fn answer(shared: Arc<Shared>, request: Request<Body>) -> io::Result<Answer> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let call = Call::new(&head, body);
    let fault = shared.arrived(call.line());
    let answer = match fault {
        Some(Fault::Refuse(code, reason)) => {
            Err(Refusal::new(code, reason, format!("refused by the test: {reason}")))
        }
        Some(Fault::Delay(delay)) => {
            tokio::time::sleep(delay).await;
            carry_out(&shared, &call)
        }
        Some(Fault::Lose) | None => carry_out(&shared, &call),
    };
    if fault == Some(Fault::Lose) {
        return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the answer was lost"));
    }
    answer.or_else(|refusal| whole(refusal.code, refusal.body()))
}

fn whole(code: u16, body: String) -> io::Result<Answer> {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).map_err(io::Error::other)?;
    Ok(answer)
}

fn carry_out(shared: &Arc<Shared>, call: &Call) -> Result<Answer, Refusal> {
    call.check()?;
    let route = shared.read(|state| route(state, &call.path))?;
    if let (Verb::Watch, Route::Collection { kind, namespace }) = (call.verb, &route) {
        let watch = Watch::open(shared, kind.clone(), namespace.clone(), call)?;
        let body = StreamBody::new(Box::pin(watch.lines()));
        return Ok(Response::new(body.boxed_unsync()));
    }
    let (code, body) = match (call.verb, &route) {
        (Verb::Get, Route::Version) => {
            (200, json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}))
        }
        (Verb::Get, Route::Kinds { api_version }) => {
            let kinds = shared.read(State::kinds);
            (200, Kind::discovery(&kinds, api_version).ok_or_else(Refusal::no_such_path)?)
        }
        (Verb::Create, Route::AccessReviews) => {
            let mut review = call.json()?;
            review["status"] = json!({"allowed": true});
            (201, review)
        }
        (verb, Route::Collection { kind, namespace }) => {
            shared.change(|state| collection(state, verb, kind, namespace.as_deref(), call))?
        }
        (verb, Route::Object { .. }) => shared.change(|state| object(state, verb, &route, call))?,
        _ => return Err(not_allowed()),
    };
    whole(code, body.to_string()).map_err(|error| Refusal::bad(error.to_string()))
}

fn not_allowed() -> Refusal {
    Refusal::new(405, "MethodNotAllowed", "the server does not allow this method here")
}

fn collection(
    state: &mut State,
    verb: Verb,
    kind: &Kind,
    namespace: Option<&str>,
    call: &Call,
) -> Result<(u16, Value), Refusal> {
    match verb {
        Verb::List | Verb::Get => {
            let limit = call.number("limit")?.filter(|limit| *limit > 0);
            let page = Page {
                limit: limit.and_then(|limit| usize::try_from(limit).ok()),
                token: call.text("continue").map(ToOwned::to_owned),
            };
            Ok((200, list(state, kind, namespace, &page, |object| form(call, object))?))
        }
        Verb::Create => {
            if kind.namespaced != namespace.is_some() {
                return Err(not_allowed());
            }
            let mut body = call.json()?;
            let given = &body["metadata"]["generateName"];
            if body["metadata"]["name"].is_null()
                && let Some(prefix) = given.as_str()
            {
                let name = format!("{prefix}{:05}", state.version());
                body["metadata"]["name"] = name.into();
            }
            let Some(name) = body["metadata"]["name"].as_str() else {
                return Err(Refusal::bad("name or generateName is required"));
            };
            let target = target(kind, namespace.unwrap_or_default(), name, false, call);
            create(state, &target, body).map(|object| (201, (*object).clone()))
        }
        Verb::Watch
        | Verb::Update
        | Verb::Apply
        | Verb::Merge
        | Verb::JsonPatch
        | Verb::Delete
        | Verb::Unknown => Err(not_allowed()),
    }
}

fn target(kind: &Kind, namespace: &str, name: &str, status: bool, call: &Call) -> Target {
    Target {
        kind: kind.clone(),
        id: kind.id(namespace, name),
        status,
        manager: call.text("fieldManager").unwrap_or("unknown").to_owned(),
        dry_run: call.is_dry_run(),
    }
}

fn object(
    state: &mut State,
    verb: Verb,
    route: &Route,
    call: &Call,
) -> Result<(u16, Value), Refusal> {
    let Route::Object { kind, namespace, name, status } = route else {
        return Err(not_allowed());
    };
    let target = target(kind, namespace, name, *status, call);
    let (code, object) = match verb {
        Verb::Get => (200, target.stored(state)?.object.clone()),
        Verb::Update => {
            let body = call.json()?;
            (200, update(state, &target, |_| Ok(body))?)
        }
        Verb::Merge => {
            let patch = call.json()?;
            (200, update(state, &target, |object| Ok(merge_patch(object, &patch)))?)
        }
        Verb::JsonPatch => {
            let patch = call.json()?;
            (200, update(state, &target, |object| json_patch(object, &patch))?)
        }
        Verb::Apply => {
            if call.text("fieldManager").is_none() {
                return Err(Refusal::bad("fieldManager is required for apply patch"));
            }
            let (created, object) = apply(state, &target, call.json()?, call.asks("force"))?;
            (if created { 201 } else { 200 }, object)
        }
        Verb::Delete if !status => (200, delete(state, &target, &call.json()?)?),
        Verb::Delete | Verb::List | Verb::Watch | Verb::Create | Verb::Unknown => {
            return Err(not_allowed());
        }
    };
    Ok((code, form(call, &object)))
}

/// As much of an object as is asked for.
fn form(call: &Call, object: &Value) -> Value {
    if call.metadata_only { object::metadata_only(object) } else { object.clone() }
}
