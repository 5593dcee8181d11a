//! One truth out of many tables. Each table is one node's opinion (facts 3.4, corpus B18, B28).
//!
//! **Invariant:** which slots a live node owns is read from its own row, and the higher epoch wins, as in Redis.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::current::{Life, PodView, Seen, Silence};
use crate::nodes::{Row, SlotSet, Table};
use crate::ordered;
use crate::plan::Input;

/// What has become of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate<'a> {
    /// It is a member that answers.
    Alive(&'a PodView),
    /// Its pod runs, but nothing listens there.
    Refused,
    /// It may well live.
    Unknown,
    /// Its process has ended; with a volume it may return with its data.
    Stopped,
    /// Its pod has another identity now, or does not exist and had no volume: it will not return.
    Lost,
}

/// One shard: who owns its slots, and who copies them.
#[derive(Clone, Debug)]
pub(super) struct Shard<'a> {
    /// The owner's id.
    pub(super) master: String,
    /// What has become of the owner.
    pub(super) fate: Fate<'a>,
    /// What it owns.
    pub(super) slots: SlotSet,
    /// Members that are its replicas.
    pub(super) replicas: Vec<&'a PodView>,
}

/// The cluster as far as it can be known.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// Members by id, each with its own table.
    pub(super) members: BTreeMap<&'a str, (&'a PodView, &'a Table)>,
    /// Pods that answer but are not among the members.
    pub(super) outsiders: Vec<(&'a PodView, &'a Table)>,
    /// By lowest slot.
    pub(super) shards: Vec<Shard<'a>>,
    /// Every slot that has an owner.
    pub(super) assigned: SlotSet,
}

impl<'a> View<'a> {
    /// Reads all tables.
    pub(super) fn of(input: &Input<'a>) -> Self {
        let tables: Vec<(&PodView, &Table)> =
            input.pods.iter().filter_map(|pod| Some((pod, pod.redis()?.table.as_ref()?))).collect();
        let main = main_group(&tables);
        let (inside, outsiders): (Vec<_>, Vec<_>) =
            tables.into_iter().partition(|(_, table)| main.contains(table.myself.as_str()));
        let members = ordered::map(
            inside.into_iter().map(|(pod, table)| (table.myself.as_str(), (pod, table))),
        );
        let mut view =
            Self { members, outsiders, shards: Vec::new(), assigned: SlotSet::default() };
        for (id, slots) in view.claims() {
            view.assigned.extend(&slots);
            let shard = view.shard(input, id, slots);
            view.shards.push(shard);
        }
        view.shards.sort_unstable_by_key(|shard| shard.slots.first());
        view
    }

    /// Who owns what: live nodes by their own rows, higher epochs first; what is left belongs to those that do not answer.
    fn claims(&self) -> Vec<(String, SlotSet)> {
        let mut live: Vec<&Row> = self
            .members
            .values()
            .filter_map(|(_, table)| table.own())
            .filter(|row| row.master && !row.slots.is_empty())
            .collect();
        live.sort_unstable_by_key(|row| (Reverse(row.epoch), row.id.clone()));
        let mut silent: BTreeMap<&str, SlotSet> = BTreeMap::new();
        let rows = self.members.values().flat_map(|(_, table)| table.confirmed());
        for row in rows.filter(|row| row.master && !self.members.contains_key(row.id.as_str())) {
            silent.entry(&row.id).or_default().extend(&row.slots);
        }
        let live = live.into_iter().map(|row| (row.id.as_str(), row.slots.clone()));
        let mut taken = SlotSet::default();
        let mut claims = Vec::new();
        for (id, slots) in live.chain(silent) {
            let slots = slots.without(&taken);
            taken.extend(&slots);
            if !slots.is_empty() {
                claims.push((id.to_owned(), slots));
            }
        }
        claims
    }

