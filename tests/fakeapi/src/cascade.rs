//! What the garbage collector does, and what becomes of the objects of a CRD: at once, after every change.
//!
//! A real garbage collector follows some moments later. An owner whose kind is not served here counts as one that
//! exists.

use std::collections::BTreeMap;

use serde_json::json;

use crate::delete::{FOREGROUND, ORPHAN, delete};
use crate::kind::{DEFINITION, Id, Kind};
use crate::object::{self, Owner, finalizers, is_deleting, owners};
use crate::state::State;
use crate::write::{CLEANUP, Target, update};

/// Who it is that cleans up.
const COLLECTOR: &str = "garbage-collector";

/// One thing to do.
enum Task {
    /// Delete an object, with this propagation.
    Delete(Id, &'static str),
    /// Drop references to owners.
    Release(Id, Vec<String>),
    /// Take off a finalizer.
    Finish(Id, &'static str),
}

/// Does all that there is to do.
pub(crate) fn settle(state: &mut State) {
    loop {
        let before = state.version();
        for task in tasks(state) {
            carry_out(state, task);
        }
        // Nothing to do, or nothing that can be done.
        if state.version() == before {
            return;
        }
    }
}

fn carry_out(state: &mut State, task: Task) {
    let (Task::Delete(id, _) | Task::Release(id, _) | Task::Finish(id, _)) = &task;
    let Some(kind) = state.kind(&id.api_version, &id.kind) else { return };
    let manager = COLLECTOR.to_owned();
    let target = Target { kind, id: id.clone(), status: false, manager, dry_run: false };
    // What cannot be done is done already: an earlier task has removed the object.
    let _ = match task {
        Task::Delete(_, propagation) => {
            delete(state, &target, &json!({"propagationPolicy": propagation}))
        }
        Task::Release(_, uids) => {
            update(state, &target, |object| Ok(object::without_owners(object, &uids)))
        }
        Task::Finish(_, finalizer) => {
            update(state, &target, |object| Ok(object::without_finalizer(object, finalizer)))
        }
    };
}

/// How an owner fares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It stays, as far as is known.
    Solid,
    /// It is gone.
    Absent,
    /// It waits for its dependents.
    Waits,
    /// It lets its dependents go.
    Orphans,
}

fn tasks(state: &State) -> Vec<Task> {
    let kinds = state.kinds();
    let mut leaving = BTreeMap::new();
    for (_, stored) in state.all().filter(|(_, stored)| is_deleting(&stored.object)) {
        let waits_for = finalizers(&stored.object);
        let fate = if waits_for.contains(&ORPHAN) {
            Fate::Orphans
        } else if waits_for.contains(&FOREGROUND) {
            Fate::Waits
        } else {
            Fate::Solid
        };
        leaving.insert(object::uid(&stored.object).to_owned(), fate);
    }
    let fate = |owner: &Owner| match leaving.get(&owner.uid) {
        Some(fate) => *fate,
        None if state.lives(&owner.uid) => Fate::Solid,
        None if kinds.iter().any(|kind| kind.names() == (&*owner.api_version, &*owner.kind)) => {
            Fate::Absent
        }
        None => Fate::Solid,
    };
    let mut tasks: Vec<_> = of_dependents(state, fate).collect();
    tasks.extend(of_leaving(state));
    tasks
}

fn of_dependents(state: &State, fate: impl Fn(&Owner) -> Fate) -> impl Iterator<Item = Task> {
    state.all().filter_map(move |(id, stored)| {
        let owners = owners(&stored.object);
        if owners.is_empty() {
            return None;
        }
        let of = |fates: &[Fate]| -> Vec<String> {
            let found = owners.iter().filter(|owner| fates.contains(&fate(owner)));
            found.map(|owner| owner.uid.clone()).collect()
        };
        let orphaned = of(&[Fate::Orphans]);
        if !orphaned.is_empty() {
            return Some(Task::Release(id.clone(), orphaned));
        }
        let gone = of(&[Fate::Absent, Fate::Waits]);
        if gone.is_empty() || is_deleting(&stored.object) {
            return None;
        }
        if gone.len() < owners.len() {
            return Some(Task::Release(id.clone(), gone));
        }
        let waited_for = !of(&[Fate::Waits]).is_empty();
        let foreground = waited_for && has_dependents(state, object::uid(&stored.object), false);
        Some(Task::Delete(id.clone(), if foreground { "Foreground" } else { "Background" }))
    })
}

/// The finalizers whose work is done.
fn of_leaving(state: &State) -> impl Iterator<Item = Task> {
    let leaving = state.all().filter(|(_, stored)| is_deleting(&stored.object));
    leaving.flat_map(|(id, stored)| {
        let (object, uid) = (&stored.object, object::uid(&stored.object));
        let mut tasks = Vec::new();
        for finalizer in finalizers(object) {
            match finalizer {
                FOREGROUND if !has_dependents(state, uid, true) => {
                    tasks.push(Task::Finish(id.clone(), FOREGROUND));
                }
                ORPHAN if !has_dependents(state, uid, false) => {
                    tasks.push(Task::Finish(id.clone(), ORPHAN));
                }
                CLEANUP if (&*id.api_version, &*id.kind) == DEFINITION => {
                    tasks.extend(of_definition(state, id, &Kind::of_definition(object)));
                }
                _ => {}
            }
        }
        tasks
    })
}

/// A CRD that is deleted takes its objects along, and waits for them.
fn of_definition(state: &State, id: &Id, kinds: &[Kind]) -> Vec<Task> {
    let is_theirs = |id: &Id| kinds.iter().any(|kind| kind.names() == (&id.api_version, &id.kind));
    let theirs: Vec<_> = state.all().filter(|(id, _)| is_theirs(id)).collect();
    if theirs.is_empty() {
        return vec![Task::Finish(id.clone(), CLEANUP)];
    }
    let staying = theirs.into_iter().filter(|(_, stored)| !is_deleting(&stored.object));
    staying.map(|(id, _)| Task::Delete(id.clone(), "Background")).collect()
}

/// Whether an object has dependents, or such as it waits for.
fn has_dependents(state: &State, uid: &str, blocking: bool) -> bool {
    let mut owners = state.all().flat_map(|(_, stored)| owners(&stored.object));
    owners.any(|owner| owner.uid == uid && (owner.blocks || !blocking))
}
