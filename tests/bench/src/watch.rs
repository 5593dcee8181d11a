//! What has become of parents and children, by a list and a watch of each.
//!
//! **Invariant:** the time of a change is taken where it is read from the connection, not where it is looked at.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::{AsyncBufReadExt as _, StreamExt as _};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::api::{Api, Object, Resource};

/// Changes read and not looked at yet. More than one round makes: 20,000 parents × 5 changes.
const CHANGES_MAX: usize = 100_000;

/// No phase takes longer on a machine that can run a control plane.
const DEADLINE: Duration = Duration::from_mins(5);

/// This long without a change means that nothing goes on.
const QUIET: Duration = Duration::from_secs(2);

/// Something was written.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) resource: Resource,
    pub(crate) object: Object,
    pub(crate) at: Instant,
}

#[derive(Deserialize)]
struct Event {
    object: Object,
}

/// Both kinds in one namespace.
pub(crate) struct Watch {
    changes: mpsc::Receiver<anyhow::Result<Change>>,
    parents: BTreeMap<String, Object>,
    children: BTreeMap<String, Object>,
    // Ends the readers with this value.
    _readers: JoinSet<()>,
}

impl Watch {
    /// Starts from what is there.
    pub(crate) async fn start(api: &Api, namespace: &str) -> anyhow::Result<Self> {
        let (sender, changes) = mpsc::channel(CHANGES_MAX);
        let mut readers = JoinSet::new();
        let mut seen = [BTreeMap::new(), BTreeMap::new()];
        for (resource, seen) in [Resource::Parents, Resource::Children].into_iter().zip(&mut seen) {
            let list = api.list(resource, namespace).await?;
            seen.extend(
                list.items.into_iter().map(|object| (object.metadata.name.clone(), object)),
            );
            let stream = api.watch(resource, namespace, &list.metadata.resource_version).await?;
            let sender = sender.clone();
            readers.spawn(async move {
                let mut lines = Box::pin(stream).lines();
                while let Some(line) = lines.next().await {
                    let at = Instant::now();
                    let change = line.context("the watch broke").and_then(|line| {
                        let event: Event = serde_json::from_str(&line)
                            .with_context(|| format!("the watch of {resource:?} said {line}"))?;
                        Ok(Change { resource, object: event.object, at })
                    });
                    if sender.send(change).await.is_err() {
                        return;
                    }
                }
            });
        }
        let [parents, children] = seen;
        Ok(Self { changes, parents, children, _readers: readers })
    }

    /// The next change.
    async fn next(&mut self) -> anyhow::Result<Change> {
        let change = self.changes.recv().await.context("the watches have ended")??;
        let seen = match change.resource {
            Resource::Parents => &mut self.parents,
            Resource::Children => &mut self.children,
        };
        seen.insert(change.object.metadata.name.clone(), change.object.clone());
        Ok(change)
    }

    /// Waits until `count` parents have a child and a status; gives when the last of it was seen.
    pub(crate) async fn complete(&mut self, count: usize) -> anyhow::Result<Instant> {
        let wait = async {
            loop {
                let change = self.next().await?;
                let done = self.children.len() >= count
                    && self.parents.len() >= count
                    && self.parents.values().all(|parent| parent.status.phase.is_some());
                if done {
                    return Ok(change.at);
                }
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        waited.unwrap_or_else(|_| {
            bail!("only {} of {count} children after {DEADLINE:?}", self.children.len())
        })
    }

    /// Waits until each of these children has that many replicas; gives when each change was seen.
    pub(crate) async fn replicas(
        &mut self,
        names: &[String],
        replicas: u32,
    ) -> anyhow::Result<BTreeMap<String, Instant>> {
        let mut seen = BTreeMap::new();
        let wait = async {
            while seen.len() < names.len() {
                let Change { resource, object, at } = self.next().await?;
                if resource == Resource::Children && object.spec.replicas == replicas {
                    seen.entry(object.metadata.name).or_insert(at);
                }
            }
            Ok::<_, anyhow::Error>(())
        };
        match tokio::time::timeout(DEADLINE, wait).await {
            Ok(result) => result.map(|()| seen),
            Err(_) => bail!("only {} of {} changes after {DEADLINE:?}", seen.len(), names.len()),
        }
    }

    /// Waits until the controllers have seen every child, and nothing changes any more.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        let wait = async {
            loop {
                match tokio::time::timeout(QUIET, self.next()).await {
                    Ok(change) => drop(change?),
                    Err(_) if self.children.values().all(is_observed) => return Ok(()),
                    Err(_) => {}
                }
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        waited.unwrap_or_else(|_| bail!("still changing after {DEADLINE:?}"))
    }
}

fn is_observed(child: &Object) -> bool {
    child.status.observed_generation == Some(child.metadata.generation)
}
