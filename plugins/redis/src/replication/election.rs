//! Who is the master, and who should become it. By data, never by ordinal alone (corpus B18, B24, B25).
//!
//! **Invariant:** the result does not depend on the order in which pods are listed.

use std::cmp::Ordering;

use super::follow::attach;
use crate::api::OperationKind;
use crate::current::PodView;
use crate::info::{Info, InfoRole};
use crate::plan::{Command, Input, Plan};

/// The wait for pods that have not answered, before somebody with data but not known to be in sync is elected.
const INCOMPLETE_SECS: i64 = 10;

/// The same, when one of those missing had everything and its volume still has it (facts 3.6: five minutes).
const PERSISTENT_SECS: i64 = 300;

/// The wait at the very first start, when nothing can be lost: a pod that cannot be scheduled must not block the others.
const FIRST_START_SECS: i64 = 30;

/// The subject under which an election that cannot be held yet is remembered.
const ELECTION: &str = "election";

/// The master, if one is seen that should stay it.
pub(super) fn rightful_master<'a>(input: &Input<'a>) -> Option<&'a PodView> {
    let masters = input.pods.iter().filter(|pod| {
        pod.info().is_some_and(|info| info.role == InfoRole::Master) && !is_reborn(input, pod)
    });
    champion(masters, |a, b| compare_masters(input, a, b))
}

/// A master that came up empty while others have data of a history that is not its own.
fn is_reborn(input: &Input<'_>, master: &PodView) -> bool {
    let Some(info) = master.info() else {
        return false;
    };
    if info.keys > 0 || input.pods.iter().any(|pod| pod.follows(master) && pod.linked()) {
        return false;
    }
    let remembered = input.memory.master.as_ref() == Some(&master.name);
    input.pods.iter().any(|pod| {
        pod.info().is_some_and(|other| info.would_wipe(other)) && !(pod.gated() && remembered)
    })
}

/// The best of a few, by a comparison of two. Ties go to the lower ordinal, because pods come in that order.
fn champion<'a>(
    pods: impl Iterator<Item = &'a PodView>,
    compare: impl Fn(&PodView, &PodView) -> Ordering,
) -> Option<&'a PodView> {
    pods.reduce(|best, next| if compare(next, best) == Ordering::Greater { next } else { best })
}

/// Which of two masters stays: the one promoted out of the other's history, the one that is followed,
/// the one further along the common history, the one we know, the one with more data.
fn compare_masters(input: &Input<'_>, a: &PodView, b: &PodView) -> Ordering {
    let (Some(x), Some(y)) = (a.info(), b.info()) else {
        return Ordering::Equal;
    };
    let followers = |master: &PodView| {
        input.pods.iter().filter(|pod| pod.follows(master) && pod.linked()).count()
    };
    let known = |pod: &PodView| input.memory.master.as_ref() == Some(&pod.name);
    x.promoted_from(y)
        .cmp(&y.promoted_from(x))
        .then_with(|| followers(a).cmp(&followers(b)))
        .then_with(|| along_common_history(x, y))
        .then_with(|| (x.keys > 0).cmp(&(y.keys > 0)))
        .then_with(|| known(a).cmp(&known(b)))
        .then_with(|| x.keys.cmp(&y.keys))
}

/// Offsets say something only about one history; siblings were both promoted out of one.
fn along_common_history(x: &Info, y: &Info) -> Ordering {
    let siblings = x.replid2.is_some() && x.replid2 == y.replid2;
    if siblings || x.related(y) { x.offset.cmp(&y.offset) } else { Ordering::Equal }
}

/// Which of two pods should become the master.
fn compare_candidates(input: &Input<'_>, a: &PodView, b: &PodView) -> Ordering {
    let (Some(x), Some(y)) = (a.info(), b.info()) else {
        return Ordering::Equal;
    };
    let survivor = |pod: &PodView| is_survivor(input, pod);
    let known = |pod: &PodView| input.memory.master.as_ref() == Some(&pod.name);
    let synced = |pod: &PodView| input.memory.in_sync.contains(&pod.name);
    let stays = |pod: &PodView| pod.ordinal < input.desired && !pod.terminating;
    let by_history = if x.related(y) {
        x.promoted_from(y).cmp(&y.promoted_from(x)).then_with(|| x.offset.cmp(&y.offset))
    } else {
        // Nothing in common: data beats no data, what never stopped beats what restarted.
        (x.keys > 0)
            .cmp(&(y.keys > 0))
            .then_with(|| survivor(a).cmp(&survivor(b)))
            .then_with(|| along_common_history(x, y))
    };
    by_history
        .then_with(|| known(a).cmp(&known(b)))
        .then_with(|| synced(a).cmp(&synced(b)))
        .then_with(|| b.gated().cmp(&a.gated()))
        .then_with(|| x.keys.cmp(&y.keys))
        .then_with(|| stays(a).cmp(&stays(b)))
}

/// It had everything when the master was last seen, and has not restarted since.
fn is_survivor(input: &Input<'_>, pod: &PodView) -> bool {
    input.memory.in_sync.contains(&pod.name) && pod.info().is_some() && !pod.gated()
}

/// Elects, or says what is waited for.
pub(super) fn plan(input: &Input<'_>, plan: &mut Plan) {
    let candidates = input.pods.iter().filter(|pod| pod.info().is_some());
    let Some(best) = champion(candidates, |a, b| compare_candidates(input, a, b)) else {
        plan.problem("NoMaster", "no pod answers, so there is nobody to elect");
        return;
    };
    if !is_safe(input, best) {
        plan.suspect = Some(ELECTION.to_owned());
        plan.problem(
            "NoMaster",
            format!("{} could become the master, but pods with newer data may be missing; waiting for them", best.name),
        );
        return;
    }
    plan.operation = Some((OperationKind::Election, best.name.clone()));
    plan.problem("NoMaster", format!("{} becomes the master", best.name));
    plan.commands.push(Command::promote(best));
    for pod in input.pods.iter().filter(|pod| pod.name != best.name && pod.info().is_some()) {
        if !pod.follows(best) {
            attach(pod, best, plan);
        }
    }
}

/// Whether electing `best` now cannot lose what somebody missing has, as far as can be known.
fn is_safe(input: &Input<'_>, best: &PodView) -> bool {
    if is_survivor(input, best) || input.complete() {
        return true;
    }
    let waited = input.suspected_for(ELECTION).unwrap_or(0);
    let has_data = best.info().is_some_and(|info| info.keys > 0);
    let missing = |name: &str| input.pod(name).is_none_or(|pod| pod.info().is_none());
    if input.pods.iter().any(PodView::loading) {
        return false;
    }
    if !has_data {
        return input.memory.master.is_none() && waited >= FIRST_START_SECS;
    }
    let newer_may_return = input.persistent
        && input.memory.in_sync.iter().chain(&input.memory.master).any(|name| missing(name));
    waited >= if newer_may_return { PERSISTENT_SECS } else { INCOMPLETE_SECS }
}