    fn shard(&self, input: &Input<'a>, master: String, slots: SlotSet) -> Shard<'a> {
        let replicas = self
            .members
            .values()
            .filter(|(_, table)| {
                table
                    .own()
                    .is_some_and(|own| !own.master && own.master_id.as_ref() == Some(&master))
            })
            .map(|(pod, _)| *pod)
            .collect();
        let fate = self.fate(input, &master);
        Shard { master, fate, slots, replicas }
    }

    fn fate(&self, input: &Input<'a>, id: &str) -> Fate<'a> {
        if let Some((pod, _)) = self.members.get(id) {
            return Fate::Alive(pod);
        }
        let remembered = input.memory.node_ids.iter().find(|(_, known)| *known == id);
        let at_address = || {
            let ips = self
                .members
                .values()
                .filter_map(|(_, table)| table.rows.get(id))
                .map(|row| row.ip.as_str())
                .filter(|ip| !ip.is_empty());
            let ips: BTreeSet<&str> = ordered::set(ips);
            input.pods.iter().find(|pod| ips.contains(pod.ip.as_str()))
        };
        let pod = match remembered {
            Some((name, _)) => input.pod(name),
            None => at_address(),
        };
        match pod {
            None if input.persistent && !input.complete() => Fate::Stopped,
            None => Fate::Lost,
            Some(pod) => match &pod.seen {
                _ if pod.life == Life::Running && pod.loading() => Fate::Unknown,
                Seen::Redis(_) if Self::id(pod).is_some_and(|now| now != id) => Fate::Lost,
                Seen::Silent(Silence::Refused) => Fate::Refused,
                Seen::Redis(_) | Seen::Silent(_) => Fate::Unknown,
                Seen::Nothing => Fate::Stopped,
            },
        }
    }

    /// The node id a pod says it has.
    pub(super) fn id(pod: &PodView) -> Option<&str> {
        Some(pod.redis()?.table.as_ref()?.myself.as_str())
    }

    /// A member's own row.
    pub(super) fn member(&self, pod: &PodView) -> Option<&'a Row> {
        self.members.get(Self::id(pod)?).and_then(|(_, table)| table.own())
    }

    /// Masters that own slots.
    pub(super) fn owners(&self) -> u32 {
        u32::try_from(self.shards.len()).unwrap_or(u32::MAX)
    }

    /// Whether this node owns slots.
    pub(super) fn owns_slots(&self, id: &str) -> bool {
        self.shards.iter().any(|shard| shard.master == id)
    }

    /// Whether any member knows this id for certain.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.members.values().any(|(_, table)| table.knows(id))
    }

    /// A member to speak for the cluster: the first that owns slots, else the first.
    pub(super) fn speaker(&self) -> Option<&'a PodView> {
        self.members
            .iter()
            .min_by_key(|(id, (pod, _))| (!self.owns_slots(id), pod.ordinal))
            .map(|(_, (pod, _))| *pod)
    }

    /// Whether most of the other members cannot reach this one. Its own opinion does not count.
    pub(super) fn is_isolated(&self, id: &str) -> bool {
        let opinions: Vec<bool> = self
            .members
            .iter()
            .filter(|(other, _)| **other != id)
            .filter_map(|(_, (_, table))| table.rows.get(id))
            .map(|row| row.failed || row.suspected)
            .collect();
        let against = opinions.iter().filter(|lost| **lost).count();
        against * 2 > opinions.len()
    }

    /// Whether a pod holds nothing, owns nothing, and knows nobody but members: it can be introduced without harm.
    /// One in the middle of an introduction knows some of them already.
    pub(super) fn is_fresh(&self, pod: &PodView, table: &Table) -> bool {
        let owns_nothing = table.own().is_some_and(|own| own.master && own.slots.is_empty());
        let knows_only_ours =
            table.confirmed().all(|row| row.myself || self.members.contains_key(row.id.as_str()));
        owns_nothing && knows_only_ours && pod.info().is_some_and(|info| info.keys == 0)
    }

    /// What a pod outside of the cluster is.
    pub(super) fn outsider_state(&self, pod: &PodView) -> &'static str {
        let table = self
            .outsiders
            .iter()
            .find(|(other, _)| other.name == pod.name)
            .map(|(_, table)| *table);
        match table {
            Some(table) if self.knows(&table.myself) => "Moved",
            Some(table) if self.is_fresh(pod, table) => "Fresh",
            _ => "Foreign",
        }
    }
}

/// The ids of the largest group of nodes that know each other: by slots, then by size, then by ordinal.
fn main_group<'a>(tables: &[(&'a PodView, &'a Table)]) -> BTreeSet<&'a str> {
    let mut left: Vec<(&PodView, &Table)> = tables.to_vec();
    let mut groups = Vec::new();
    while let Some(first) = left.pop() {
        let mut group = vec![first];
        let mut next = 0;
        while let Some((_, table)) = group.get(next).copied() {
            let (mutual, rest): (Vec<_>, Vec<_>) = left
                .into_iter()
                .partition(|(_, other)| other.knows(&table.myself) && table.knows(&other.myself));
            group.extend(mutual);
            left = rest;
            next += 1;
        }
        groups.push(group);
    }
    let weight = |group: &Vec<(&PodView, &Table)>| {
        let mut slots = SlotSet::default();
        group.iter().filter_map(|(_, table)| table.own()).for_each(|own| slots.extend(&own.slots));
        let lowest = group.iter().map(|(pod, _)| pod.ordinal).min();
        (slots.len(), group.len(), Reverse(lowest))
    };
    let main = groups.into_iter().max_by_key(weight).unwrap_or_default();
    ordered::set(main.into_iter().map(|(_, table)| table.myself.as_str()))
}
