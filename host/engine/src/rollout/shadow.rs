//! Runs a revision without acting: for one parent, or for the whole fleet beside the revision that acts.
//!
//! **Invariant:** nothing is written. Providers are asked only what nobody has asked them in the parent's last run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use host_core::decision::RawDecision;
use host_core::divergence::{Effect, FleetPlan, Proposal, compare};
use host_core::ident::{ObjectId, ObjectKey};
use host_core::plan::Step;
use host_core::queue::ParentKey;
use host_core::snapshot::{Problem, Snapshot};
use host_wasm::SoundnessCheck;
use tokio::time::Instant;

use crate::error::{Error, chain};
use crate::logic::Logic;
use crate::outlook::Outlook;
use crate::reconcile::decide::{self, Mode};
use crate::reconcile::observe;
use crate::reconcile::plan::planned;

/// How long a candidate's kinds may take to be listed.
const SYNC_DEADLINE: Duration = Duration::from_secs(30);

/// Parents that are run at once, for each processor.
const PARENTS_PER_CORE: usize = 2;

/// Parents on which a candidate is also checked for determinism and convergence: five more calls each.
const CHECKED: usize = 16;

/// What a revision would do for a parent, with what it saw and said.
pub(super) struct Proposed {
    proposal: Proposal,
    snapshot: Arc<Snapshot>,
    raw: RawDecision,
}

/// Waits until everything a revision reads can be read.
pub(super) async fn ready(plugin: &Logic) -> Result<(), String> {
    let deadline = Instant::now() + SYNC_DEADLINE;
    for (_, subscription) in &plugin.subscriptions {
        let synced = subscription.store().wait_synced(deadline).await;
        synced.map(drop).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What the whole fleet would see if the candidate acted in place of the active revision.
pub(super) async fn fleet(
    outlook: &Outlook,
    active: &Arc<Logic>,
    candidate: &Arc<Logic>,
) -> FleetPlan {
    let mut parents: Vec<ObjectKey> =
        candidate.parents().into_iter().map(|parent| parent.key.clone()).collect();
    parents.sort();
    let each = parents.into_iter().enumerate().map(|(index, parent)| async move {
        let check = index < CHECKED;
        let (effect, unsound) = one(outlook, active, candidate, &parent, check).await;
        ((parent, effect), unsound)
    });
    let results: Vec<_> = futures::stream::iter(each)
        .buffer_unordered(outlook.calls.cores() * PARENTS_PER_CORE)
        .collect()
        .await;
    let mut unsound: Vec<(ObjectKey, String)> = results
        .iter()
        .filter_map(|((parent, _), unsound)| Some((parent.clone(), unsound.clone()?)))
        .collect();
    unsound.sort();
    let unsound = unsound.into_iter().next().map(|(parent, why)| format!("{why} (for {parent})"));
    FleetPlan::new(results.into_iter().map(|(effect, _)| effect).collect(), unsound)
}

async fn one(
    outlook: &Outlook,
    active: &Arc<Logic>,
    candidate: &Arc<Logic>,
    parent: &ObjectKey,
    check: bool,
) -> (Effect, Option<String>) {
    let key = ParentKey { lane: active.lane, key: parent.clone() };
    let before = propose(outlook, active, parent, &key).await;
    let after = propose(outlook, candidate, parent, &key).await;
    let mut unsound = None;
    if check && let Ok(Some(proposed)) = &after {
        unsound = unsoundness(outlook, candidate, proposed).await;
        // What the active revision does not keep either is not asked of a candidate.
        if unsound.is_some()
            && let Ok(Some(proposed)) = &before
            && unsoundness(outlook, active, proposed).await.is_some()
        {
            unsound = None;
        }
    }
    let proposal = |result: Result<Option<Proposed>, Error>| match result {
        Ok(Some(proposed)) => Some(Ok(proposed.proposal)),
        Ok(None) => None,
        Err(error) => Some(Err(Problem { reason: error.reason(), message: chain(&error) })),
    };
    let (Some(before), Some(after)) = (proposal(before), proposal(after)) else {
        // It was deleted meanwhile.
        return (Effect::Same, None);
    };
    let recreated = match &after {
        Ok(after) => recreated(candidate, after).await,
        Err(_) => BTreeSet::new(),
    };
    (compare(&before, &after, |id| candidate.lookup(id), &recreated), unsound)
}

/// What a revision would do for one parent. None: the parent is gone.
pub(super) async fn propose(
    outlook: &Outlook,
    plugin: &Arc<Logic>,
    parent: &ObjectKey,
    key: &ParentKey,
) -> Result<Option<Proposed>, Error> {
    let Some(observation) = observe::look(plugin, parent)? else { return Ok(None) };
    let (previous, mut memory) = outlook.dispatch.peek(key);
    let known = outlook.recordings.probes(key);
    let mut seen = Arc::new(decide::snapshot(&outlook.clock, plugin, &observation, previous));
    let mode = Mode::Shadow(&known);
    let raw = decide::deliberate(outlook, plugin, &observation, &mut seen, mode).await?;
    let mut decision = decide::validated(plugin, &observation, raw.clone())?;
    let desired = std::mem::take(&mut decision.objects);
    let plan = planned(outlook.clock.elapsed(), plugin, &observation, desired, &mut memory);
    let proposal = Proposal { plan, status: decision.status, actions: decision.actions };
    Ok(Some(Proposed { proposal, snapshot: seen, raw }))
}

/// What is wrong with the revision itself.
async fn unsoundness(
    outlook: &Outlook,
    plugin: &Arc<Logic>,
    proposed: &Proposed,
) -> Option<String> {
    let (snapshot, raw) = (Arc::clone(&proposed.snapshot), proposed.raw.clone());
    let check = move |plugin: &host_wasm::Plugin| plugin.check_soundness(&snapshot, &raw);
    match outlook.calls.make(plugin, check).await {
        Ok(SoundnessCheck::Sound) | Err(_) => None,
        Ok(SoundnessCheck::Unsound(why)) => Some(why),
    }
}

/// Objects that an apply cannot change: the server is asked, without changing anything, about those that would be
/// created again.
async fn recreated(plugin: &Logic, proposal: &Proposal) -> BTreeSet<ObjectId> {
    let mut found = BTreeSet::new();
    for step in proposal.plan.steps() {
        let Step::Apply(apply) = step else { continue };
        let may =
            apply.live.is_some() && apply.on_immutable != host_core::decision::OnImmutable::Report;
        if may {
            let manager = plugin.field_manager();
            let answer = plugin.reader.try_apply(&apply.id, &manager, &apply.body).await;
            if answer.is_err_and(|error| error.kind() == host_kube::ApiErrorKind::Immutable) {
                found.insert(apply.id.clone());
            }
        }
    }
    found
}
