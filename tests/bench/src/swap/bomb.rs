//! A plugin that cannot be compiled, beside one at work.
//!
//! Its component keeps every bound of the host's cheap checks, and would take Cranelift minutes: the compiling child
//! meets one of its limits, and the plugin is refused.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::follow::{PluginSight, held};
use super::sight::Sight;
use super::stage::{PLUGINS, Stage};
use super::stream::Streamed;
use crate::figures::Delays;
use crate::operator::Operator;
use crate::say;

/// The one that the host's own tests compile.
#[path = "../../../../host/wasm/tests/host_wasm/bomb.rs"]
mod payload;

/// The plugin.
pub(super) const PLUGIN: &str = "bomb";

/// Changes of this long before are what those meanwhile are compared with. A child's wall clock ends after 15 s.
const WINDOW: Duration = Duration::from_secs(20);

/// A child gets 15 s, and there may be two, one after the other: the second is for the `Plugin` that has appeared.
const PATIENCE: Duration = Duration::from_mins(2);

/// How often the compiling child is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The reason of a plugin that could not be compiled.
const REASON: &str = "PluginCompile";

/// What has become of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bombed {
    created: Instant,
    refused: Option<Instant>,
    child_bytes: Option<u64>,
}

/// The figures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bomb {
    /// From the acknowledgement of its ConfigMap until its `Plugin` said that it is refused, seconds; None: it was not.
    pub(super) refused_s: Option<f64>,
    /// The largest resident set of the compiling child, bytes; None: none was seen.
    pub(super) child_bytes: Option<u64>,
    /// Changes of the other plugin's parents before.
    pub(super) before: Option<Delays>,
    /// The same meanwhile.
    pub(super) meanwhile: Option<Delays>,
}

impl Bomb {
    /// What it has done to the others' changes.
    pub(super) fn ratio(&self) -> Option<f64> {
        Some(self.meanwhile?.p99_ms / self.before?.p99_ms)
    }

    /// The largest resident set of the compiling child, MiB.
    #[expect(clippy::cast_precision_loss, reason = "the memory of a process fits 52 bits")]
    pub(super) fn child_mib(&self) -> Option<f64> {
        self.child_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))
    }
}

impl Bombed {
    /// With the changes that went on. Both windows are of one length.
    pub(super) fn figures(&self, streamed: &Streamed, sight: &Sight) -> Bomb {
        let Self { created, refused, child_bytes } = *self;
        let took = refused.map(|refused| refused.saturating_duration_since(created));
        let window = took.map_or(WINDOW, |took| took.min(WINDOW));
        let between = |from, until| streamed.delays_between(sight, from, until);
        Bomb {
            refused_s: took.map(|took| took.as_secs_f64()),
            child_bytes,
            before: created.checked_sub(window).and_then(|from| between(from, created)),
            meanwhile: between(created, created + window),
        }
    }
}

/// Gives the host a further plugin that cannot be compiled, while changes of the other's parents go on and nothing else
/// does. Its ConfigMap is gone at the end; its `Plugin` is left.
pub(super) async fn measure(stage: &Stage<'_>, operator: &Operator) -> anyhow::Result<Bombed> {
    let mut plugin = PluginSight::start(&stage.api, PLUGINS, PLUGIN).await?;
    tokio::time::sleep(WINDOW).await;
    let created = stage.add(PLUGIN, &payload::component()).await?;
    let mut child_bytes = None;
    let told = tokio::select! {
        told = plugin.until("the bomb to be refused", PATIENCE, 1, is_refused) => told,
        never = sample(operator, &mut child_bytes) => match never {},
    };
    let now = Instant::now();
    let refused = match told {
        Ok(plugin) => {
            say::fact(message(&plugin));
            (held(&plugin) == Some(REASON)).then_some(now)
        }
        Err(error) => {
            say::fact(&format!("{error:#}"));
            None
        }
    };
    stage.remove(PLUGIN).await?;
    if refused.is_some() {
        let gone = |plugin: &Value| held(plugin) == Some("SourceMissing");
        plugin.until("the bomb to be gone", PATIENCE, 1, gone).await?;
    }
    Ok(Bombed { created, refused, child_bytes })
}

/// Keeps the largest resident set of the compiling child.
async fn sample(operator: &Operator, peak: &mut Option<u64>) -> Infallible {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        *peak = operator.compiling_peak_bytes().max(*peak);
    }
}

fn is_refused(plugin: &Value) -> bool {
    plugin.pointer("/status/candidate/stage").and_then(Value::as_str) == Some("Refused")
}

fn message(plugin: &Value) -> &str {
    let message = plugin.pointer("/status/candidate/message").and_then(Value::as_str);
    message.unwrap_or("refused without a word")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_bounds_of_the_host_and_fits_a_config_map() {
        assert!(
            payload::body().byte_len() <= 128 * 1024,
            "a body of {} bytes",
            payload::body().byte_len()
        );
        let bytes = payload::component().len();
        assert!(bytes < 1_000_000, "a component of {bytes} bytes");
    }

    #[test]
    fn only_a_refusal_is_one() {
        let plugin = |stage| serde_json::json!({"status": {"candidate": {"stage": stage}}});
        assert!(is_refused(&plugin("Refused")));
        assert!(!is_refused(&plugin("Loading")) && !is_refused(&Value::Null));
    }
}
