//! What goes on while revisions are swapped: changes of parents, and looks whether something is active.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::sight::Sight;
use crate::api::Api;
use crate::figures::Delays;
use crate::inside;

/// Changes come at this interval: 20 a second.
const CHANGE_EVERY: Duration = Duration::from_millis(50);

/// How often the host is asked what is active.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Replicas of a parent before the stream begins, and after each of its changes: one, two, one, two; half of all
/// parents have two at any time, so the number of pods stays what it is.
pub(super) fn replicas(parent: usize, change: usize) -> u32 {
    if (parent + change).is_multiple_of(2) { 1 } else { 2 }
}

/// One change.
struct Change {
    name: String,
    replicas: u32,
    sent: Instant,
    acknowledged: Instant,
}

/// All changes.
pub(super) struct Streamed {
    /// What was wanted last of each parent.
    pub(super) wanted: BTreeMap<String, u32>,
    /// How long the stream took.
    pub(super) took: Duration,
    changes: Vec<Change>,
}

impl Streamed {
    /// How many there were.
    pub(super) fn count(&self) -> usize {
        self.changes.len()
    }

    /// From the acknowledgement of a change to its child's; one that never arrived has none.
    pub(super) fn delays(&self, sight: &Sight) -> Option<Delays> {
        delays(sight, self.changes.iter())
    }

    /// The same of the changes that were sent between two moments.
    pub(super) fn delays_between(
        &self,
        sight: &Sight,
        from: Instant,
        until: Instant,
    ) -> Option<Delays> {
        let within = |change: &&Change| (from..until).contains(&change.sent);
        delays(sight, self.changes.iter().filter(within))
    }
}

fn delays<'a>(sight: &Sight, changes: impl Iterator<Item = &'a Change>) -> Option<Delays> {
    let delay = |change: &Change| {
        let arrived = sight.arrived(&change.name, change.replicas, change.sent)?;
        Some(arrived.saturating_duration_since(change.acknowledged).as_secs_f64())
    };
    Delays::of(changes.filter_map(delay).collect())
}

/// How long nothing was active.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Presence {
    /// How often the host was asked.
    pub(super) looks: u64,
    /// The longest time between two looks that found something, if one in between did not.
    pub(super) longest_gap: Duration,
}

/// Both at once, until it is stopped.
pub(super) struct Stream {
    stop: Arc<AtomicBool>,
    changing: JoinHandle<anyhow::Result<Streamed>>,
    looking: JoinHandle<Presence>,
}

impl Stream {
    /// Begins, with parents that have their first replicas.
    pub(super) fn start(api: &Api, namespace: &str, names: &[String], host: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let changing = change(api.clone(), namespace.to_owned(), names.to_vec(), Arc::clone(&stop));
        let looking = look(host, Arc::clone(&stop));
        Self { changing: tokio::spawn(changing), looking: tokio::spawn(looking), stop }
    }

    /// Ends, with what there was.
    pub(super) async fn stop(self) -> anyhow::Result<(Streamed, Presence)> {
        self.stop.store(true, Ordering::Relaxed);
        let streamed = self.changing.await.context("the stream of changes has panicked")??;
        Ok((streamed, self.looking.await.context("the looks have panicked")?))
    }
}

async fn change(
    api: Api,
    namespace: String,
    names: Vec<String>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Streamed> {
    let started = Instant::now();
    let first = names.iter().enumerate().map(|(parent, name)| (name.clone(), replicas(parent, 0)));
    let mut wanted: BTreeMap<String, u32> = first.collect();
    let mut changes = Vec::new();
    let mut ticks = tokio::time::interval(CHANGE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for cycle in 1.. {
        for (parent, name) in names.iter().enumerate() {
            ticks.tick().await;
            if stop.load(Ordering::Relaxed) {
                return Ok(Streamed { wanted, took: started.elapsed(), changes });
            }
            let (replicas, sent) = (replicas(parent, cycle), Instant::now());
            let acknowledged = api.set_replicas(&namespace, name, replicas).await?;
            wanted.insert(name.clone(), replicas);
            changes.push(Change { name: name.clone(), replicas, sent, acknowledged });
        }
    }
    anyhow::bail!("there are no parents to change")
}

async fn look(host: SocketAddr, stop: Arc<AtomicBool>) -> Presence {
    let mut presence = Presence::default();
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut found, mut missed) = (Instant::now(), false);
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let metrics = inside::get(host, "/metrics").await.unwrap_or_default();
        presence.looks += 1;
        let now = Instant::now();
        if is_active(&metrics) {
            if missed {
                presence.longest_gap = presence.longest_gap.max(now - found);
            }
            (found, missed) = (now, false);
        } else {
            missed = true;
        }
    }
    if missed {
        presence.longest_gap = presence.longest_gap.max(found.elapsed());
    }
    presence
}

fn is_active(metrics: &str) -> bool {
    metrics.lines().any(|line| {
        line.starts_with("operator_host_plugin_info{")
            && line.contains("plugin=\"tutorial\"")
            && line.ends_with(" 1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_changes_something() {
        for parent in 0..4 {
            for change in 0..4 {
                assert_ne!(replicas(parent, change), replicas(parent, change + 1));
            }
        }
    }

    #[test]
    fn the_active_version_is_read_from_the_metrics() {
        assert!(is_active("a 1\noperator_host_plugin_info{plugin=\"tutorial\",version=\"1\"} 1\n"));
        assert!(!is_active("operator_host_plugin_info{plugin=\"hello\",version=\"1\"} 1\n"));
    }
}
