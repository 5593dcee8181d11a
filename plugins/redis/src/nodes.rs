//! `CLUSTER NODES` of one Redis, parsed: one node's opinion of the cluster (redis.io/commands/cluster-nodes; 7.0.15).
//!
//! `id ip:port@bus[,hostname] flags master ping pong epoch link slots…`; markers of open slots are shown only in the
//! `myself` row. A node's own row never shows its own failure.
//!
//! **Invariant:** a table that cannot be read whole is no observation at all.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::ordered;

/// Slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// A set of slots.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet(Vec<u64>);

/// 16,384 slots ÷ 64 bits.
const WORDS: usize = 256;

impl Default for SlotSet {
    fn default() -> Self {
        Self(vec![0; WORDS])
    }
}

impl std::fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.ranges()).finish()
    }
}

impl SlotSet {
    /// The slots from `first` to `last`, both included.
    pub fn range(first: u16, last: u16) -> Self {
        let mut set = Self::default();
        (first..=last.min(SLOTS - 1)).for_each(|slot| set.insert(slot));
        set
    }

    /// Adds one slot; what is no slot is left out.
    pub fn insert(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot / 64)) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(word, less)| word & !less).collect())
    }

    /// Whether `slot` is in it.
    pub fn contains(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot / 64)).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// How many slots.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The lowest slot.
    pub fn first(&self) -> Option<u16> {
        (0..SLOTS).find(|slot| self.contains(*slot))
    }

    /// As ranges, both ends included, ascending.
    pub fn ranges(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for slot in (0..SLOTS).filter(|slot| self.contains(*slot)) {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(slot) => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "these are the flags of the protocol")]
pub struct Row {
    /// 40 hexadecimal digits.
    pub id: String,
    /// Empty when unknown.
    pub ip: String,
    /// It is the node that answered.
    pub myself: bool,
    /// Master, not replica.
    pub master: bool,
    /// The answering node cannot reach it.
    pub suspected: bool,
    /// A majority agreed that it failed.
    pub failed: bool,
    /// Its identity is not confirmed yet; the id is temporary.
    pub handshake: bool,
    /// Its address is not known any more.
    pub no_address: bool,
    /// Whose replica it is.
    pub master_id: Option<String>,
    /// Its configuration epoch.
    pub epoch: u64,
    /// The link from the answering node to it works.
    pub connected: bool,
    /// What it owns.
    pub slots: SlotSet,
}

/// A whole table, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The id of the node that answered.
    pub myself: String,
    /// Every row, the one of the answering node included.
    pub rows: BTreeMap<String, Row>,
}

impl Table {
    /// None when it is no complete table.
    pub fn parse(text: &str) -> Option<Self> {
        let rows: Option<Vec<Row>> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(row).collect();
        let rows = rows?;
        let myself = rows.iter().find(|row| row.myself)?.id.clone();
        Some(Self { myself, rows: ordered::map(rows.into_iter().map(|row| (row.id.clone(), row))) })
    }

    /// The row of the node that answered.
    pub fn own(&self) -> Option<&Row> {
        self.rows.get(&self.myself)
    }

    /// Rows of nodes whose identity is confirmed.
    pub fn confirmed(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().filter(|row| !row.handshake)
    }

    /// Whether the answering node knows this id for certain.
    pub fn knows(&self, id: &str) -> bool {
        self.rows.get(id).is_some_and(|row| !row.handshake)
    }
}

