//! A request on its way, and what may come back.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::exchange::{Asked, Exchange};

/// Whom a host asks for; whether it may is the API server's to say.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// Why a connection is closed without an answer.
#[derive(Debug)]
pub(crate) struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed without an answer")
    }
}

impl std::error::Error for Closed {}

pub(crate) type Body = UnsyncBoxBody<Bytes, Closed>;

/// A request on its way.
pub(crate) struct Passing {
    pub(crate) asked: Asked,
    at: Instant,
    headers: HeaderMap,
    body: Bytes,
}

impl Passing {
    pub(crate) async fn new(request: Request<Incoming>) -> Result<Self, Closed> {
        let (head, body) = request.into_parts();
        let asked = Asked {
            method: head.method,
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
        };
        let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
        Ok(Self { asked, at: Instant::now(), headers: head.headers, body })
    }

    /// The same request for the API server: only what says how to read it and what is wanted.
    pub(crate) fn upstream(&self) -> Result<Request<kube::client::Body>, Closed> {
        let Asked { method, path, query } = &self.asked;
        let uri = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let mut request = Request::builder().method(method).uri(uri);
        for name in [header::ACCEPT, header::CONTENT_TYPE, IMPERSONATE_USER] {
            if let Some(value) = self.headers.get(&name) {
                request = request.header(name, value);
            }
        }
        request.body(kube::client::Body::from(self.body.to_vec())).map_err(|_| Closed)
    }

    pub(crate) fn ended(
        &self,
        server: Option<u16>,
        host: Option<u16>,
        changed: Option<bool>,
    ) -> Exchange {
        Exchange {
            asked: self.asked.clone(),
            at: self.at,
            body_sha256: format!("{:x}", Sha256::digest(&self.body)),
            server,
            host,
            changed,
        }
    }
}

/// An answer of the API server, for the host: the connection's own headers are not passed on.
pub(crate) fn pass_on(mut answer: Response<Body>) -> Response<Body> {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        answer.headers_mut().remove(name);
    }
    *answer.version_mut() = http::Version::HTTP_11;
    answer
}

/// A body that is there already.
pub(crate) fn whole(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An error as the API server says it.
pub(crate) fn status(code: u16, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("injected: {reason}"), "reason": reason, "code": code,
    })
}

/// The event with which a watch says that its version is too old.
pub(crate) fn expired() -> Vec<u8> {
    format!("{}\n", json!({"type": "ERROR", "object": status(410, "Expired")})).into_bytes()
}
