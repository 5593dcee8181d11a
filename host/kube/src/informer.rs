//! One informer: lists a kind, watches it, and starts over when it must (ADR 0003).
//!
//! A round is: resolve the kind, list it unless there is a version to resume from, watch until the watch ends.
//! A round that got somewhere is followed by the next at once; one that did not, by a wait that grows.
//!
//! **Invariant:** a relist tells of every object that vanished meanwhile (k8s `DeletedFinalStateUnknown`).
//! **Invariant:** a watch that ends at once with nothing in it counts as a failure (k8s `VeryShortWatchError`), and
//! after three in a row the list is taken again: the version may be one that the server silently cannot serve.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::informer::trouble::Trouble;
use crate::informer::watch::{Event, Watch};
use crate::resource::{DiscoveryError, Resource};
use crate::store::Status;
use crate::uri::escape;

mod list;
mod state;
mod trouble;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use state::Informer;

/// A watch that ends sooner than this with nothing in it has failed.
const WATCH_SHORT: Duration = Duration::from_secs(1);

/// After so many failed watches in a row the list is taken again.
const FRUITLESS_MAX: u32 = 3;

impl Informer {
    /// Goes on for ever; stopped by being dropped.
    pub(crate) async fn run(&mut self) {
        let nudge = self.nudge();
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
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = nudge.notified() => self.backoff.reset(),
            }
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
        let streamed = if self.resume.is_none() { self.list(resource).await? } else { None };
        let watch = if let Some(watch) = streamed {
            watch
        } else {
            let version = escape(self.resume.as_deref().unwrap_or_default());
            self.open(resource, &format!("&resourceVersion={version}")).await?
        };
        self.watch(resource, watch).await
    }

    /// Follows a watch until it ends. An error means that it brought nothing.
    async fn watch(&mut self, resource: &Resource, mut watch: Watch) -> Result<(), Trouble> {
        self.store.watching();
        let since = Instant::now();
        let mut objects = 0_u64;
        let end = self.follow(resource, &mut watch, &mut objects).await;
        let lived = since.elapsed() >= WATCH_SHORT || objects > 0;
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
        resource: &Resource,
        watch: &mut Watch,
        objects: &mut u64,
    ) -> Result<(), Trouble> {
        let nudge = self.nudge();
        loop {
            let line = tokio::select! {
                biased;
                () = nudge.notified() => {
                    self.reconsider(resource).await?;
                    continue;
                }
                line = watch.line() => line,
            };
            // Cut off in whatever way: what was received is taken in, the rest comes with the next watch.
            let Some(line) = line else { return Ok(()) };
            match self.event(line)? {
                Event::Put(object) => {
                    let version = object.resource_version;
                    self.take_in(object);
                    *objects += 1;
                    self.reached(version)?;
                }
                Event::Gone(object) => {
                    self.take_out(&object);
                    *objects += 1;
                    self.reached(object.resource_version)?;
                }
                Event::Bookmark { version, .. } => self.reached(version)?,
                Event::Refusal(error) => return Err(Trouble::from(error).and_relist()),
                Event::Unknown => {}
            }
        }
    }

    /// Whether the kind is still served where it is watched. What cannot be told changes nothing.
    async fn reconsider(&self, resource: &Resource) -> Result<(), Trouble> {
        match self.client.resolve(self.store.kind()).await {
            Ok(now) if self.path(&now) != self.path(resource) => {
                let kind = self.store.kind();
                Err(Trouble::failing(format!("{kind} is served differently now")).and_relist())
            }
            Ok(_) | Err(DiscoveryError::Unavailable(..)) => Ok(()),
            Err(DiscoveryError::NotFound(_)) => Err(Trouble::missing()),
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
}
