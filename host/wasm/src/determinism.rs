//! Does a plugin answer the same question twice in the same way?

use host_core::decision::RawDecision;
use host_core::snapshot::{Failure, Snapshot, Verdict};

use crate::fault::CallFault;
use crate::load::Plugin;

/// A plugin gave two answers to one snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plugin is not deterministic: {what} differs between two calls with the same snapshot")]
pub struct Divergence {
    /// What differs, as `objects[3]`.
    pub what: String,
}

impl Plugin {
    /// Calls the plugin twice with one snapshot and compares. The log is not part of the answer.
    pub fn check_determinism(
        &self,
        snapshot: &Snapshot,
    ) -> Result<Result<(), Divergence>, CallFault> {
        let first = self.reconcile(snapshot, &mut |_| ())?;
        let second = self.reconcile(snapshot, &mut |_| ())?;
        Ok(match difference(&first, &second) {
            None => Ok(()),
            Some(what) => Err(Divergence { what }),
        })
    }
}

type Answer = Result<Verdict, Failure>;

/// Names the first part that differs.
fn difference(first: &Answer, second: &Answer) -> Option<String> {
    match (first, second) {
        (Ok(Verdict::Ask(first)), Ok(Verdict::Ask(second))) => items("queries", first, second),
        (Ok(Verdict::Decide(first)), Ok(Verdict::Decide(second))) => decisions(first, second),
        (Err(first), Err(second)) => part("the failure", first, second),
        _ => Some("the kind of answer".to_owned()),
    }
}

fn decisions(first: &RawDecision, second: &RawDecision) -> Option<String> {
    items("objects", &first.objects, &second.objects)
        .or_else(|| part("status", &first.status, &second.status))
        .or_else(|| items("events", &first.events, &second.events))
        .or_else(|| items("actions", &first.actions, &second.actions))
        .or_else(|| part("requeue-after-ms", &first.requeue_after_ms, &second.requeue_after_ms))
        .or_else(|| part("finished", &first.finished, &second.finished))
}

fn items<T: PartialEq>(name: &str, first: &[T], second: &[T]) -> Option<String> {
    if first.len() != second.len() {
        return Some(format!("the number of {name}"));
    }
    let differs = |(index, (first, second))| part(&format!("{name}[{index}]"), first, second);
    first.iter().zip(second).enumerate().find_map(differs)
}

fn part<T: PartialEq>(name: &str, first: &T, second: &T) -> Option<String> {
    (first != second).then(|| name.to_owned())
}
