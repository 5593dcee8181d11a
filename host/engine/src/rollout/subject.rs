//! The plugin that a rollout is about: its name, what the cache knows of it, and how it is spoken of.

use std::sync::Arc;

use host_core::decision::{Event, EventKind};
use host_core::ident::ObjectKey;
use host_core::limits::{EVENT_NOTE_BYTES_MAX, cut};
use host_core::object::StoredObject;
use host_core::plugin;
use host_core::text;
use host_kube::{Client, Regarding, Subscription};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::kinds;
use crate::voice::Voice;

/// What a rollout is about. Cheap to clone.
#[derive(Clone)]
pub(super) struct Subject {
    /// The plugin's name.
    pub(super) name: Arc<str>,
    /// The host's own namespace.
    pub(super) namespace: Arc<str>,
    /// Says that something may be new.
    pub(super) wake: Arc<Notify>,
    pub(super) config_maps: Arc<Subscription>,
    pub(super) plugins: Arc<Subscription>,
    pub(super) cluster: Client,
    pub(super) voice: Voice,
    pub(super) clock: Clock,
}

impl Subject {
    /// The key of its `Plugin`.
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(&*self.namespace, &*self.name)
    }

    /// Its `Plugin`, as the cache has it.
    pub(super) fn current(&self) -> Option<Arc<StoredObject>> {
        Self::cached(&self.plugins, &self.key())
    }

    /// A ConfigMap of the host's namespace, as far as the cache has it.
    pub(super) fn config_map(&self, name: &str) -> Option<Arc<StoredObject>> {
        Self::cached(&self.config_maps, &ObjectKey::new(&*self.namespace, name))
    }

    fn cached(subscription: &Subscription, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        subscription.store().view().ok()?.get(key)
    }

    /// An event on the `Plugin`, or on its ConfigMap while there is none: where `kubectl describe` shows it. Each is given
    /// as it was last seen, for when the cache cannot be read. False: there is neither to tell it of.
    pub(super) fn event(
        &self,
        plugin: Option<&Arc<StoredObject>>,
        config_map: Option<&Arc<StoredObject>>,
        kind: EventKind,
        reason: &str,
        note: &str,
    ) -> bool {
        let plugin = self.current().or_else(|| plugin.cloned());
        let plugin = plugin.map(|object| (plugin::kind(), object));
        let source = || Some((kinds::config_map(), Arc::clone(config_map?)));
        let Some((of, object)) = plugin.or_else(source) else { return false };
        let regarding = Regarding { kind: of, key: object.key.clone(), uid: object.uid.clone() };
        let event = Event {
            kind,
            reason: reason.to_owned(),
            action: "Rollout".to_owned(),
            note: cut(note, EVENT_NOTE_BYTES_MAX),
        };
        self.voice.record(text::MANAGED_BY, regarding, event);
        true
    }
}
