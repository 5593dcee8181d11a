//! Command groups: the unit in which Redis commands are granted to a plugin.
//!
//! **Invariant:** what is in no other group is in [`Group::Data`], which is never granted by default.

use std::collections::BTreeSet;
use std::fmt;

/// A group of commands with a common purpose and a common risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Looks and changes nothing.
    Observe,
    /// Changes who replicates whom, who owns which slots, who is a member.
    Topology,
    /// Changes settings and users.
    Config,
    /// Writes the data set to disk.
    Persistence,
    /// Moves keys between nodes, names of keys included.
    Migration,
    /// Can lose data or a server.
    Destructive,
    /// Everything else: reads and writes of keys, scripts, modules, debugging.
    Data,
}

impl Group {
    /// All groups, from harmless to dangerous.
    pub const ALL: [Self; 7] = [
        Self::Observe,
        Self::Topology,
        Self::Config,
        Self::Persistence,
        Self::Migration,
        Self::Destructive,
        Self::Data,
    ];

    /// What an empty list of groups grants.
    pub const DEFAULT: [Self; 4] = [Self::Observe, Self::Topology, Self::Config, Self::Persistence];

    /// As a person writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Topology => "topology",
            Self::Config => "config",
            Self::Persistence => "persistence",
            Self::Migration => "migration",
            Self::Destructive => "destructive",
            Self::Data => "data",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The groups a plugin was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups(BTreeSet<Group>);

impl Groups {
    /// Whether a group was granted.
    pub fn contains(&self, group: Group) -> bool {
        self.0.contains(&group)
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self(Group::DEFAULT.into())
    }
}

/// A grant names a group that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no group of redis commands; there are {}", Group::ALL.map(Group::as_str).join(", "))]
pub struct UnknownGroup {
    /// As written in the grant.
    pub name: String,
}

/// The groups of a grant: exactly those named, or [`Group::DEFAULT`] when none is.
pub fn groups_from(names: &[String]) -> Result<Groups, UnknownGroup> {
    if names.is_empty() {
        return Ok(Groups::default());
    }
    let find = |name: &String| {
        let found = Group::ALL.into_iter().find(|group| group.as_str() == name);
        found.ok_or_else(|| UnknownGroup { name: name.clone() })
    };
    names.iter().map(find).collect::<Result<_, _>>().map(Groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_grant_is_the_safe_default() {
        let groups = groups_from(&[]).unwrap();
        let granted = Group::ALL.map(|group| groups.contains(group));
        assert_eq!(granted, [true, true, true, true, false, false, false]);
    }

    #[test]
    fn a_grant_that_names_groups_grants_no_other() {
        let groups = groups_from(&["migration".into(), "observe".into()]).unwrap();
        let granted: Vec<_> =
            Group::ALL.into_iter().filter(|group| groups.contains(*group)).collect();
        assert_eq!(granted, [Group::Observe, Group::Migration]);
    }

    #[test]
    fn an_unknown_group_is_named_beside_the_known_ones() {
        let error = groups_from(&["observe".into(), "Data".into()]).unwrap_err().to_string();
        assert!(error.contains("\"Data\""), "{error}");
        for group in Group::ALL {
            assert!(error.contains(group.as_str()), "{error}");
        }
    }
}
