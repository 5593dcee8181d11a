//! What the parents and their children show: which bytes ran a parent last, and which replicas its child has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

use super::follow::{Following, condition, follow, name};
use crate::api::{Api, Resource};
use crate::say;

/// How much of a digest the condition `Reconciled` shows.
const SHORT: usize = 12;

/// All parents and children of one namespace.
pub(super) struct Sight {
    parents: Arc<Mutex<Parents>>,
    children: Arc<Mutex<Children>>,
    _following: [Following; 2],
}

/// Replicas by name: every value a child had, and since when.
type Children = BTreeMap<String, Vec<(Instant, u64)>>;

/// One parent, from its condition `Reconciled`.
struct Parent {
    /// The bytes that ran it last.
    digest: String,
    /// Whether they could.
    ok: bool,
}

/// What the parents have shown since the last swap began.
#[derive(Default)]
struct Parents {
    /// The bytes that are to act.
    expected: String,
    /// When a parent first showed them.
    first: Option<Instant>,
    /// How often a parent showed other bytes than before, and not the expected ones.
    backwards: u64,
    last: BTreeMap<String, Parent>,
}

impl Parents {
    fn note(&mut self, at: Instant, object: &Value) {
        let (Some(name), Some(reconciled)) = (name(object), condition(object, "Reconciled")) else {
            return;
        };
        let text = |field: &str| reconciled.get(field).and_then(Value::as_str).unwrap_or_default();
        let Some(digest) = digest_in(text("message")) else { return };
        let expected = digest == self.expected;
        if expected {
            self.first.get_or_insert(at);
        }
        let before = self.last.get(name);
        if before.is_some_and(|before| before.digest != digest) && !expected {
            self.backwards += 1;
            say::fact(&format!("{name} was run by {digest}, not by {}", self.expected));
        }
        let parent = Parent { digest: digest.to_owned(), ok: text("status") == "True" };
        self.last.insert(name.to_owned(), parent);
    }
}

/// `by tutorial 0.1.0 (sha256:0123456789ab)`.
fn digest_in(message: &str) -> Option<&str> {
    let (_, behind) = message.rsplit_once("sha256:")?;
    behind.get(..SHORT)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sight {
    /// Looks from now on.
    pub(super) async fn start(api: &Api, namespace: &str) -> anyhow::Result<Self> {
        let parents = Arc::new(Mutex::new(Parents::default()));
        let children = Arc::new(Mutex::new(Children::new()));
        let (noted, kept) = (Arc::clone(&parents), Arc::clone(&children));
        let following = [
            follow(api, Resource::Parents.path(namespace), move |at, object| {
                lock(&noted).note(at, object);
            })
            .await?,
            follow(api, Resource::Children.path(namespace), move |at, object| {
                note_child(&mut lock(&kept), at, object);
            })
            .await?,
        ];
        Ok(Self { parents, children, _following: following })
    }

    /// From now on these bytes are to act.
    pub(super) fn begin(&self, digest: &str) {
        let mut parents = lock(&self.parents);
        digest.clone_into(&mut parents.expected);
        parents.first = None;
    }

    /// When they first ran a parent.
    pub(super) fn first(&self) -> Option<Instant> {
        lock(&self.parents).first
    }

    /// Whether so many parents exist, and the bytes that are to act ran each of them last, and could.
    pub(super) fn all(&self, count: usize) -> bool {
        let parents = lock(&self.parents);
        let good = |parent: &Parent| parent.ok && parent.digest == parents.expected;
        parents.last.values().filter(|parent| good(parent)).count() == count
    }

    /// How often a parent went back to bytes that were not to act any more.
    pub(super) fn backwards(&self) -> u64 {
        lock(&self.parents).backwards
    }

    /// How many children do not have what was wanted last.
    pub(super) fn lost(&self, wanted: &BTreeMap<String, u32>) -> usize {
        let children = lock(&self.children);
        let has = |name: &String| children.get(name)?.last().map(|(_, replicas)| *replicas);
        wanted.iter().filter(|(name, replicas)| has(name) != Some(u64::from(**replicas))).count()
    }

    /// When a child first had these replicas after a moment.
    pub(super) fn arrived(&self, name: &str, replicas: u32, after: Instant) -> Option<Instant> {
        let children = lock(&self.children);
        let mut history = children.get(name)?.iter();
        history.find(|(at, had)| *at >= after && *had == u64::from(replicas)).map(|(at, _)| *at)
    }
}

fn note_child(children: &mut Children, at: Instant, object: &Value) {
    let replicas = object.pointer("/spec/replicas").and_then(Value::as_u64);
    let (Some(name), Some(replicas)) = (name(object), replicas) else { return };
    let history = children.entry(name.to_owned()).or_default();
    if history.last().is_none_or(|(_, last)| *last != replicas) {
        history.push((at, replicas));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parent(digest: &str) -> Value {
        let message = format!("by tutorial 0.1.0 (sha256:{digest})");
        let condition = json!({"type": "Reconciled", "status": "True", "message": message});
        json!({"metadata": {"name": "a"}, "status": {"conditions": [condition]}})
    }

    #[test]
    fn only_a_way_back_counts() {
        let (old, new) = ("000000000000", "111111111111");
        let mut parents = Parents { expected: old.to_owned(), ..Parents::default() };
        let run = |parents: &mut Parents, digest| parents.note(Instant::now(), &parent(digest));
        run(&mut parents, old);
        new.clone_into(&mut parents.expected);
        for digest in [old, new, new] {
            run(&mut parents, digest);
        }
        assert_eq!(parents.backwards, 0);
        run(&mut parents, old);
        assert_eq!(parents.backwards, 1);
        run(&mut parents, new);
        assert_eq!(parents.backwards, 1);
    }
}
