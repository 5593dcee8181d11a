//! A list into the store: as the beginning of a watch where the server can do that (KEP-3157), else page by page.
//!
//! **Invariant:** never more than one page, or one object of a stream, is in memory beside the store.
//! **Invariant:** a list that did not end changes nothing about what can be read.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::state::Informer;
use super::trouble::Trouble;
use super::watch::{Event, Watch};
use crate::error::{ApiError, ApiErrorKind};
use crate::resource::Resource;
use crate::uri::escape;

/// Objects in one page of a list, as client-go does.
const PAGE_OBJECTS_MAX: u32 = 500;

/// How long one page may take: the API server's own limit for a request.
const PAGE_DEADLINE: Duration = Duration::from_mins(1);

/// How long a streamed list may take. 100,000 objects of 3 KB arrive in a few seconds.
const STREAM_DEADLINE: Duration = Duration::from_mins(1);

/// How long a list waits for its turn. Then it goes ahead: kinds whose server hangs must not hold up the others.
const TURN_WAIT: Duration = Duration::from_secs(10);

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

impl Informer {
    /// Lists into the store. After it there is a version to resume from, and the watch, if the list came as one.
    pub(super) async fn list(&mut self, resource: &Resource) -> Result<Option<Watch>, Trouble> {
        let _turn = self.turn().await;
        if self.client.discovered.streams_lists()
            && let Some(watch) = self.list_by_stream(resource).await?
        {
            return Ok(Some(watch));
        }
        self.list_by_pages(resource).await?;
        Ok(None)
    }

    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.turns).acquire_owned();
        tokio::time::timeout(TURN_WAIT, turn).await.ok()?.ok()
    }

    /// None: not this time, or never from this server; list by pages.
    async fn list_by_stream(&mut self, resource: &Resource) -> Result<Option<Watch>, Trouble> {
        let deadline = Instant::now() + STREAM_DEADLINE;
        let from = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut watch = match self.open(resource, from).await {
            Ok(watch) => watch,
            Err(error) if error.kind() == ApiErrorKind::Invalid => {
                self.pages_only(&error);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        self.store.begin();
        loop {
            // Too slow, or cut off.
            let Ok(Some(line)) = tokio::time::timeout_at(deadline, watch.line()).await else {
                tracing::debug!(informer = %self.purpose.text, "streamed list has no end");
                return Ok(None);
            };
            match self.event(line)? {
                Event::Put(object) => self.take_in(object),
                Event::Gone(object) => self.take_out(&object),
                Event::Bookmark { version, ends_list: true } => {
                    self.listed(&version.to_string())?;
                    return Ok(Some(watch));
                }
                Event::Refusal(error) if is_inability(error.kind()) => {
                    self.pages_only(&error);
                    return Ok(None);
                }
                Event::Refusal(error) => return Err(Trouble::from(error).and_relist()),
                Event::Bookmark { .. } | Event::Unknown => {}
            }
        }
    }

    fn pages_only(&self, error: &ApiError) {
        tracing::debug!(%error, "the API server does not stream lists; they are taken by pages");
        self.client.discovered.lists_by_pages_only();
    }

    async fn list_by_pages(&mut self, resource: &Resource) -> Result<(), Trouble> {
        let path = self.path(resource);
        let mut next = String::new();
        self.store.begin();
        loop {
            let uri = format!("{path}?limit={PAGE_OBJECTS_MAX}{next}");
            let request = self.request(&uri, "List")?;
            let text = self.client.text(&self.purpose, request, PAGE_DEADLINE).await?;
            let page: Page<'_> = serde_json::from_str(&text)
                .map_err(|error| ApiError::malformed(&self.purpose, &error))?;
            for item in page.items.unwrap_or_default() {
                self.take_in(self.parse(item)?);
            }
            let Some(token) = page.metadata.next.filter(|token| !token.is_empty()) else {
                return self.listed(&page.metadata.resource_version);
            };
            next = format!("&continue={}", escape(&token));
        }
    }

    /// The list is complete, as of this version.
    fn listed(&mut self, version: &str) -> Result<(), Trouble> {
        let number = version.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
            Trouble::failing(format!("{}: the list has no version", self.purpose.text))
        })?;
        for change in self.store.complete(number) {
            (self.on_change)(change);
        }
        self.resume = Some(version.to_owned());
        Ok(())
    }
}

/// Whether a refusal within a stream says that the server cannot stream, and not that something passing ails it.
fn is_inability(kind: ApiErrorKind) -> bool {
    match kind {
        ApiErrorKind::Invalid | ApiErrorKind::Unavailable | ApiErrorKind::Malformed => true,
        ApiErrorKind::NotFound
        | ApiErrorKind::KindMissing
        | ApiErrorKind::Conflict
        | ApiErrorKind::Immutable
        | ApiErrorKind::Forbidden
        | ApiErrorKind::Unauthorized
        | ApiErrorKind::NamespaceTerminating
        | ApiErrorKind::TooManyRequests { .. }
        | ApiErrorKind::TooLarge
        | ApiErrorKind::Expired
        | ApiErrorKind::NotLeader => false,
    }
}
