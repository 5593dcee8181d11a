//! What Redis cannot do by itself, because it cannot vote: take over from a master that is lost (facts 0.1 to 0.3, 3.6).
//!
//! **Invariant:** nobody takes over from a master that may be at work: its process must have ended, or it must have
//! come back empty. **Invariant:** one takeover at a time; when a majority is back, the rest elect for themselves.

use super::view::{Fate, Shard, View};
use crate::api::OperationKind;
use crate::current::PodView;
use crate::plan::{Command, Input, Plan};

/// The wait when the dead have taken their data with them: long enough for a second look, and well below the
/// 15 s for which a pod without data waits before it comes back (see `desired::workload`).
const WITHOUT_DATA_SECS: i64 = 5;

/// The wait when the dead may return with their data (facts 3.6: five minutes).
const WITH_DATA_SECS: i64 = 300;

/// Voters a cluster needs to survive one of them.
const VOTERS_MIN: usize = 3;

/// Plans at most one takeover.
pub(super) fn plan(input: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    if let Some((shard, successor)) =
        view.shards.iter().find_map(|shard| Some((shard, reborn(shard)?)))
    {
        let vote = alive(view) >= VOTERS_MIN;
        plan.problem(
            "MasterCameBackEmpty",
            format!("the master of slots {} came back empty", slots(shard)),
        );
        return take_over(successor, if vote { "FORCE" } else { "TAKEOVER" }, plan);
    }
    let without_address =
        |shard: &&Shard<'_>| shard.fate == Fate::Lost && has_no_address(view, &shard.master);
    if let Some(shard) = view.shards.iter().find(without_address) {
        // Its address was forgotten before anybody declared it dead, so nobody ever will.
        if let Some(successor) =
            best(shard).filter(|pod| pod.info().is_some_and(|info| info.keys > 0))
        {
            plan.problem("MasterLost", format!("the master of slots {} is gone", slots(shard)));
            return take_over(successor, "TAKEOVER", plan);
        }
    }
    if !view.shards.is_empty() && alive(view) * 2 <= view.shards.len() {
        quorum(input, view, plan);
    }
}

fn alive(view: &View<'_>) -> usize {
    view.shards.iter().filter(|shard| matches!(shard.fate, Fate::Alive(_))).count()
}

fn quorum(input: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    const SUBJECT: &str = "quorum";
    plan.suspect = Some(SUBJECT.to_owned());
    plan.problem(
        "QuorumLost",
        format!(
            "{} of {} masters are there, too few to elect others",
            alive(view),
            view.shards.len()
        ),
    );
    let waited = input.suspected_for(SUBJECT).unwrap_or(0);
    let patience = |shard: &Shard<'_>| match shard.fate {
        Fate::Alive(_) | Fate::Unknown => None,
        Fate::Refused | Fate::Stopped if input.persistent => Some(WITH_DATA_SECS),
        Fate::Refused | Fate::Stopped | Fate::Lost => Some(WITHOUT_DATA_SECS),
    };
    let ripe = |shard: &&Shard<'_>| patience(shard).is_some_and(|seconds| waited >= seconds);
    if let Some(successor) = view.shards.iter().filter(ripe).find_map(best) {
        take_over(successor, "TAKEOVER", plan);
    }
}

/// The replica that should take over from a master that came back empty; None when it did not.
fn reborn<'a>(shard: &Shard<'a>) -> Option<&'a PodView> {
    let Fate::Alive(master) = shard.fate else {
        return None;
    };
    let empty = master.info()?;
    let successor = best(shard)?;
    let info = successor.info()?;
    (!info.link_up && empty.would_wipe(info)).then_some(successor)
}

/// The replica with the most of what the master had.
fn best<'a>(shard: &Shard<'a>) -> Option<&'a PodView> {
    shard
        .replicas
        .iter()
        .filter_map(|pod| Some((pod.info()?, *pod)))
        .max_by_key(|(info, pod)| (info.keys > 0, info.offset, std::cmp::Reverse(pod.ordinal)))
        .map(|(_, pod)| pod)
}

fn has_no_address(view: &View<'_>, id: &str) -> bool {
    let opinions = view.members.values().filter_map(|(_, table)| table.rows.get(id));
    let (without, all) = opinions
        .fold((0, 0), |(without, all), row| (without + usize::from(row.no_address), all + 1));
    without * 2 > all
}

fn take_over(successor: &PodView, how: &str, plan: &mut Plan) {
    plan.operation = Some((OperationKind::Takeover, successor.name.clone()));
    plan.commands.push(Command::new(successor, &["CLUSTER", "FAILOVER", how]));
}

fn slots(shard: &Shard<'_>) -> String {
    crate::nodes::describe(&shard.slots)
}
