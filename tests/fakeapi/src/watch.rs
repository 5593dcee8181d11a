//! Watches: what has happened since a version, then what happens, line by line.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::call::Call;
use crate::kind::{Id, Kind};
use crate::object;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::state::State;

/// How often a quiet watch says how far it is, as a real server does.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// How long a watch goes on that does not say.
const TIMEOUT: Duration = Duration::from_mins(30);

fn event(what: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": what, "object": object}))
}

/// An open watch.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    pulse: watch::Receiver<()>,
    kind: Kind,
    namespace: Option<String>,
    metadata_only: bool,
    bookmarks: bool,
    /// All up to this version was told.
    position: u64,
    /// What it begins with.
    opening: String,
    /// It ends when watches were cut more often.
    cuts: u64,
    deadline: Instant,
    next_bookmark: Instant,
    ended: bool,
}

impl Watch {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        kind: Kind,
        namespace: Option<String>,
        call: &Call,
    ) -> Result<Self, Refusal> {
        let pulse = shared.pulse();
        let timeout = call.timeout()?.unwrap_or(TIMEOUT);
        let from = call.number("resourceVersion")?.filter(|version| *version > 0);
        let now = Instant::now();
        let (streams_lists, version, cuts) =
            shared.read(|state| (!state.pages_only, state.version(), state.cuts));
        let streams = call.asks("sendInitialEvents");
        if streams && !streams_lists {
            let why = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList \
                       feature gate is enabled";
            return Err(Refusal::invalid("ListOptions", "", "sendInitialEvents", why));
        }
        if streams && call.text("resourceVersionMatch") != Some("NotOlderThan") {
            let why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                       NotOlderThan";
            return Err(Refusal::invalid("ListOptions", "", "resourceVersionMatch", why));
        }
        let mut watch = Self {
            shared: Arc::clone(shared),
            pulse,
            kind,
            namespace,
            metadata_only: call.metadata_only,
            bookmarks: call.asks("allowWatchBookmarks"),
            position: from.unwrap_or(version),
            opening: String::new(),
            cuts,
            deadline: now + timeout,
            next_bookmark: now + BOOKMARK_EVERY,
            ended: false,
        };
        if streams || from.is_none() {
            watch.opening = shared.read(|state| watch.all(state, streams));
        }
        Ok(watch)
    }

    /// All that exists, with a mark at the end for who wants one.
    fn all(&mut self, state: &State, with_end: bool) -> String {
        self.position = state.version();
        let objects =
            state.list(&self.kind.api_version, &self.kind.name, self.namespace.as_deref());
        let mut text: String = objects.iter().map(|object| self.line("ADDED", object)).collect();
        if with_end {
            text += &self.bookmark(&json!({"k8s.io/initial-events-end": "true"}));
        }
        text
    }

    /// The lines as they come.
    pub(crate) fn lines(self) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
        futures::stream::unfold(self, async |mut watch| {
            let text = watch.next().await?;
            Some((Ok(Frame::data(Bytes::from(text))), watch))
        })
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            self.pulse.mark_unchanged();
            let shared = Arc::clone(&self.shared);
            let text = shared.read(|state| self.news(state));
            if !text.is_empty() {
                return Some(text);
            }
            if self.ended {
                return None;
            }
            let wake = self.deadline.min(self.next_bookmark);
            tokio::select! {
                biased;
                _ = self.pulse.changed() => {}
                () = tokio::time::sleep_until(wake) => {
                    if Instant::now() >= self.deadline {
                        return None;
                    }
                    self.next_bookmark += BOOKMARK_EVERY;
                    if self.bookmarks {
                        return Some(self.bookmark(&Value::Null));
                    }
                }
            }
        }
    }

    /// What there is to tell now.
    fn news(&mut self, state: &State) -> String {
        let mut text = std::mem::take(&mut self.opening);
        let is_served = state.kind(&self.kind.api_version, &self.kind.name).is_some();
        if self.ended || state.cuts > self.cuts {
            self.ended = true;
            return text;
        }
        match state.since(self.position) {
            Err(refusal) => {
                self.ended = true;
                text += &event("ERROR", &refusal.status());
            }
            Ok(events) => {
                for event in events.filter(|event| self.is_about(&event.id)) {
                    text += &self.line(event.what, &event.object);
                }
                self.position = self.position.max(state.version());
                self.ended = !is_served;
            }
        }
        text
    }

    fn is_about(&self, id: &Id) -> bool {
        (&*id.api_version, &*id.kind) == self.kind.names()
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == id.namespace)
    }

    fn line(&self, what: &str, object: &Value) -> String {
        if self.metadata_only {
            let object = object::metadata_only(object);
            return event(what, &object);
        }
        event(what, object)
    }

    fn bookmark(&self, annotations: &Value) -> String {
        let mut object = json!({
            "apiVersion": self.kind.api_version, "kind": self.kind.name,
            "metadata": {"resourceVersion": self.position.to_string()},
        });
        if !annotations.is_null() {
            object["metadata"]["annotations"] = annotations.clone();
        }
        self.line("BOOKMARK", &object)
    }
}
