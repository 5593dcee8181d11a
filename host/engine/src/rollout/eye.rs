//! What a plugin's rollout looks at, and how it notices that something is new.

use std::sync::Arc;
use std::time::Duration;

use host_core::ident::ObjectId;
use host_core::object::StoredObject;
use host_core::plugin::Revision;
use host_core::selector::Selector;
use host_core::text;
use host_kube::{ApiError, Status};

use super::inbox::Inbox;
use super::load_error::LoadError;
use super::pull::Pulls;
use super::revisions;
use super::source::Source;
use super::subject::Subject;
use super::wanted::{Fingerprint, Glance, Outline, PluginObject, Wanted, Wish};
use crate::kinds::config_map;

/// How often a read is tried, and what is waited between two tries: a short absence of the API server is not worth a word.
const READ_TRIES: u32 = 4;
const READ_PAUSE: Duration = Duration::from_secs(1);

/// What a rollout looks at.
pub(super) struct Eye {
    pub(super) subject: Subject,
    pub(super) inbox: Arc<Inbox>,
    pub(super) pulls: Pulls,
}

impl Eye {
    /// What there is now, without a look into it. Waits while that is not known.
    async fn glance(&self) -> Glance {
        while !self.can_see() {
            tokio::time::sleep(READ_PAUSE).await;
        }
        self.glance_now()
    }

    /// Whether what the cache does not show is not there: unknown is never empty. Without the kind, or the right to see
    /// it, plugins run with what comes with their bytes.
    fn can_see(&self) -> bool {
        let plugins = self.subject.plugins.store();
        let no_plugins = matches!(plugins.status(), Status::Missing | Status::Forbidden(_));
        self.subject.config_maps.store().is_synced() && (plugins.is_synced() || no_plugins)
    }

    fn glance_now(&self) -> Glance {
        let object = self.subject.current();
        let read = object.as_deref().map(PluginObject::read).transpose();
        let (read, unreadable) = match read {
            Ok(read) => (read, None),
            Err(error) => (None, Some(Arc::new(error))),
        };
        let (spec, told) = read.map(|one| (one.spec, one.status)).unwrap_or_default();
        let config_maps = self.sources(spec.source.config_map.as_ref().map(|one| &*one.name));
        let pulled = self.pulls.latest(&self.subject, &spec);
        let leading = self.subject.voice.is_leading();
        Glance { leading, object, unreadable, spec, told, config_maps, pulled }
    }

    /// What is wanted now.
    pub(super) async fn look(&self) -> Wanted {
        self.look_into(self.glance().await).await
    }

    async fn look_into(&self, glance: Glance) -> Wanted {
        let source = match &glance.unreadable {
            Some(error) => Some(Err(Arc::clone(error))),
            None => self.source(&glance).await,
        };
        let source = match glance.spec.revision {
            Some(pinned) => Some(self.pinned(pinned, source).await),
            None => source,
        };
        Wanted { glance, source }
    }

