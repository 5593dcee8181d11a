//! Who leads: the decisions of one candidate for a Lease, after client-go's algorithm.
//!
//! A candidate tells what it saw and what it wrote, and is told what to do next. Every write names the version that
//! was seen, so of two candidates that decide the same, the server lets one through.
//!
//! **Invariant:** the times written in a Lease decide nothing: another machine's clock may be wrong by hours. What
//! counts is how long ago, on this machine's monotonic clock, the record was last seen to *change*.
//! **Invariant:** who leads stops writing [`HANDOVER`] before anybody may take over: its
//! deadline runs from before its renewal was sent, the other's wait from after it saw that renewal.
//! **Invariant:** a lost leadership is lost for good; the process ends and starts afresh.

use std::time::Duration;

use crate::chance;
use crate::moment::Moment;

/// How long others leave a record alone that does not change; client-go's and controller-runtime's figure.
pub const LEASE: Duration = Duration::from_secs(15);

/// How long after the start of its last successful renewal a leader may write.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Between a leader's last write and the first of the next leader: 15 s − 10 s, for writes that are under way.
pub const HANDOVER: Duration = Duration::from_secs(5);

/// How often a leader renews: four failed tries fit into 10 s.
pub const RETRY: Duration = Duration::from_secs(2);

/// How much longer than [`RETRY`] a candidate waits at most, in percent of it: client-go's jitter factor 1.2.
const JITTER_PERCENT: u64 = 120;

/// What a released Lease says of its duration, as client-go writes it.
pub const RELEASED: Duration = Duration::from_secs(1);

/// A Lease as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// `spec.holderIdentity`; empty: nobody.
    pub holder: String,
    /// `spec.leaseDurationSeconds`.
    pub duration: Duration,
    /// `spec.renewTime`, for people. Never read.
    pub renewed: String,
    /// `spec.leaseTransitions`.
    pub transitions: u32,
    /// `metadata.resourceVersion`: tells one record from the next, and guards the write that replaces it.
    pub version: String,
}

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look at the Lease.
    Look,
    /// Write it, in the candidate's name. Tell [`Election::wrote`] or, on a conflict, look again.
    Claim(Claim),
    /// Somebody else has it; nothing to do before this moment unless the record changes.
    WaitUntil(Moment),
    /// Leading no longer.
    Lost,
}

/// A write of the Lease in the candidate's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The version to replace; None: create the Lease, and lose if it exists.
    pub replaces: Option<String>,
    /// `spec.leaseTransitions` to write.
    pub transitions: u32,
    /// Whether the leadership begins with it.
    pub first: bool,
}

#[derive(Debug)]
enum Seen {
    Nothing,
    /// There is no Lease; since when, and whether there was one before.
    Absent(Moment, bool),
    Record(Record, Moment),
}

/// One candidate.
#[derive(Debug)]
pub struct Election {
    identity: String,
    seed: u64,
    waits: u64,
    seen: Seen,
    /// It has tried to write: a record in its name may be its own, even if the answer was lost.
    tried: bool,
    /// The start of its last successful write. Set once it leads.
    renewed: Option<Moment>,
    lost: bool,
}

impl Election {
    /// A candidate. `identity` must be new for each process, a pod's name with something random behind it: with the
    /// name alone, a restarted container could not be told from the one before it.
    pub fn new(identity: impl Into<String>, seed: u64) -> Self {
        Self {
            identity: identity.into(),
            seed,
            waits: 0,
            seen: Seen::Nothing,
            tried: false,
            renewed: None,
            lost: false,
        }
    }

    /// The candidate's name.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// What a look at the Lease has shown (None: there is none), and when the answer was there.
    pub fn saw(&mut self, record: Option<Record>, at: Moment) {
        self.seen = match (record, std::mem::replace(&mut self.seen, Seen::Nothing)) {
            (None, Seen::Absent(since, before)) => Seen::Absent(since, before),
            (None, Seen::Record(..)) => Seen::Absent(at, true),
            (None, Seen::Nothing) => Seen::Absent(at, false),
            (Some(new), Seen::Record(old, since)) if new.version == old.version => {
                Seen::Record(new, since)
            }
            (Some(new), Seen::Record(..) | Seen::Absent(..) | Seen::Nothing) => {
                Seen::Record(new, at)
            }
        };
        let taken = self.record().is_some_and(|record| !self.is_own(record));
        self.lost |= self.renewed.is_some() && taken;
    }

    /// A claim is about to be sent.
    pub fn tries(&mut self) {
        self.tried = true;
    }

    /// A claim was accepted: what the Lease is now, when the write began, and when its answer was there.
    pub fn wrote(&mut self, record: Record, began: Moment, at: Moment) {
        self.saw(Some(record), at);
        self.renewed = Some(began);
    }

    /// What to do now.
    pub fn step(&self, now: Moment) -> Step {
        if self.lost || self.writes_until().is_some_and(|until| now >= until) {
            return Step::Lost;
        }
        let claim =
            |replaces, transitions, first| Step::Claim(Claim { replaces, transitions, first });
        match &self.seen {
            Seen::Nothing => Step::Look,
            // Whoever held what was deleted may not know it yet.
            Seen::Absent(since, true) if self.renewed.is_none() && now < *since + LEASE => {
                Step::WaitUntil(*since + LEASE)
            }
            Seen::Absent(..) => claim(None, 0, true),
            Seen::Record(record, _) if self.is_own(record) => {
                claim(Some(record.version.clone()), record.transitions, self.renewed.is_none())
            }
            Seen::Record(record, since) => {
                let free_from = *since + record.duration.max(LEASE);
                if !record.holder.is_empty() && now < free_from {
                    return Step::WaitUntil(free_from);
                }
                claim(Some(record.version.clone()), record.transitions.saturating_add(1), true)
            }
        }
    }

    /// Until when a leader may write; None: it does not lead.
    pub fn writes_until(&self) -> Option<Moment> {
        self.renewed.filter(|_| !self.lost).map(|began| began + RENEW_DEADLINE)
    }

    /// Who leads as far as is known: not this candidate, unless it is known to.
    pub fn holder(&self) -> Option<&str> {
        self.record().map(|record| record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// The version to replace in order to let go of the Lease, and its transitions. None: it is not this candidate's.
    pub fn release(&self) -> Option<(String, u32)> {
        let record = self.record().filter(|record| self.is_own(record))?;
        Some((record.version.clone(), record.transitions))
    }

    /// When to try or look again: a leader regularly, a candidate a little later each time, by chance from its seed.
    pub fn next_try(&mut self, now: Moment) -> Moment {
        if self.renewed.is_some() {
            return now + RETRY;
        }
        self.waits = self.waits.wrapping_add(1);
        let percent = 100 + chance::below((self.seed, self.waits), JITTER_PERCENT + 1);
        now + RETRY.saturating_mul(u32::try_from(percent).unwrap_or(100)) / 100
    }

    fn record(&self) -> Option<&Record> {
        match &self.seen {
            Seen::Record(record, _) => Some(record),
            Seen::Nothing | Seen::Absent(..) => None,
        }
    }

    fn is_own(&self, record: &Record) -> bool {
        self.tried && record.holder == self.identity
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
