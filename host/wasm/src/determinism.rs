//! Is a plugin what it has to be: a function of its snapshot alone, and content with what it wanted?

use host_core::carried_out::{carried_out, reversed};
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

/// How often a plugin may change its mind about its own work. A rollout in steps takes two or three looks.
const MINDS_MAX: usize = 5;

/// Whether a plugin is sound, as far as one snapshot tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoundnessCheck {
    /// Nothing was found.
    Sound,
    /// What is wrong, for people.
    Unsound(String),
}

impl Plugin {
    /// Checks a plugin on a snapshot that has all the answers it needs, and on what it has decided from it:
    /// it has to decide the same again, and with every list turned around; and when it is shown its own desired
    /// objects as observed, it has to come to want nothing else.
    ///
    /// A fault or a question proves nothing and passes.
    pub fn check_soundness(&self, snapshot: &Snapshot, decision: &RawDecision) -> SoundnessCheck {
        let unsound = self.unsoundness(snapshot, decision);
        unsound.map_or(SoundnessCheck::Sound, SoundnessCheck::Unsound)
    }

    fn unsoundness(&self, snapshot: &Snapshot, decision: &RawDecision) -> Option<String> {
        let decided = |snapshot: &Snapshot| match self.reconcile(snapshot, &mut |_| ()) {
            Ok(Ok(Verdict::Decide(decision))) => Some(decision),
            Ok(Ok(Verdict::Ask(_)) | Err(_)) | Err(_) => None,
        };
        if let Some(what) = decided(snapshot).and_then(|again| decisions(decision, &again)) {
            return Some(format!("not deterministic: {what} differs from call to call"));
        }
        let turned = decided(&reversed(snapshot));
        if let Some(what) = turned.and_then(|turned| decisions(decision, &turned)) {
            return Some(format!("depends on the order of lists: {what} differs"));
        }
        let (mut seen, mut wanted) = (snapshot.clone(), decision.clone());
        for _ in 0..MINDS_MAX {
            seen = carried_out(&seen, &wanted)?;
            let next = decided(&seen)?;
            items("objects", &wanted.objects, &next.objects)?;
            wanted = next;
        }
        Some("never content: it keeps wanting something else than what it wanted".to_owned())
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