fn row(line: &str) -> Option<Row> {
    let mut fields = line.split_ascii_whitespace();
    let id = fields.next()?.to_owned();
    let address = fields.next()?;
    let flags: Vec<&str> = fields.next()?.split(',').collect();
    let master_id = fields.next()?;
    let (_ping, _pong) = (fields.next()?, fields.next()?);
    let epoch = fields.next()?.parse().ok()?;
    let connected = fields.next()? == "connected";
    let mut slots = SlotSet::default();
    // Markers of open slots, `[77->-id]`, are no ownership.
    for range in fields.filter(|field| !field.starts_with('[')) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        slots.extend(&SlotSet::range(first.parse().ok()?, last.parse().ok()?));
    }
    let has = |flag: &str| flags.contains(&flag);
    let host = address.split(['@', ',']).next()?;
    let ip = host.rsplit_once(':')?.0.to_owned();
    Some(Row {
        id,
        ip,
        myself: has("myself"),
        master: has("master"),
        suspected: has("fail?"),
        failed: has("fail"),
        handshake: has("handshake"),
        no_address: has("noaddr"),
        master_id: (master_id != "-").then(|| master_id.to_owned()),
        epoch,
        connected,
        slots,
    })
}

/// The slots of shard `index` of `shards`, first to last: every slot has exactly one shard, remainders included.
pub fn share(index: u32, shards: u32) -> (u16, u16) {
    let bound = |index: u32| u64::from(SLOTS) * u64::from(index) / u64::from(shards.max(1));
    let (first, end) = (bound(index), bound(index.saturating_add(1)));
    let narrow = |slot: u64| u16::try_from(slot).unwrap_or(SLOTS);
    (narrow(first), narrow(end).saturating_sub(1))
}

/// Ranges for people: `0-5460,5462`.
pub fn describe(slots: &SlotSet) -> String {
    let mut text = String::new();
    for (first, last) in slots.ranges() {
        let separator = if text.is_empty() { "" } else { "," };
        // Writing to a String does not fail.
        let _ = if first == last {
            write!(text, "{separator}{first}")
        } else {
            write!(text, "{separator}{first}-{last}")
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMED: &str = "\
07c37dfeb235213a872192d90877d0cd55635b91 127.0.1.4:6379@16379 slave e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 0 1426238317239 4 connected
67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 127.0.1.2:6379@16379,host-2 master - 0 1426238316232 2 connected 5461-10922
292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f :0@0 master,fail,noaddr - 0 1426238318243 3 disconnected 10923-16383
e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 127.0.1.1:6379@16379 myself,master - 0 0 1 connected 0-5459 5460 [77->-67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1]
";

    #[test]
    fn reads_a_formed_cluster() {
        let table = Table::parse(FORMED).unwrap();
        let own = table.own().unwrap();
        assert_eq!(
            (own.ip.as_str(), own.master, own.epoch, describe(&own.slots)),
            ("127.0.1.1", true, 1, "0-5460".into())
        );
        let lost = &table.rows["292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f"];
        assert!(
            lost.failed
                && lost.no_address
                && lost.ip.is_empty()
                && !lost.suspected
                && !lost.connected
        );
        assert_eq!(lost.slots.len(), 5461);
        let replica = &table.rows["07c37dfeb235213a872192d90877d0cd55635b91"];
        assert_eq!(replica.master_id.as_deref(), Some("e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca"));
    }

    #[test]
    fn a_cut_or_foreign_table_is_no_observation() {
        assert_eq!(Table::parse(""), None);
        assert_eq!(Table::parse("ERR This instance has cluster support disabled"), None);
        assert_eq!(
            Table::parse(FORMED.lines().next().unwrap()),
            None,
            "no row is the answering node's"
        );
        assert_eq!(Table::parse(&FORMED[..FORMED.len() / 2]), None);
    }

    #[test]
    fn reads_addresses_of_both_families() {
        let table = Table::parse("a ::1:6379@16379 myself,master - 0 0 0 connected\nb 10.0.0.1:6379@16379 handshake - 0 0 0 disconnected").unwrap();
        assert_eq!(table.rows["a"].ip, "::1");
        assert!(table.confirmed().count() == 1 && !table.knows("b"));
    }

    #[test]
    fn every_slot_has_exactly_one_shard() {
        for shards in 1..=250 {
            let mut next = 0;
            for index in 0..shards {
                let (first, last) = share(index, shards);
                assert_eq!(first, next);
                next = last + 1;
            }
            assert_eq!(next, SLOTS);
        }
    }
}
