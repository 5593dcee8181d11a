//! Who owns which fields: a subset of server-side apply.
//!
//! Lists are owned as a whole, whatever their schema would say; who owns what is not shown as `managedFields`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::fields::{self, Path};

/// A field manager. One name is several managers: applies and updates, the object and its status, are kept apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) applies: bool,
    pub(crate) status: bool,
}

/// The fields of one object by their managers. A field can have several, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers(BTreeMap<Manager, BTreeSet<Path>>);

impl Managers {
    /// The others who own what an apply would change: their names and the fields.
    pub(crate) fn conflicts(
        &self,
        me: &Manager,
        live: &Value,
        body: &Value,
    ) -> Vec<(String, String)> {
        let mut wanted = live.clone();
        fields::merge(&mut wanted, body);
        let others = self.0.iter().filter(|(manager, _)| *manager != me);
        others
            .flat_map(|(manager, paths)| paths.iter().map(|path| (manager.name.clone(), path)))
            .filter(|(_, path)| !same(live, &wanted, path))
            .map(|(manager, path)| (manager, format!(".{}", path.join("."))))
            .collect()
    }

    /// The object after an apply: with all that `body` says, without what `me` applied before, does not apply any
    /// more, and nobody else owns.
    pub(crate) fn applied(&self, me: &Manager, live: &Value, body: &Value) -> Value {
        let mut object = live.clone();
        fields::merge(&mut object, body);
        let now = fields::leaves(body);
        let is_held = |path: &[String]| {
            let others = self.0.iter().filter(|(manager, _)| *manager != me);
            others.map(|(_, paths)| paths).chain([&now]).any(|paths| holds(paths, path))
        };
        let before = self.0.get(me).into_iter().flatten();
        for path in before.filter(|path| !is_held(path)) {
            let mut path = path.as_slice();
            // A map that is left empty and that nobody wanted goes too.
            while fields::take(&mut object, path) {
                let Some((_, parent)) = path.split_last() else { break };
                if parent.len() < 2 && parent.first().is_none_or(|key| key == "metadata") {
                    break;
                }
                if is_held(parent) {
                    break;
                }
                path = parent;
            }
        }
        object
    }

    /// Who owns what after a change. `applied`: the leaves that an apply named; None: an update, which comes to own
    /// what it changes.
    pub(crate) fn after(
        &self,
        me: &Manager,
        old: &Value,
        new: &Value,
        applied: Option<BTreeSet<Path>>,
    ) -> Self {
        let mut next = self.clone();
        for (manager, paths) in &mut next.0 {
            if manager == me && applied.is_none() {
                paths.retain(|path| fields::at(new, path).is_some());
            } else {
                paths.retain(|path| same(old, new, path));
            }
        }
        if let Some(leaves) = applied {
            next.0.insert(me.clone(), leaves);
        } else {
            let changed = fields::leaves(new).into_iter().filter(|path| !same(old, new, path));
            next.0.entry(me.clone()).or_default().extend(changed);
        }
        next.0.retain(|_, paths| !paths.is_empty());
        next
    }
}

/// Whether a field, or something within it, is among those owned.
fn holds(paths: &BTreeSet<Path>, path: &[String]) -> bool {
    paths.range(path.to_vec()..).next().is_some_and(|found| found.starts_with(path))
}

/// Whether a field did not change. Of a map that is owned as such, only that it is one.
fn same(old: &Value, new: &Value, path: &[String]) -> bool {
    match (fields::at(old, path), fields::at(new, path)) {
        (Some(Value::Object(_)), Some(Value::Object(_))) => true,
        (old, new) => old == new,
    }
}
