//! The questions that a synchronised store answers.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use host_core::ident::ObjectKey;
use host_core::object::StoredObject;
use host_core::selector::Selector;

use super::contents::{Contents, Facet};

/// Reads a synchronised store. Each read is consistent in itself.
#[derive(Clone, Copy)]
pub struct View<'a>(pub(super) &'a RwLock<Contents>);

impl View<'_> {
    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        self.read().get(key).map(Arc::clone)
    }

    /// The objects whose controller has this uid.
    pub fn by_owner(&self, uid: &str) -> Vec<Arc<StoredObject>> {
        let contents = self.read();
        let found = contents.with(Facet::ParentUid(uid), "");
        found
            .filter(|object| object.controller().is_some_and(|owner| &*owner.uid == uid))
            .map(Arc::clone)
            .collect()
    }

    /// The objects that the host has applied for the parent with this uid.
    pub fn by_applied(&self, parent_uid: &str) -> Vec<Arc<StoredObject>> {
        let contents = self.read();
        let found = contents.with(Facet::ParentUid(parent_uid), "");
        found
            .filter(|object| object.applied.as_ref().is_some_and(|m| &*m.parent_uid == parent_uid))
            .map(Arc::clone)
            .collect()
    }

    /// The objects that fit. None: any. A selector with an equality is answered from the index.
    pub fn select(
        &self,
        namespace: Option<&str>,
        name: Option<&str>,
        selector: Option<&Selector>,
    ) -> Vec<Arc<StoredObject>> {
        let contents = self.read();
        let fits = |object: &&Arc<StoredObject>| {
            name.is_none_or(|name| &*object.key.name == name)
                && selector.is_none_or(|selector| selector.matches(&object.labels))
        };
        let here = |object: &&Arc<StoredObject>| {
            namespace.is_none_or(|namespace| &*object.key.namespace == namespace)
        };
        if let (Some(namespace), Some(name)) = (namespace, name) {
            let found = contents.get(&ObjectKey::new(namespace, name));
            return found.filter(fits).map(Arc::clone).into_iter().collect();
        }
        let first = namespace.unwrap_or_default();
        if let Some((key, value)) = selector.and_then(Selector::equality) {
            let found = contents.with(Facet::Label(key, value), first);
            return found.take_while(here).filter(fits).map(Arc::clone).collect();
        }
        let first = ObjectKey::new(first, "");
        contents.from(&first).take_while(here).filter(fits).map(Arc::clone).collect()
    }
}
