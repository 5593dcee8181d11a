//! One master, the others its replicas: stage *diff* without cluster mode.
//!
//! Nothing but the operator elects here (there is no Sentinel), so it must act, and fence before it acts.
//!
//! **Invariant:** the master's label goes before a promotion and comes only after it was observed (corpus B43).
//! **Invariant:** whoever did not answer is never taken for dead by that alone, nor for empty.

mod change;
mod election;
mod follow;

use crate::current::{Life, PodView, Seen, Silence};
use crate::plan::{Input, Plan};

/// A replica that heard from its master this many seconds ago proves that the master lives: masters ping their
/// replicas every 2 s (`repl-ping-replica-period`), so this is two missed pings and one second.
const ALIVE_SECS_MAX: u64 = 5;

/// How long a master that refuses connections, with no replica to confirm it, is given to come back.
const REFUSED_SECS: i64 = 2;

/// How long a master that does not answer is given. Two observations at least.
const SILENT_SECS: i64 = 5;

/// Who is the master.
enum Leader<'a> {
    /// This one, seen.
    Seen(&'a PodView),
    /// This one, not seen, but it may well live.
    Trusted(&'a PodView, Option<String>),
    /// Nobody.
    Nobody,
}

/// What is to be done.
pub fn plan(input: &Input<'_>) -> Plan {
    let mut plan = Plan::idle(input);
    match leader(input) {
        Leader::Seen(master) => {
            follow::follow(input, master, &mut plan);
            change::plan(input, master, &mut plan);
        }
        Leader::Trusted(master, suspect) => {
            plan.fence(Some(&master.name));
            plan.master = Some(master.name.clone());
            plan.suspect = suspect;
            plan.problem(
                "MasterSilent",
                format!("{} does not answer; it is given time", master.name),
            );
        }
        Leader::Nobody => {
            plan.fence(None);
            plan.master.clone_from(&input.memory.master);
            election::plan(input, &mut plan);
            if plan.commands.is_empty() {
                plan.replace_unstartable(input);
            }
        }
    }
    plan
}

fn leader<'a>(input: &Input<'a>) -> Leader<'a> {
    if let Some(master) = election::rightful_master(input) {
        return Leader::Seen(master);
    }
    let remembered = input.memory.master.as_deref().and_then(|name| input.pod(name));
    match remembered {
        Some(master) if master.life == Life::Running => trust(input, master),
        _ => Leader::Nobody,
    }
}

/// Whether a master that was not seen as one may still be at work.
fn trust<'a>(input: &Input<'a>, master: &'a PodView) -> Leader<'a> {
    let silence = match &master.seen {
        Seen::Silent(silence) => *silence,
        // It answered, and is no master any more; or there was nothing to ask.
        Seen::Redis(_) | Seen::Nothing => return Leader::Nobody,
    };
    let subject = format!("master {}", master.name);
    let mut followers = input.pods.iter().filter(|pod| pod.follows(master)).peekable();
    let confirmed = silence == Silence::Refused && followers.peek().is_some();
    let alive = followers.any(|pod| {
        pod.linked()
            && pod
                .info()
                .and_then(|info| info.last_io_seconds)
                .is_some_and(|ago| ago <= ALIVE_SECS_MAX)
    });
    if alive || silence == Silence::Rejected {
        return Leader::Trusted(master, None);
    }
    let patience = if silence == Silence::Refused { REFUSED_SECS } else { SILENT_SECS };
    let waited = input.suspected_for(&subject).is_some_and(|seconds| seconds >= patience);
    if confirmed || waited { Leader::Nobody } else { Leader::Trusted(master, Some(subject)) }
}
