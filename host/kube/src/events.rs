//! Events (events.k8s.io/v1) about parents, without ever making a reconcile wait.
//!
//! A reconcile hands an event over and goes on; one background task counts, limits and sends. Repeats are counted in
//! memory and written at most once a minute as the event's series.
//!
//! **Invariant:** recording never blocks and never fails; what is not recorded is counted.
//! **Invariant:** one object costs at most 25 new events at once and one in five minutes after that, as in client-go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use host_core::decision::Event;
use http::{Method, Request};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::{ApiError, ApiErrorKind};
use crate::events::series::{Book, Write};
use crate::purpose::Purpose;

mod about;
mod series;

pub use about::{Regarding, Reporter};

/// Events that wait to be sent: 1,000 parents that each say something at once, at 200 bytes to 1.5 KB each.
const WAITING_MAX: usize = 1_024;

/// How long one event may take. It is not worth more.
const DEADLINE: Duration = Duration::from_secs(10);

/// How many events were not recorded, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnrecordedEvents {
    /// Too many were waiting.
    pub queue_full: u64,
    /// Their object had too many.
    pub rate_limited: u64,
    /// The API server did not take them.
    pub failed: u64,
}

#[derive(Default)]
struct Counters {
    queue_full: AtomicU64,
    rate_limited: AtomicU64,
    failed: AtomicU64,
}

/// Takes events. Cheap to clone; its task ends when the last clone is dropped, after sending what is left.
#[derive(Clone)]
pub struct Recorder {
    waiting: mpsc::Sender<(Reporter, Regarding, Event)>,
    counters: Arc<Counters>,
}

impl Recorder {
    /// Starts the task that sends. `now` is the wall clock's reading: later times are counted on tokio's clock.
    /// Await the handle, with a deadline, after dropping all clones to send the last counts.
    pub fn start(client: Client, now: SystemTime) -> (Self, JoinHandle<()>) {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        let counters = Arc::new(Counters::default());
        let book = Book::new(now, Instant::now());
        let task = tokio::spawn(send_all(client, book, waiting, Arc::clone(&counters)));
        (Self { waiting: sender, counters }, task)
    }

    /// Hands an event over.
    pub fn record(&self, reporter: Reporter, regarding: Regarding, event: Event) {
        if self.waiting.try_send((reporter, regarding, event)).is_err() {
            self.counters.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was not recorded so far.
    pub fn unrecorded(&self) -> UnrecordedEvents {
        let Counters { queue_full, rate_limited, failed } = &*self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UnrecordedEvents {
            queue_full: read(queue_full),
            rate_limited: read(rate_limited),
            failed: read(failed),
        }
    }
}

async fn send_all(
    client: Client,
    mut book: Book,
    mut waiting: mpsc::Receiver<(Reporter, Regarding, Event)>,
    counters: Arc<Counters>,
) {
    loop {
        let due = book.next_due();
        let wait = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // In order, so that no chance decides; a series is due once a minute, so events are not kept waiting.
            biased;
            () = wait => {
                for patch in book.due(Some(Instant::now())) {
                    send(&client, &mut book, patch, &counters).await;
                }
            }
            message = waiting.recv() => {
                let Some((reporter, regarding, event)) = message else { break };
                match book.record(&reporter, &regarding, &event, Instant::now()) {
                    Ok(Some(create)) => send(&client, &mut book, create, &counters).await,
                    Ok(None) => {}
                    Err(series::RateLimited) => {
                        counters.rate_limited.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }
    for patch in book.due(None) {
        send(&client, &mut book, patch, &counters).await;
    }
}

async fn send(client: &Client, book: &mut Book, write: Write, counters: &Counters) {
    let Write { series, namespace, name, create, body } = write;
    let purpose = Purpose::new(format!("record event {namespace}/{name}"));
    let collection = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let (method, uri, content) = if create {
        (Method::POST, collection, "application/json")
    } else {
        (Method::PATCH, format!("{collection}/{name}"), "application/merge-patch+json")
    };
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(http::header::CONTENT_TYPE, content)
        .body(body.into_bytes());
    let sent = match request {
        Ok(request) => client.change(&purpose, request, DEADLINE).await,
        Err(error) => Err(ApiError::new(&purpose, ApiErrorKind::Invalid, &error.to_string())),
    };
    if let Err(error) = sent {
        // Without a record the next occurrence is written as a new event: an expired one comes back that way.
        book.forget(series);
        if create || error.kind() != ApiErrorKind::NotFound {
            counters.failed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "event not recorded");
        }
    }
}

#[cfg(test)]
mod tests;
