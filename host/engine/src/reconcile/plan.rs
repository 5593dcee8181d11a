//! Stage *plan*: pure, and with the guard the only way to something that can be applied.

use host_core::decision::DesiredObject;
use host_core::guard::{GuardContext, GuardedPlan, guard};
use host_core::plan::{Memory, PlanContext, plan};
use host_core::queue::Moment;
use host_core::text;

use super::observe::Observation;
use crate::logic::Logic;

/// Plans what a plugin wants, and guards it.
pub(crate) fn planned(
    now: Moment,
    plugin: &Logic,
    observation: &Observation,
    desired: Vec<DesiredObject>,
    memory: &mut Memory,
) -> GuardedPlan {
    let parent = &observation.parent;
    let context = PlanContext {
        plugin: plugin.name(),
        parent,
        children: &observation.children,
        marked: &observation.marked,
        now,
    };
    let plan = plan(&context, desired, memory, |id| plugin.lookup(id));
    let consent = observation.annotation(text::ANNOTATION_ALLOW_DELETIONS);
    let context = GuardContext {
        grants: &plugin.grants,
        parent_namespace: &parent.object.key.namespace,
        parent_deleting: parent.object.deleting,
        parent_generation: parent.object.generation,
        allow_deletions: consent.as_deref(),
        children: observation.children.len(),
    };
    guard(&context, plan)
}
