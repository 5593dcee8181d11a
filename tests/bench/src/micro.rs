//! Parts of the host alone, without a cluster: the queue and the cache.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use host_core::ident::ObjectKey;
use host_core::queue::{Done, ParentKey, Priority, Queue};
use serde_json::{Value, json};

use crate::build::Built;

/// Keys in the queue at once, and objects in the cache.
const MANY: u32 = 100_000;

/// All of them, as one JSON object.
pub(crate) fn all(built: &Built) -> anyhow::Result<Value> {
    let cache = cache(built)?;
    Ok(json!({
        "queue_operations_per_second": queue_operations_per_second(),
        "cached_bytes_per_object": cache.get("bytes_per_object"),
        "cached_rss_bytes": cache.get("rss_after"),
        "cached_objects": cache.get("objects"),
    }))
}

/// What the example that fills a cache prints.
fn cache(built: &Built) -> anyhow::Result<Value> {
    let output = Command::new(&built.cache_memory)
        .arg(MANY.to_string())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cache_memory")?;
    if !output.status.success() {
        bail!("cache_memory has failed: {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("cache_memory printed no JSON")
}

/// Pushes, pops and ends a run of each of [`MANY`] keys, all waiting at once.
fn queue_operations_per_second() -> u64 {
    let mut queue = Queue::new(usize::MAX, 1);
    queue.open_lane(0, usize::MAX);
    let keys: Vec<ParentKey> = (0..MANY)
        .map(|number| ParentKey {
            lane: 0,
            key: ObjectKey::new(format!("namespace-{}", number % 100), format!("name-{number}")),
        })
        .collect();
    let started = Instant::now();
    let now = Duration::from_secs(1);
    for key in &keys {
        queue.push(key, Priority::User, now);
    }
    let mut ended = 0_u64;
    while let Some(popped) = queue.pop(now) {
        queue.done(&popped.key, Done::Succeeded(Some(Duration::from_mins(1))), now);
        ended += 1;
    }
    let operations = u64::from(MANY) + 2 * ended;
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    operations.saturating_mul(1_000_000) / micros
}
