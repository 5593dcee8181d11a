//! Probation: a revision that has just begun to act, for all parents or for some, is taken back by its first fault.
//!
//! Since logic is pure, it can be told whose fault it is: the revision before is asked about the same parent, without
//! acting. If it cannot manage either, the parent is to blame.

use std::sync::Arc;

use host_core::queue::{Done, ParentKey};

use super::shadow;
use crate::error::{Class, Error, chain};
use crate::plugins::LoadedPlugin;
use crate::run::Host;

/// Looks at how a run of a revision has ended, and takes the revision back if that is its fault.
pub(crate) async fn after_run(
    host: &Host,
    plugin: &Arc<LoadedPlugin>,
    key: &ParentKey,
    ended: &Result<Option<Done>, Error>,
) {
    let class = match ended {
        Ok(Some(Done::Failed)) => Some(Class::Transient),
        Ok(_) => None,
        Err(error) => Some(error.class()),
    };
    if class == Some(Class::Waiting) {
        return;
    }
    let runs = plugin.record.count(class.is_some());
    let (Some(class), Some(before)) = (class, host.plugins.substitute(plugin)) else { return };
    let why = match ended {
        Err(error) if class == Class::Plugin => {
            let manages = shadow::propose(host, &before, &key.key, key).await.is_ok();
            manages.then(|| format!("{}: {} for {}", error.reason(), chain(error), key.key))
        }
        _ if runs.is_worse_than(&before.record.runs()) => {
            Some(format!("FailureRate: {} of its {} runs have failed", runs.failed, runs.total))
        }
        _ => None,
    };
    // It becomes a line of a table.
    let why = why.map(|why| why.replace('\n', " "));
    if let Some(why) = why
        && host.plugins.condemn(plugin, &why)
    {
        tracing::error!(
            revision = %plugin.revision,
            active = %before.revision,
            "{} was taken back: {why}",
            plugin.label()
        );
        host.rollout.condemned(host, &before);
    }
}
