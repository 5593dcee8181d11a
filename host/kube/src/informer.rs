//! One informer: lists a kind, watches it, and starts over when it must (ADR 0003).
//!
//! A round is: resolve the kind, list it unless there is a version to resume from, watch until the watch ends.
//! A round that got somewhere is followed by the next at once; one that did not, by a wait that grows.
//!
//! **Invariant:** a relist tells of every object that vanished meanwhile (k8s `DeletedFinalStateUnknown`).
//! **Invariant:** a watch that ends at once with nothing in it counts as a failure (k8s `VeryShortWatchError`), and
//! after three in a row the list is taken again: the version may be one that the server silently cannot serve.
//! **Invariant:** changes are told after the store has them and outside its lock.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use host_core::object::StoredObject;
use http::Request;
use kube::core::Status as ServerStatus;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::client::{Client, Purpose, is_secret};
use crate::discovery::Resource;
use crate::error::ApiError;
use crate::informer::trouble::Trouble;
use crate::informers::{OnChange, Scope};
use crate::store::{Status, Store};
use crate::uri::escape;

mod trouble;

#[cfg(test)]
mod tests;

/// Objects in one page of a list, as client-go does.
const PAGE_OBJECTS_MAX: u32 = 500;

/// How long one page may take: the API server's own limit for a request.
const PAGE_DEADLINE: Duration = Duration::from_mins(1);

/// How long the server keeps a watch open: between 240 and 290 s, so that a fleet of watches does not reconnect in
/// one instant, and below the 295 s after which kube's transport gives up.
const WATCH_SECONDS: (u32, u32) = (240, 290);

/// How much later a watch that is still silent is taken for dead.
const WATCH_GRACE: Duration = Duration::from_secs(5);

/// A watch that ends sooner than this with nothing in it has failed.
const WATCH_SHORT: Duration = Duration::from_secs(1);

/// After so many failed watches in a row the list is taken again.
const FRUITLESS_MAX: u32 = 3;

/// The state of one informer.
pub(crate) struct Informer {
    client: Client,
    scope: Scope,
    store: Arc<Store>,
    on_change: OnChange,
    backoff: Backoff,
    purpose: Purpose,
    /// The version to watch from; None: list first.
    resume: Option<String>,
    /// Watches in a row that ended without anything.
    fruitless: u32,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    /// Some servers send null for an empty list.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    event: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: PageMeta,
}

impl Informer {
    pub(crate) fn new(
        client: Client,
        scope: Scope,
        store: Arc<Store>,
        on_change: OnChange,
        seed: u64,
    ) -> Self {
        let kind = store.kind();
        let purpose = match &scope {
            Scope::All => Purpose::new(format!("watch {kind}")),
            Scope::Namespace(name) => Purpose::new(format!("watch {kind} in {name}")),
        };
        let purpose = Purpose { confidential: is_secret(kind), ..purpose };
        let backoff = Backoff::new(seed);
        Self { client, scope, store, on_change, backoff, purpose, resume: None, fruitless: 0 }
    }

    /// Goes on for ever; stopped by being dropped.
    pub(crate) async fn run(&mut self) {
        loop {
            let Err(trouble) = self.round().await else {
                self.backoff.reset();
                continue;
            };
            if trouble.relist {
                self.resume = None;
            }
            let wait = self.backoff.next(trouble.wait_max);
            tracing::debug!(
                informer = %self.purpose.text, status = %trouble.status, ?wait, "informer waits"
            );
            self.store.troubled(trouble.status);
            tokio::time::sleep(wait).await;
        }
    }

    /// Forgets how far it was.
    pub(crate) fn start_over(&mut self, why: &str) {
        self.resume = None;
        self.store.troubled(Status::Failing(why.to_owned()));
    }

    async fn round(&mut self) -> Result<(), Trouble> {
        let kind = Arc::clone(self.store.kind());
        let resource = self.client.resolve(&kind).await?;
        if !resource.offers("list") || !resource.offers("watch") {
            return Err(Trouble::failing(format!("{kind} cannot be listed and watched")));
        }
        let result = self.list_and_watch(&resource).await;
        if let Err(Trouble { status: Status::Missing, .. }) = &result {
            // It may be served again, and differently.
            self.client.forget(&kind).await;
        }
        result
    }

    async fn list_and_watch(&mut self, resource: &Resource) -> Result<(), Trouble> {
        let version = match self.resume.take() {
            Some(version) => version,
            None => self.list(resource).await?,
        };
        let version = self.resume.insert(version).clone();
        self.watch(resource, &version).await
    }

    fn path(&self, resource: &Resource) -> String {
        match &self.scope {
            Scope::All => resource.path(None),
            Scope::Namespace(name) => resource.path(Some(name)),
        }
    }

    fn request(&self, uri: &str) -> Result<Request<Vec<u8>>, Trouble> {
        Request::get(uri)
            .header(http::header::ACCEPT, "application/json")
            .body(Vec::new())
            .map_err(|error| Trouble::failing(format!("{}: {error}", self.purpose.text)))
    }

