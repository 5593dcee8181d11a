//! What a plugin's rollout looks at, and how it notices that something is new.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use host_core::ident::ObjectKey;
use host_core::object::StoredObject;
use host_core::plugin::{PluginSpec, Revision};
use host_core::selector::Selector;
use host_core::text;
use host_kube::Subscription;
use tokio::sync::Notify;

use super::load::LoadError;
use super::publish::LastWritten;
use super::pull::Pulls;
use super::revisions;
use super::source::{Fingerprint, PluginObject, Source, Wanted};
use crate::plugins::LoadedPlugin;
use crate::run::Host;

/// A revision that is wanted, or why there is none.
type Wish = Result<Arc<Source>, Arc<LoadError>>;

/// What a rollout looks at.
#[derive(Clone)]
pub(super) struct Eye {
    pub(super) host: Arc<Host>,
    /// The plugin's name.
    pub(super) name: Arc<str>,
    /// Says that something may be new.
    pub(super) wake: Arc<Notify>,
    /// How often a revision of it was taken back.
    pub(super) setbacks: Arc<AtomicU64>,
    pub(super) config_maps: Arc<Subscription>,
    pub(super) plugins: Arc<Subscription>,
    pub(super) written: LastWritten,
    pub(super) pulls: Pulls,
}

impl Eye {
    /// The key of its `Plugin`.
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.host.rollout.inbox.namespace.as_str(), &*self.name)
    }

    /// Its `Plugin`, as the cache has it.
    pub(super) fn current(&self) -> Option<Arc<StoredObject>> {
        Self::cached(&self.plugins, &self.key())
    }

    fn cached(subscription: &Subscription, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        subscription.store().view().ok()?.get(key)
    }

    /// The revision that acts.
    pub(super) fn active(&self) -> Option<Arc<LoadedPlugin>> {
        self.host.plugins.active(self.host.rollout.lane(&self.name))
    }

    /// What is wanted now.
    pub(super) async fn look(&self) -> Wanted {
        let eye = self.clone();
        // Unpacking and hashing megabytes is no work for a thread that others wait for.
        let looked = tokio::task::spawn_blocking(move || eye.look_now()).await;
        looked.unwrap_or_else(|_| self.look_now())
    }

    fn look_now(&self) -> Wanted {
        let object = Self::cached(&self.plugins, &self.key());
        let read = object.as_deref().map(PluginObject::read).transpose();
        let (read, unreadable) = match read {
            Ok(read) => (read, None),
            Err(error) => (None, Some(error)),
        };
        let (spec, told) = read.map(|one| (one.spec, one.status)).unwrap_or_default();
        let config_maps = self.sources(spec.source.config_map.as_ref().map(|one| &*one.name));
        let source = match unreadable {
            Some(error) => Some(Err(Arc::new(error))),
            None => self.source(&config_maps, &spec),
        };
        let source = match spec.revision {
            Some(pinned) => Some(self.pinned(pinned, source)),
            None => source,
        };
        Wanted { leading: self.host.is_leading(), object, spec, told, config_maps, source }
    }

    /// The ConfigMap that a Plugin names, or those that carry its name, sorted.
    fn sources(&self, named: Option<&str>) -> Vec<Arc<StoredObject>> {
        let namespace = &self.host.rollout.inbox.namespace;
        if let Some(named) = named {
            self.host.rollout.inbox.follow(named, &self.name);
            let key = ObjectKey::new(namespace.as_str(), named);
            return Self::cached(&self.config_maps, &key).into_iter().collect();
        }
        let Ok(view) = self.config_maps.store().view() else { return Vec::new() };
        let selector = Selector::parse(&format!("{}={}", text::LABEL_PLUGIN, self.name));
        let Ok(selector) = selector else { return Vec::new() };
        let mut found = view.select(Some(namespace), None, Some(&selector));
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    /// What the source holds.
    fn source(&self, config_maps: &[Arc<StoredObject>], spec: &PluginSpec) -> Option<Wish> {
        let pulled = self.pulls.latest(self, spec);
        let read = match (&spec.source.oci, pulled) {
            (Some(_), Some(Ok(artifact))) => Source::from_artifact(&self.name, artifact, spec),
            (Some(_), Some(Err(error))) => return Some(Err(error)),
            (Some(oci), None) => Err(LoadError::Pulling { reference: oci.reference.clone() }),
            (None, _) if config_maps.is_empty() => return None,
            (None, _) => Source::from_config_maps(&self.name, config_maps, spec),
        };
        Some(read.map(Arc::new).map_err(Arc::new))
    }

    /// The revision that the user has asked for by name.
    fn pinned(&self, revision: Revision, source: Option<Wish>) -> Wish {
        match source {
            Some(Ok(source)) if source.revision == revision => Ok(source),
            Some(_) | None => self.kept(revision).map(Arc::new).map_err(Arc::new),
        }
    }

    /// A revision that was kept.
    pub(super) fn kept(&self, revision: Revision) -> Result<Source, LoadError> {
        let objects = revisions::kept(self, revision);
        if objects.is_empty() {
            return Err(LoadError::Source {
                what: format!(
                    "revision {revision} is neither in the source nor kept as ConfigMap {}; `operator-host plugin history {}` shows what is",
                    revisions::name(&self.name, revision),
                    self.name
                ),
            });
        }
        let source = Source::from_revision(&self.name, &objects)?;
        if source.revision == revision {
            return Ok(source);
        }
        Err(LoadError::Source {
            what: format!(
                "ConfigMap {} holds revision {}, not its own",
                revisions::name(&self.name, revision),
                source.revision
            ),
        })
    }

    /// Waits until something else is wanted, or a revision was taken back.
    pub(super) async fn changed(&self, last: &Fingerprint, setbacks: u64) -> Wanted {
        loop {
            self.wake.notified().await;
            let next = self.look().await;
            if next.fingerprint() != *last || self.setbacks.load(Ordering::Acquire) != setbacks {
                return next;
            }
        }
    }
}
