//! Addresses that changed, links that point to old ones, and nodes that will not come back (facts 3.6, 3.7).
//!
//! **Invariant:** addresses are repaired before anybody is forgotten.

use super::view::{Fate, View};
use crate::current::PodView;
use crate::info::InfoRole;
use crate::ordered;
use crate::plan::{Command, Input, Plan};

/// Tells members where others are now. A single moved pod tells the others itself; when all have moved nobody can.
pub(super) fn addresses(_: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    let Some(speaker) = view.speaker() else {
        return;
    };
    // Replicas first and to their own masters: then their links come up without further repair (measured).
    for shard in &view.shards {
        let Fate::Alive(master) = shard.fate else {
            continue;
        };
        for replica in &shard.replicas {
            if is_stale(view, replica, &shard.master, master) {
                plan.commands.push(meet(replica, master));
            }
        }
    }
    for (id, (pod, _)) in &view.members {
        if pod.name != speaker.name && is_stale(view, speaker, id, pod) {
            plan.commands.push(meet(speaker, pod));
        }
    }
    for (pod, table) in &view.outsiders {
        // Known by its id, so it is one of ours that has lost sight of the others.
        if view.knows(&table.myself) {
            plan.commands.push(meet(speaker, pod));
        }
    }
}

/// `pod` introduces itself to `other`.
pub(super) fn meet(pod: &PodView, other: &PodView) -> Command {
    Command::addressed(pod, &["CLUSTER", "MEET"], other, &[])
}

/// Whether `viewer` has another address for the node `id` than it has.
fn is_stale(view: &View<'_>, viewer: &PodView, id: &str, node: &PodView) -> bool {
    let table = View::id(viewer).and_then(|own| view.members.get(own)).map(|(_, table)| *table);
    table.and_then(|table| table.rows.get(id)).is_some_and(|row| row.ip != node.ip)
}

/// Replicas that still try to reach their master at an old address, although gossip has the new one.
pub(super) fn links(_: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    for shard in &view.shards {
        let Fate::Alive(master) = shard.fate else {
            continue;
        };
        let Some(leading) = master.info() else {
            continue;
        };
        for replica in &shard.replicas {
            let Some(info) = replica.info() else { continue };
            let lost =
                info.role == InfoRole::Replica && !info.link_up && info.master_host != master.ip;
            if lost && !is_stale(view, replica, &shard.master, master) && !leading.would_wipe(info)
            {
                plan.commands.push(Command::new(replica, &["CLUSTER", "REPLICATE", &shard.master]));
            }
        }
    }
}

/// Removes nodes that belong to no pod any more. Only with everybody present: then no id can be somebody's who is away.
pub(super) fn forget(input: &Input<'_>, view: &View<'_>, plan: &mut Plan) {
    if !input.complete() || !view.outsiders.is_empty() || !input.memory.formed {
        return;
    }
    let dead = view
        .members
        .values()
        .flat_map(|(_, table)| table.confirmed())
        .map(|row| row.id.as_str())
        .filter(|id| !view.members.contains_key(id) && may_be_forgotten(view, id));
    // To every node in one pass: the ban lasts 60 s, and one that was missed would bring it back.
    for id in ordered::set(dead) {
        for (pod, table) in view.members.values() {
            if table.knows(id) {
                plan.commands.push(Command::new(pod, &["CLUSTER", "FORGET", id]));
            }
        }
    }
}

fn may_be_forgotten(view: &View<'_>, id: &str) -> bool {
    let given_up = view
        .members
        .values()
        .filter_map(|(_, table)| table.rows.get(id))
        .all(|row| row.failed || row.no_address);
    let followed = view
        .members
        .values()
        .filter_map(|(_, table)| table.own())
        .any(|own| own.master_id.as_deref() == Some(id));
    given_up && !followed && !view.owns_slots(id)
}