    /// The ConfigMap that a Plugin names, or those that carry its name, sorted.
    fn sources(&self, named: Option<&str>) -> Vec<Arc<StoredObject>> {
        if let Some(named) = named {
            self.inbox.follow(named, &self.subject.name);
            return self.subject.config_map(named).into_iter().collect();
        }
        let Ok(view) = self.subject.config_maps.store().view() else { return Vec::new() };
        let selector = Selector::parse(&format!("{}={}", text::LABEL_PLUGIN, self.subject.name));
        let Ok(selector) = selector else { return Vec::new() };
        let mut found = view.select(Some(&*self.subject.namespace), None, Some(&selector));
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    /// What the source holds.
    async fn source(&self, glance: &Glance) -> Option<Wish> {
        let Glance { spec, config_maps, pulled, .. } = glance;
        if let Some(oci) = &spec.source.oci {
            return Some(match pulled {
                Some(Ok(artifact)) => {
                    let (artifact, spec) = (artifact.clone(), spec.clone());
                    self.unpack(move |name| Source::from_artifact(name, artifact, &spec)).await
                }
                Some(Err(error)) => Err(Arc::clone(error)),
                None => Err(Arc::new(LoadError::Pulling { reference: oci.reference.clone() })),
            });
        }
        let maps = match self.read(config_maps).await {
            Ok(maps) if maps.is_empty() => return None,
            Ok(maps) => maps,
            Err(error) => return Some(Err(Arc::new(error))),
        };
        let spec = spec.clone();
        Some(self.unpack(move |name| Source::from_config_maps(name, &maps, &spec)).await)
    }

    /// Unpacking and hashing megabytes is no work for a thread that others wait for.
    async fn unpack(
        &self,
        unpack: impl FnOnce(&str) -> Result<Source, LoadError> + Send + 'static,
    ) -> Wish {
        let name = Arc::clone(&self.subject.name);
        let unpacked = tokio::task::spawn_blocking(move || unpack(&name)).await;
        let panicked =
            |error| LoadError::Source { what: format!("reading it has panicked: {error}") };
        unpacked.map_err(panicked).flatten().map(Arc::new).map_err(Arc::new)
    }

    /// ConfigMaps with what they hold: the cache knows only that there are some. One that has gone meanwhile is left out.
    async fn read(&self, listed: &[Arc<StoredObject>]) -> Result<Vec<StoredObject>, LoadError> {
        let mut maps = Vec::new();
        for object in listed {
            let id = ObjectId { kind: config_map(), key: object.key.clone() };
            maps.extend(
                self.get(&id)
                    .await
                    .map_err(|source| LoadError::Unread { source: Box::new(source) })?,
            );
        }
        Ok(maps)
    }

    /// Reads an object, patiently: a rollout that finds nothing to go on would have to be told.
    async fn get(&self, id: &ObjectId) -> Result<Option<StoredObject>, ApiError> {
        let mut tries = 1;
        loop {
            match self.subject.cluster.get(id).await {
                Err(_) if tries < READ_TRIES => tokio::time::sleep(READ_PAUSE).await,
                done => return done,
            }
            tries += 1;
        }
    }

    /// The revision that the user has asked for by name.
    async fn pinned(&self, revision: Revision, source: Option<Wish>) -> Wish {
        match source {
            Some(Ok(source)) if source.revision == revision => Ok(source),
            Some(_) | None => self.kept(revision).await,
        }
    }

    /// A revision that was kept.
    pub(super) async fn kept(&self, revision: Revision) -> Wish {
        let place = revisions::name(&self.subject.name, revision);
        let maps = self.read(&revisions::kept(&self.subject, revision)).await.map_err(Arc::new)?;
        if maps.is_empty() {
            return Err(Arc::new(LoadError::Source {
                what: format!(
                    "revision {revision} is neither in the source nor kept as ConfigMap {place}; `operator-host plugin history {}` shows what is",
                    self.subject.name
                ),
            }));
        }
        let source = self.unpack(move |name| Source::from_revision(name, &maps)).await?;
        if source.revision == revision {
            return Ok(source);
        }
        Err(Arc::new(LoadError::Source {
            what: format!("ConfigMap {place} holds revision {}, not its own", source.revision),
        }))
    }

    /// Waits until something else is wanted, or a revision was taken back.
    pub(super) async fn changed(
        &self,
        last: &Fingerprint,
        seen: &Outline,
        was_taken_back: impl Fn() -> bool,
    ) -> Wanted {
        let mut seen = seen.clone();
        loop {
            self.subject.wake.notified().await;
            let glance = self.glance().await;
            // The host's own words, mostly: no reason to read a megabyte.
            if glance.outline() == seen && !was_taken_back() {
                continue;
            }
            seen = glance.outline();
            let next = self.look_into(glance).await;
            if next.fingerprint() != *last || was_taken_back() {
                return next;
            }
        }
    }
}
