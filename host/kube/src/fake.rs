//! A scripted API server under [`kube::Client::new`]: requests are recorded as one line each, answers come from a
//! function of the line.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::Client;

/// What was asked for: `GET /path?query`.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

/// What is answered.
pub(crate) enum Answer {
    /// A whole body.
    Whole(u16, String),
    /// Lines as they are sent; the watch ends when the sender is dropped. What ends in NUL is only a piece of a line.
    Lines(mpsc::UnboundedReceiver<String>),
    /// The answer of now, some time later.
    Late(Duration, Box<Answer>),
    /// Nothing, ever.
    Silence,
}

impl Answer {
    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self::Whole(200, value.to_string())
    }

    pub(crate) fn refusal(code: u16, reason: &str) -> Self {
        let body = serde_json::json!({"kind": "Status", "code": code, "reason": reason, "message": reason});
        Self::Whole(code, body.to_string())
    }

    /// A watch and the end that feeds it; it ends with its sender.
    pub(crate) fn watch() -> (mpsc::UnboundedSender<String>, Self) {
        let (sender, lines) = mpsc::unbounded_channel();
        (sender, Self::Lines(lines))
    }

    /// A watch that has ended already.
    pub(crate) fn ended() -> Self {
        Self::watch().1
    }
}

/// The requests so far.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Asked>>>);

impl Log {
    pub(crate) fn all(&self) -> Vec<Asked> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for a request whose line contains a text.
    pub(crate) async fn wait_for(&self, text: &str) {
        self.wait_for_count(text, 1).await;
    }

    /// Waits for so many of them.
    pub(crate) async fn wait_for_count(&self, text: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_mins(10);
        while self.lines(text).len() < count {
            assert!(Instant::now() < deadline, "never asked for {text}: {:#?}", self.lines(""));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The lines that contain a text.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        let all = self.all().into_iter().map(|asked| asked.line);
        all.filter(|line| line.contains(text)).collect()
    }
}

/// Kinds that [`client`] serves without being told: `v1` Secret and Node, `apps/v1` StatefulSet.
fn discovery(line: &str) -> Option<Answer> {
    let verbs = ["get", "list", "watch", "patch", "delete"];
    let list = |entries: &[(&str, &str, bool)]| {
        let resources: Vec<_> = entries
            .iter()
            .map(|(name, kind, namespaced)| {
                serde_json::json!({"name": name, "kind": kind, "namespaced": namespaced, "verbs": verbs})
            })
            .collect();
        Some(Answer::json(&serde_json::json!({"resources": resources})))
    };
    match line {
        "GET /api/v1" => list(&[
            ("secrets", "Secret", true),
            ("nodes", "Node", false),
            ("nodes/status", "Node", false),
        ]),
        "GET /apis/apps/v1" => list(&[
            ("statefulsets", "StatefulSet", true),
            ("statefulsets/status", "StatefulSet", true),
            ("statefulsets/scale", "Scale", true),
        ]),
        _ => None,
    }
}

/// A client of a server that answers as told and is known to list by pages, and the log of what it was asked.
pub(crate) fn client(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (Client, Log) {
    let (client, log) = streaming(answer);
    client.discovered.lists_by_pages_only();
    (client, log)
}

/// The same, of which it is not known yet that it lists by pages.
pub(crate) fn streaming(
    answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
) -> (Client, Log) {
    let log = Log::default();
    let (answer, record) = (Arc::new(answer), log.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, record) = (Arc::clone(&answer), record.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let header = |name| {
                let value = head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
                value.unwrap_or_default()
            };
            let asked = Asked {
                line: format!("{} {}", head.method, head.uri),
                content_type: header(http::header::CONTENT_TYPE),
                accept: header(http::header::ACCEPT),
                body: String::from_utf8(body.to_vec()).unwrap(),
                at: Instant::now(),
            };
            record.0.lock().unwrap().push(asked.clone());
            let answer = discovery(&asked.line).unwrap_or_else(|| answer(&asked));
            Ok::<_, Infallible>(respond(answer).await)
        }
    });
    (Client::from_kube(kube::Client::new(service, "default"), "http://fake"), log)
}

async fn respond(answer: Answer) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    match answer {
        Answer::Whole(code, body) => {
            let code = StatusCode::from_u16(code).unwrap();
            let body = Full::new(Bytes::from(body)).boxed_unsync();
            Response::builder().status(code).body(body).unwrap()
        }
        Answer::Lines(lines) => {
            let frames = futures::stream::unfold(lines, async |mut lines| {
                let line = lines.recv().await?;
                let text =
                    line.strip_suffix('\0').map_or_else(|| format!("{line}\n"), str::to_owned);
                let frame = Frame::data(Bytes::from(text));
                Some((Ok::<_, Infallible>(frame), lines))
            });
            Response::new(BodyExt::boxed_unsync(StreamBody::new(Box::pin(frames))))
        }
        Answer::Late(delay, answer) => {
            tokio::time::sleep(delay).await;
            Box::pin(respond(*answer)).await
        }
        Answer::Silence => std::future::pending().await,
    }
}

/// Answers each request with the first entry whose text its line contains, and drops that entry. Without one, a
/// watch stays silent and anything else fails.
pub(crate) fn script(
    entries: impl IntoIterator<Item = (&'static str, Answer)>,
) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    let entries = Mutex::new(entries.into_iter().collect::<Vec<_>>());
    move |asked| {
        let mut entries = entries.lock().unwrap();
        let found = entries.iter().position(|(text, _)| asked.line.contains(text));
        match found {
            Some(index) => entries.remove(index).1,
            None if asked.line.contains("watch=true") => Answer::Silence,
            None => Answer::refusal(500, "Unscripted"),
        }
    }
}
