//! One request: does something happen to it, and what does the API server say?

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::exchange::Asked;
use crate::fault::{Fault, Moment};
use crate::passing::{Body, Closed, Passing, expired, pass_on, status, whole};
use crate::shared::Shared;
use crate::watch;

/// A look at an object before it is written must not hold the write up when etcd is away.
const LOOK_DEADLINE: Duration = Duration::from_secs(2);

/// Answers one request of the host.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Closed> {
    let passing = Passing::new(request).await?;
    if let Some(met) = shared.rules.meets(&passing.asked) {
        match met.fault {
            Fault::Refuse(code) => {
                shared.note(passing.ended(None, Some(code), None));
                return refusal(code);
            }
            Fault::EndAtOnce | Fault::ExpireInStream if passing.asked.is_watch() => {
                shared.note(passing.ended(None, Some(200), None));
                let line = if met.fault == Fault::EndAtOnce { Vec::new() } else { expired() };
                return Response::builder().body(whole(line)).map_err(|_| Closed);
            }
            Fault::Hang => {
                met.over.notified().await;
                shared.note(passing.ended(None, None, None));
                return Err(Closed);
            }
            Fault::Disconnect => {
                shared.note(passing.ended(None, None, None));
                return Err(Closed);
            }
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            Fault::EndAtOnce | Fault::ExpireInStream | Fault::Lag(_) => {}
        }
    }
    if passing.asked.is_watch() {
        return watch::open(shared, passing).await;
    }
    if passing.asked.is_write() {
        // Not to be cancelled with the connection: what was sent arrives, even if the sender is dead by then.
        return tokio::spawn(write(shared, passing)).await.map_err(|_| Closed)?;
    }
    read(&shared, &passing).await
}

async fn read(shared: &Shared, passing: &Passing) -> Result<Response<Body>, Closed> {
    let Ok(answer) = shared.upstream.send(passing.upstream()?).await else {
        shared.note(passing.ended(None, None, None));
        return Err(Closed);
    };
    let code = Some(answer.status().as_u16());
    shared.note(passing.ended(code, code, None));
    Ok(pass_on(answer.map(|body| body.map_err(|_| Closed).boxed_unsync())))
}

async fn write(shared: Arc<Shared>, passing: Passing) -> Result<Response<Body>, Closed> {
    let unheard = match shared.rules.springs(&passing.asked) {
        Some((Moment::BeforeServer, spring)) => {
            spring();
            shared.note(passing.ended(None, None, None));
            return Err(Closed);
        }
        Some((Moment::BeforeHost, spring)) => Some(spring),
        None => None,
    };
    let before = look(&shared, &passing.asked).await;
    let Ok((head, body)) = exchange(&shared, passing.upstream()?).await else {
        shared.note(passing.ended(None, None, None));
        return Err(Closed);
    };
    let code = Some(head.status.as_u16());
    let after = version(&body);
    let changed = match before {
        Look::Unknown => None,
        Look::Absent => Some(true),
        // A deletion's answer may be a Status, which has no version.
        Look::Version(before) => Some(after.is_none_or(|after| after != before)),
    };
    let changed = changed.filter(|_| head.status.is_success());
    if let Some(spring) = unheard {
        spring();
        shared.note(passing.ended(code, None, changed));
        return Err(Closed);
    }
    shared.note(passing.ended(code, code, changed));
    Ok(pass_on(Response::from_parts(head, whole(body))))
}

/// What an object was like before a write.
enum Look {
    Absent,
    Version(String),
    /// It may not be read, or it is not known which one it is.
    Unknown,
}

async fn look(shared: &Shared, asked: &Asked) -> Look {
    if asked.name().is_empty() {
        return Look::Unknown;
    }
    let path = asked.path.strip_suffix("/status").unwrap_or(&asked.path);
    let request = Request::builder().method(Method::GET).uri(path);
    let Ok(request) = request.body(kube::client::Body::empty()) else { return Look::Unknown };
    match tokio::time::timeout(LOOK_DEADLINE, exchange(shared, request)).await {
        Ok(Ok((head, _))) if head.status == StatusCode::NOT_FOUND => Look::Absent,
        Ok(Ok((_, body))) => version(&body).map_or(Look::Unknown, Look::Version),
        Ok(Err(_)) | Err(_) => Look::Unknown,
    }
}

async fn exchange(
    shared: &Shared,
    request: Request<kube::client::Body>,
) -> Result<(http::response::Parts, Bytes), kube::Error> {
    let (head, body) = shared.upstream.send(request).await?.into_parts();
    Ok((head, body.collect().await?.to_bytes()))
}

/// The version, and the finalizers: the removal of the last one deletes the object and gives its last version back.
fn version(body: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(body).ok()?;
    let metadata = &object["metadata"];
    let version = metadata["resourceVersion"].as_str()?;
    Some(format!("{version} {}", metadata["finalizers"]))
}

/// What the API server would say.
fn refusal(code: u16) -> Result<Response<Body>, Closed> {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let mut answer =
        Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    if matches!(code, 429 | 503) {
        answer = answer.header(header::RETRY_AFTER, "1");
    }
    answer.body(whole(status(code, reason).to_string())).map_err(|_| Closed)
}
