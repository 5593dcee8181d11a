//! A watch as a stream of events.

use std::borrow::Cow;
use std::pin::Pin;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use host_core::object::StoredObject;
use http::Request;
use kube::core::Status as ServerStatus;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::state::Informer;
use super::trouble::Trouble;
use crate::error::ApiError;
use crate::resource::Resource;
use crate::scope::Form;

/// How long the server keeps a watch open: between 240 and 290 s, so that a fleet of watches does not reconnect in
/// one instant, and below the 295 s after which kube's transport gives up.
const WATCH_SECONDS: (u32, u32) = (240, 290);

/// How much later a watch that is still silent is taken for dead.
const WATCH_GRACE: Duration = Duration::from_secs(5);

/// What a line buffer keeps between two events: most objects fit, and one of 1.5 MiB does not stay for hours.
const LINE_BYTES_KEPT: usize = 16 * 1024;

/// Says that a streamed list is complete (KEP-3157).
const LIST_ENDS: &str = "k8s.io/initial-events-end";

/// An open watch.
pub(super) struct Watch {
    stream: Pin<Box<dyn AsyncBufRead + Send>>,
    silence: Duration,
    line: Vec<u8>,
    /// The line was handed out.
    whole: bool,
}

/// What a watch says.
pub(super) enum Event {
    /// An object is there, or has changed.
    Put(StoredObject),
    /// An object is gone.
    Gone(StoredObject),
    /// Nothing else up to this version.
    Bookmark {
        version: u64,
        /// All that existed when the watch began has been told.
        ends_list: bool,
    },
    /// The watch cannot go on.
    Refusal(ApiError),
    /// Something of a later API server.
    Unknown,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    event: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark<'a> {
    #[serde(borrow)]
    metadata: BookmarkMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
}

impl Watch {
    /// The next line; None: the watch has ended, in whatever way. Nothing is lost if the future is dropped.
    pub(super) async fn line(&mut self) -> Option<&[u8]> {
        if self.whole {
            self.line.clear();
            self.line.shrink_to(LINE_BYTES_KEPT);
            self.whole = false;
        }
        let read = self.stream.read_until(b'\n', &mut self.line);
        let Ok(Ok(_)) = tokio::time::timeout(self.silence, read).await else { return None };
        self.whole = self.line.ends_with(b"\n");
        self.whole.then_some(self.line.as_slice())
    }
}

impl Informer {
    /// Opens a watch. `from` says where it begins.
    pub(super) async fn open(
        &mut self,
        resource: &Resource,
        from: &str,
    ) -> Result<Watch, ApiError> {
        let seconds = self.backoff.jitter(WATCH_SECONDS.0, WATCH_SECONDS.1);
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}{from}",
            self.path(resource),
        );
        let request = self.request(&uri, "")?;
        let stream = self.client.stream(&self.purpose, request).await?;
        Ok(Watch {
            stream: Box::pin(stream),
            silence: Duration::from_secs(seconds.into()) + WATCH_GRACE,
            line: Vec::new(),
            whole: false,
        })
    }

    /// A request for the form that is wanted; `list` is `List` for a list.
    pub(super) fn request(&self, uri: &str, list: &str) -> Result<Request<Vec<u8>>, ApiError> {
        let accept = match self.form {
            Form::Whole => "application/json".to_owned(),
            Form::Existence => format!(
                "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json"
            ),
        };
        Request::get(uri)
            .header(http::header::ACCEPT, accept)
            .body(Vec::new())
            .map_err(|error| ApiError::malformed(&self.purpose, &error))
    }

    /// Reads a line.
    pub(super) fn event(&self, line: &[u8]) -> Result<Event, Trouble> {
        let malformed =
            |error| Trouble::from(ApiError::malformed(&self.purpose, &error)).and_relist();
        let line: Line<'_> = serde_json::from_slice(line).map_err(malformed)?;
        match &*line.event {
            "ADDED" | "MODIFIED" => self.parse(line.object).map(Event::Put),
            "DELETED" => self.parse(line.object).map(Event::Gone),
            "BOOKMARK" => {
                let mark: Bookmark<'_> =
                    serde_json::from_str(line.object.get()).map_err(malformed)?;
                let notes = mark.metadata.annotations.map_or("", RawValue::get);
                Ok(Event::Bookmark {
                    version: mark.metadata.resource_version.parse().unwrap_or(0),
                    ends_list: notes.contains(LIST_ENDS),
                })
            }
            "ERROR" => {
                let status: ServerStatus =
                    serde_json::from_str(line.object.get()).map_err(malformed)?;
                Ok(Event::Refusal(ApiError::from_status(&self.purpose, &status)))
            }
            _ => Ok(Event::Unknown),
        }
    }
}
