//! You are woken by what you read: each parent's queries of its last run, indexed so that a change finds its
//! readers without a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ident::{Kind, ObjectKey};
use crate::object::StoredObject;
use crate::queue::ParentKey;
use crate::selector::Selector;

/// One query, resolved: the namespace is filled in and the selector parsed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interest {
    /// Of which kind.
    pub kind: Kind,
    /// None: all namespaces.
    pub namespace: Option<String>,
    /// None: any name.
    pub name: Option<String>,
    /// The empty selector: any labels.
    pub selector: Selector,
}

impl fmt::Display for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if !self.selector.is_empty() {
            write!(f, " with {}", self.selector)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => f.write_str(" in all namespaces"),
        }
    }
}

impl Interest {
    fn matches(&self, object: &StoredObject) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| *namespace == *object.key.namespace)
            && self.name.as_deref().is_none_or(|name| *name == *object.key.name)
            && self.selector.matches(&object.labels)
    }

    /// The one bucket this interest is filed under: the narrowest that all its objects share.
    fn bucket(&self) -> Bucket {
        if let Some(name) = &self.name {
            return Bucket::Name(name.clone());
        }
        match self.selector.equality() {
            Some((key, value)) => Bucket::Label(key.to_owned(), value.to_owned()),
            None => Bucket::Any,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bucket {
    Name(String),
    Label(String, String),
    Any,
}

/// The interests of all parents.
#[derive(Debug, Default)]
pub struct Interests {
    by_parent: BTreeMap<ParentKey, BTreeSet<Interest>>,
    index: BTreeMap<Kind, BTreeMap<Bucket, BTreeSet<(ParentKey, Interest)>>>,
}

impl Interests {
    /// Replaces what a parent is interested in.
    pub fn set(&mut self, parent: &ParentKey, interests: BTreeSet<Interest>) {
        if self.by_parent.get(parent) == Some(&interests) {
            return;
        }
        self.forget(parent);
        for interest in &interests {
            self.index
                .entry(interest.kind.clone())
                .or_default()
                .entry(interest.bucket())
                .or_default()
                .insert((parent.clone(), interest.clone()));
        }
        if !interests.is_empty() {
            self.by_parent.insert(parent.clone(), interests);
        }
    }

    /// What a parent is interested in.
    pub fn of(&self, parent: &ParentKey) -> impl Iterator<Item = &Interest> {
        self.by_parent.get(parent).into_iter().flatten()
    }

    /// Forgets a parent that is gone.
    pub fn forget(&mut self, parent: &ParentKey) {
        for interest in self.by_parent.remove(parent).unwrap_or_default() {
            let Some(buckets) = self.index.get_mut(&interest.kind) else {
                continue;
            };
            let bucket = interest.bucket();
            if let Some(readers) = buckets.get_mut(&bucket) {
                readers.remove(&(parent.clone(), interest));
                if readers.is_empty() {
                    buckets.remove(&bucket);
                }
            }
        }
    }

    /// Every parent that has read something this change touches; `old` and `new` are the two sides of the change.
    pub fn woken_by(
        &self,
        kind: &Kind,
        old: Option<&StoredObject>,
        new: Option<&StoredObject>,
    ) -> BTreeSet<ParentKey> {
        let mut woken = BTreeSet::new();
        let Some(buckets) = self.index.get(kind) else {
            return woken;
        };
        for object in old.into_iter().chain(new) {
            for bucket in buckets_of(&object.key, object) {
                let readers = buckets.get(&bucket).into_iter().flatten();
                woken.extend(
                    readers
                        .filter(|(_, interest)| interest.matches(object))
                        .map(|(parent, _)| parent.clone()),
                );
            }
        }
        woken
    }
}

fn buckets_of<'a>(
    key: &'a ObjectKey,
    object: &'a StoredObject,
) -> impl Iterator<Item = Bucket> + 'a {
    let labels = object.labels.iter();
    [Bucket::Name(key.name.to_string()), Bucket::Any]
        .into_iter()
        .chain(labels.map(|(key, value)| Bucket::Label(key.to_string(), value.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, labels: &str) -> StoredObject {
        let raw =
            format!(r#"{{"metadata":{{"namespace":"n","name":"{name}","labels":{{{labels}}}}}}}"#);
        StoredObject::parse(&Kind::new("v1", "Pod"), &raw).unwrap()
    }

    fn interest(name: Option<&str>, selector: &str) -> Interest {
        Interest {
            kind: Kind::new("v1", "Pod"),
            namespace: Some("n".into()),
            name: name.map(str::to_owned),
            selector: Selector::parse(selector).unwrap(),
        }
    }

    fn parent(name: &str) -> ParentKey {
        ParentKey { lane: 0, key: ObjectKey::new("n", name) }
    }

    fn woken(
        interests: &Interests,
        old: Option<&StoredObject>,
        new: Option<&StoredObject>,
    ) -> Vec<String> {
        let woken = interests.woken_by(&Kind::new("v1", "Pod"), old, new);
        woken.into_iter().map(|parent| parent.key.name.to_string()).collect()
    }

    #[test]
    fn wakes_who_has_read_by_label_by_name_and_by_kind() {
        let mut interests = Interests::default();
        interests.set(&parent("label"), BTreeSet::from([interest(None, "app=redis,!canary")]));
        interests.set(&parent("name"), BTreeSet::from([interest(Some("a"), "")]));
        interests.set(&parent("kind"), BTreeSet::from([interest(None, "")]));
        interests.set(&parent("other"), BTreeSet::from([interest(None, "app=other")]));
        let pod_a = pod("a", r#""app":"redis""#);
        assert_eq!(woken(&interests, None, Some(&pod_a)), ["kind", "label", "name"]);
        assert_eq!(
            woken(&interests, None, Some(&pod("b", r#""app":"redis","canary":"1""#))),
            ["kind"]
        );
    }

    #[test]
    fn wakes_when_an_object_stops_matching() {
        let mut interests = Interests::default();
        interests.set(&parent("label"), BTreeSet::from([interest(None, "app=redis")]));
        let (old, new) = (pod("a", r#""app":"redis""#), pod("a", ""));
        assert_eq!(woken(&interests, Some(&old), Some(&new)), ["label"]);
        assert_eq!(woken(&interests, Some(&old), None), ["label"]);
    }

    #[test]
    fn forgets_without_a_trace() {
        let mut interests = Interests::default();
        interests.set(&parent("a"), BTreeSet::from([interest(None, "app=redis")]));
        interests.set(&parent("a"), BTreeSet::from([interest(Some("x"), "")]));
        assert!(woken(&interests, None, Some(&pod("y", r#""app":"redis""#))).is_empty());
        interests.forget(&parent("a"));
        assert!(interests.by_parent.is_empty());
        assert!(interests.index.values().all(BTreeMap::is_empty));
    }
}
