//! Probation: a revision that has just begun to act, for all parents or for some, is taken back by its first fault.
//!
//! Since logic is pure, it can be told whose fault it is: the revision before is asked about the same parent, without
//! acting. If it cannot manage either, the parent is to blame.

use std::sync::Arc;

use futures::future::BoxFuture;
use host_core::queue::{Done, ParentKey};

use super::cutover::Cutover;
use super::inbox::Inbox;
use super::shadow;
use crate::error::{Class, chain};
use crate::loaded_plugin::LoadedPlugin;
use crate::outlook::Outlook;
use crate::reconcile::revisions::{Ended, Revisions};

/// What flow 1 asks and tells: which revision runs a parent, and how that went.
pub(crate) struct Trial {
    pub(crate) cutover: Cutover,
    pub(crate) outlook: Outlook,
    pub(crate) inbox: Arc<Inbox>,
}

impl Revisions for Trial {
    fn of(&self, parent: &ParentKey) -> Option<Arc<LoadedPlugin>> {
        self.cutover.plugins.get(parent.lane, &parent.key)
    }

    fn ended<'a>(
        &'a self,
        plugin: &'a Arc<LoadedPlugin>,
        parent: &'a ParentKey,
        ended: &'a Ended,
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.after_run(plugin, parent, ended))
    }
}

impl Trial {
    /// Looks at how a run of a revision has ended, and takes the revision back if that is its fault.
    async fn after_run(&self, plugin: &Arc<LoadedPlugin>, key: &ParentKey, ended: &Ended) {
        let class = match ended {
            Ok(Some(Done::Failed)) => Some(Class::Transient),
            Ok(_) => None,
            Err(error) => Some(error.class()),
        };
        if class == Some(Class::Waiting) {
            return;
        }
        let runs = plugin.record.count(class.is_some());
        let plugins = &self.cutover.plugins;
        let (Some(class), Some(before)) = (class, plugins.substitute(plugin)) else { return };
        let why = match ended {
            Err(error) if class == Class::Plugin => {
                let manages = shadow::propose(&self.outlook, &before.logic, &key.key, key).await;
                let why = || format!("{}: {} for {}", error.reason(), chain(error), key.key);
                manages.is_ok().then(why)
            }
            _ if runs.is_worse_than(&before.record.runs()) => {
                Some(format!("FailureRate: {} of its {} runs have failed", runs.failed, runs.total))
            }
            _ => None,
        };
        // It becomes a line of a table.
        let why = why.map(|why| why.replace('\n', " "));
        if let Some(why) = why
            && plugins.condemn(plugin, &why)
        {
            tracing::error!(
                revision = %plugin.revision,
                active = %before.revision,
                "{} was taken back: {why}",
                plugin.label()
            );
            self.cutover.take_over(&before);
            self.inbox.note(before.name());
        }
    }
}
