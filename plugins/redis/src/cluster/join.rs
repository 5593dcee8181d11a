//! Fresh nodes become members, members get slots once, and the rest become replicas where one is missing (facts 3.3).
//!
//! **Invariant:** slots are given out only while the cluster has never been complete, every pod answers, and all are
//! empty (corpus B44). **Invariant:** a node becomes a replica only if it holds nothing (corpus B22).

use std::collections::BTreeSet;

use super::heal::meet;
use super::view::{Fate, View};
use crate::current::PodView;
use crate::nodes::{SLOTS, SlotSet, share};
use crate::ordered;
use crate::plan::{Command, Input, Plan};

/// The next step towards every pod having its place.
pub(super) fn plan(input: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    let new = is_new(input, view);
    if !input.memory.formed && view.assigned.is_empty() && !new {
        // Nothing to join yet: wait for every pod.
        return;
    }
    introduce(input, view, new, plan);
    if !plan.commands.is_empty() {
        return;
    }
    if new {
        give_out_slots(input, view, plan);
    } else {
        place_replicas(input, view, plan);
    }
}

/// Whether this cluster is being created: nothing is in it, and everybody can say so.
fn is_new(input: &Input<'_>, view: &View<'_>) -> bool {
    let empty = input.pods.iter().all(|pod| pod.info().is_some_and(|info| info.keys == 0));
    let ours: BTreeSet<&str> = ordered::set(input.pods.iter().filter_map(View::id));
    let only_ours = input
        .pods
        .iter()
        .filter_map(|pod| pod.redis()?.table.as_ref())
        .all(|table| table.confirmed().all(|row| ours.contains(row.id.as_str())));
    !input.memory.formed
        && input.complete()
        && empty
        && only_ours
        && view.assigned.len() < u32::from(SLOTS)
}

fn introduce(input: &Input<'_>, view: &View<'_>, new: bool, plan: &mut Plan) {
    let Some(speaker) = view.speaker() else {
        return;
    };
    if new {
        // Distinct epochs before anybody meets: equal ones resolve themselves, but slots may flap meanwhile.
        for pod in input.pods {
            let table = pod.redis().and_then(|redis| redis.table.as_ref());
            if table.is_some_and(|table| {
                table.rows.len() == 1 && table.own().is_some_and(|own| own.epoch == 0)
            }) {
                let epoch = pod.ordinal.saturating_add(1).to_string();
                plan.commands.push(Command::new(pod, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]));
            }
        }
    }
    for (pod, table) in &view.outsiders {
        if view.is_fresh(pod, table) {
            plan.commands.push(meet(pod, speaker));
        }
    }
}

fn everybody_knows_everybody(view: &View<'_>) -> bool {
    view.members.values().all(|(_, table)| view.members.keys().all(|id| table.knows(id)))
}

fn give_out_slots(input: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    if !view.outsiders.is_empty() || !everybody_knows_everybody(view) {
        return;
    }
    for pod in input.pods.iter().filter(|pod| pod.ordinal < input.shards) {
        let (first, last) = share(pod.ordinal, input.shards);
        let missing = SlotSet::range(first, last).without(&view.assigned);
        let is_master = view.member(pod).is_some_and(|own| own.master);
        if missing.is_empty() || !is_master {
            continue;
        }
        let mut words = vec!["CLUSTER".to_owned(), "ADDSLOTSRANGE".to_owned()];
        for (first, last) in missing.ranges() {
            words.extend([first.to_string(), last.to_string()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        plan.commands.push(Command::new(pod, &words));
    }
}

/// Members without slots go where copies are fewest; among equals to the shard of their ordinal.
fn place_replicas(input: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    if view.assigned.len() < u32::from(SLOTS) && !input.memory.formed {
        return;
    }
    let mut copies: Vec<usize> = view
        .shards
        .iter()
        .map(|shard| shard.replicas.len() + usize::from(matches!(shard.fate, Fate::Alive(_))))
        .collect();
    for pod in input.pods.iter().filter(|pod| is_unplaced(view, pod)) {
        let wanted =
            usize::try_from(pod.ordinal.checked_rem(input.shards).unwrap_or(0)).unwrap_or(0);
        let home = view
            .shards
            .iter()
            .enumerate()
            .min_by_key(|(index, _)| (copies.get(*index).copied(), *index != wanted, *index));
        let Some((index, shard)) = home else { continue };
        if let Some(count) = copies.get_mut(index) {
            *count += 1;
        }
        // The place is in a shard without a master: wait for its election, rather than take a place where none is free.
        if !matches!(shard.fate, Fate::Alive(_)) {
            continue;
        }
        let knows = View::id(pod)
            .and_then(|id| view.members.get(id))
            .is_some_and(|(_, table)| table.knows(&shard.master));
        if knows {
            plan.commands.push(Command::new(pod, &["CLUSTER", "REPLICATE", &shard.master]));
        }
    }
}

fn is_unplaced(view: &View<'_>, pod: &PodView) -> bool {
    let Some(own) = view.member(pod) else {
        return false;
    };
    own.master && own.slots.is_empty() && pod.info().is_some_and(|info| info.keys == 0)
}