    /// Lists all pages into the store and returns the version to watch from.
    async fn list(&self, resource: &Resource) -> Result<String, Trouble> {
        let path = self.path(resource);
        let mut named = BTreeSet::new();
        let mut next = String::new();
        loop {
            let uri = format!("{path}?limit={PAGE_OBJECTS_MAX}{next}");
            let text = self.client.text(&self.purpose, self.request(&uri)?, PAGE_DEADLINE).await?;
            let page: Page<'_> = serde_json::from_str(&text)
                .map_err(|error| ApiError::malformed(&self.purpose, &error))?;
            self.store.heard();
            for item in page.items.unwrap_or_default() {
                let object = self.parse(item)?;
                named.insert(object.key.clone());
                self.take_in(object);
            }
            let Some(token) = page.metadata.next.filter(|token| !token.is_empty()) else {
                let version = page.metadata.resource_version;
                let number = version.parse().map_err(|_| {
                    Trouble::failing(format!("{}: the list has no version", self.purpose.text))
                })?;
                for change in self.store.complete(&named, number) {
                    (self.on_change)(change);
                }
                return Ok(version);
            };
            next = format!("&continue={}", escape(&token));
        }
    }

    /// Watches from a version until the watch ends. An error means that it brought nothing.
    async fn watch(&mut self, resource: &Resource, version: &str) -> Result<(), Trouble> {
        let seconds = self.backoff.jitter(WATCH_SECONDS.0, WATCH_SECONDS.1);
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
            self.path(resource),
            escape(version),
        );
        let stream = self.client.stream(&self.purpose, self.request(&uri)?).await?;
        let opened = Instant::now();
        self.store.watching();
        let silence = Duration::from_secs(seconds.into()) + WATCH_GRACE;
        let mut objects = 0_u64;
        let end = self.follow(stream, silence, &mut objects).await;
        let lived = opened.elapsed() >= WATCH_SHORT || objects > 0;
        self.fruitless = if lived { 0 } else { self.fruitless + 1 };
        match end {
            // An error after progress is not worth a wait, only a fresh start if it asks for one.
            Err(trouble) if lived && matches!(trouble.status, Status::Failing(_)) => {
                if trouble.relist {
                    self.resume = None;
                }
                Ok(())
            }
            Err(trouble) => Err(trouble),
            Ok(()) if lived => Ok(()),
            Ok(()) => {
                let message = format!("could not {}: it ends at once", self.purpose.text);
                let relist = self.fruitless.is_multiple_of(FRUITLESS_MAX);
                Err(Trouble { relist, ..Trouble::failing(message) })
            }
        }
    }

    async fn follow(
        &mut self,
        stream: impl AsyncBufRead,
        silence: Duration,
        objects: &mut u64,
    ) -> Result<(), Trouble> {
        let mut stream = pin!(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = tokio::time::timeout(silence, stream.read_until(b'\n', &mut line)).await;
            match read {
                // Cut off in whatever way: what was received is taken in, the rest comes with the next watch.
                Ok(Ok(0) | Err(_)) | Err(_) => return Ok(()),
                Ok(Ok(_)) if line.ends_with(b"\n") => self.event(&line, objects)?,
                Ok(Ok(_)) => return Ok(()),
            }
        }
    }

    fn event(&mut self, line: &[u8], objects: &mut u64) -> Result<(), Trouble> {
        let malformed =
            |error| Trouble::from(ApiError::malformed(&self.purpose, &error)).and_relist();
        let line: Line<'_> = serde_json::from_slice(line).map_err(malformed)?;
        match &*line.event {
            "ADDED" | "MODIFIED" => {
                let object = self.parse(line.object)?;
                let version = object.resource_version;
                self.take_in(object);
                *objects += 1;
                self.reached(version)
            }
            "DELETED" => {
                let object = self.parse(line.object)?;
                if let Some(change) = self.store.remove(&object.key) {
                    (self.on_change)(change);
                }
                *objects += 1;
                self.reached(object.resource_version)
            }
            "BOOKMARK" => {
                let mark: Bookmark = serde_json::from_str(line.object.get()).map_err(malformed)?;
                self.reached(mark.metadata.resource_version.parse().unwrap_or(0))
            }
            "ERROR" => {
                let status: ServerStatus =
                    serde_json::from_str(line.object.get()).map_err(malformed)?;
                Err(Trouble::from(ApiError::from_status(&self.purpose, &status)).and_relist())
            }
            _ => Ok(()),
        }
    }

    fn reached(&mut self, version: u64) -> Result<(), Trouble> {
        if version == 0 {
            let message = format!("{}: an event has no version", self.purpose.text);
            return Err(Trouble::failing(message).and_relist());
        }
        self.store.observed(version);
        self.resume = Some(version.to_string());
        Ok(())
    }

    fn parse(&self, raw: &RawValue) -> Result<StoredObject, Trouble> {
        StoredObject::parse(self.store.kind(), raw.get())
            .map_err(|error| ApiError::malformed(&self.purpose, &error).into())
    }

    fn take_in(&self, object: StoredObject) {
        for change in self.store.upsert(object) {
            (self.on_change)(change);
        }
    }
}
