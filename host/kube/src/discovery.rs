//! From a kind to the path it is served under.
//!
//! One request per group and version that somebody asks for, never the whole catalogue: a broken aggregated API
//! hurts only those who use it (k8s#65005), and nobody waits for it.
//!
//! **Invariant:** what was found is kept until somebody says that it no longer fits ([`Client::forget`]);
//! what was not found is asked again half a second later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use host_core::ident::{Kind, ObjectId};
use http::Request;
use serde::Deserialize;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::{ApiError, ApiErrorKind};
use crate::purpose::Purpose;
use crate::resource::{DiscoveryError, Resource, root};
use crate::uri::is_segment;

/// How long "there is no such kind" is believed: shorter than an informer's first wait of 600 ms at least, since a
/// server lists a new kind some moments after its CRD says that it is established; long enough that twenty informers
/// of one missing group ask once.
const ABSENT_FOR: Duration = Duration::from_millis(500);

/// How long the server may take to list one group and version.
const DEADLINE: Duration = Duration::from_secs(10);

impl Client {
    /// How a kind is served. Asks the server at most twice a second for a group and version.
    pub async fn resolve(&self, kind: &Kind) -> Result<Arc<Resource>, DiscoveryError> {
        let group = self.discovered.group(&kind.api_version);
        let mut group = group.lock().await;
        if let Some(resource) = group.resources.get(&kind.kind) {
            return Ok(Arc::clone(resource));
        }
        if group.listed.is_none_or(|listed| listed.elapsed() >= ABSENT_FOR) {
            group.resources = self.list_kinds(kind).await?;
            group.listed = Some(Instant::now());
        }
        let found = group.resources.get(&kind.kind).map(Arc::clone);
        found.ok_or_else(|| DiscoveryError::NotFound(kind.clone()))
    }

    /// Drops what is known about a kind, because the server has said that its path is not served.
    pub async fn forget(&self, kind: &Kind) {
        let group = self.discovered.group(&kind.api_version);
        let mut group = group.lock().await;
        if group.resources.remove(&kind.kind).is_some() {
            group.listed = None;
        }
    }

    async fn list_kinds(
        &self,
        kind: &Kind,
    ) -> Result<BTreeMap<String, Arc<Resource>>, DiscoveryError> {
        let api_version = &kind.api_version;
        let purpose = Purpose::new(format!("list the kinds of {api_version}"));
        let unavailable = |error| DiscoveryError::Unavailable(kind.clone(), error);
        let request = Request::get(root(api_version)).body(Vec::new()).map_err(|error| {
            unavailable(ApiError::new(&purpose, ApiErrorKind::Invalid, &error.to_string()))
        })?;
        let text = match self.text(&purpose, request, DEADLINE).await {
            Ok(text) => text,
            Err(error)
                if matches!(error.kind(), ApiErrorKind::KindMissing | ApiErrorKind::NotFound) =>
            {
                return Ok(BTreeMap::new());
            }
            Err(error) => return Err(unavailable(error)),
        };
        let list: ResourceList = serde_json::from_str(&text)
            .map_err(|error| unavailable(ApiError::malformed(&purpose, &error)))?;
        Ok(list.resources(api_version))
    }

    /// The paths of one object: its collection's, and its own. Names come from plugins, so one that would lead
    /// elsewhere is refused.
    pub(crate) async fn locate(
        &self,
        purpose: &Purpose,
        id: &ObjectId,
    ) -> Result<String, ApiError> {
        let resource = self.resolve(&id.kind).await.map_err(|error| error.during(purpose))?;
        let (namespace, name) = (&*id.key.namespace, &*id.key.name);
        let wrong = |what: &str| Err(ApiError::new(purpose, ApiErrorKind::Invalid, what));
        if resource.namespaced && !is_segment(namespace) {
            return wrong("the kind is namespaced and the namespace is missing or not a name");
        }
        if !resource.namespaced && !namespace.is_empty() {
            return wrong("the kind is cluster-scoped and a namespace is given; leave it out");
        }
        if !is_segment(name) {
            return wrong("the name is not one that a path can hold");
        }
        Ok(format!("{}/{name}", resource.path(Some(namespace))))
    }
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

impl ResourceList {
    fn resources(self, api_version: &str) -> BTreeMap<String, Arc<Resource>> {
        let status: Vec<_> = self
            .resources
            .iter()
            .filter_map(|entry| entry.name.strip_suffix("/status").map(ToOwned::to_owned))
            .collect();
        self.resources
            .into_iter()
            .filter(|entry| !entry.name.contains('/'))
            .map(|entry| {
                let resource = Resource {
                    kind: Kind::new(api_version, entry.kind.clone()),
                    has_status: status.contains(&entry.name),
                    plural: entry.name,
                    namespaced: entry.namespaced,
                    verbs: entry.verbs,
                };
                (entry.kind, Arc::new(resource))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Answer};

    #[tokio::test(start_paused = true)]
    async fn reads_scope_plural_and_status_of_a_kind() {
        let (client, _) = fake::client(fake::script([]));
        let set = client.resolve(&Kind::new("apps/v1", "StatefulSet")).await.unwrap();
        assert_eq!((&*set.plural, set.namespaced, set.has_status), ("statefulsets", true, true));
        assert_eq!(set.path(Some("shop")), "/apis/apps/v1/namespaces/shop/statefulsets");
        assert_eq!(set.path(None), "/apis/apps/v1/statefulsets");
        let node = client.resolve(&Kind::new("v1", "Node")).await.unwrap();
        assert_eq!(node.path(Some("shop")), "/api/v1/nodes");
        let scale = client.resolve(&Kind::new("apps/v1", "Scale")).await;
        assert!(
            matches!(scale, Err(DiscoveryError::NotFound(_))),
            "a subresource is no kind of its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn asks_once_for_a_group_and_again_a_little_later_for_what_was_absent() {
        let (client, log) = fake::client(fake::script([]));
        let (known, absent) = (Kind::new("v1", "Secret"), Kind::new("v1", "Absent"));
        for _ in 0..3 {
            client.resolve(&known).await.unwrap();
            assert_eq!(
                client.resolve(&absent).await,
                Err(DiscoveryError::NotFound(absent.clone()))
            );
        }
        assert_eq!(log.all().len(), 1);
        tokio::time::sleep(ABSENT_FOR).await;
        client.resolve(&absent).await.unwrap_err();
        assert_eq!(log.all().len(), 2);
        client.forget(&known).await;
        client.resolve(&known).await.unwrap();
        assert_eq!(log.all().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_group_hurts_nobody_else() {
        let (client, _) = fake::client(|asked| match asked.line.as_str() {
            "GET /apis/hangs/v1" => Answer::Silence,
            _ => Answer::refusal(503, "ServiceUnavailable"),
        });
        let (hanging, broken) = (Kind::new("hangs/v1", "A"), Kind::new("breaks/v1", "B"));
        let healthy = Kind::new("v1", "Node");
        let started = Instant::now();
        let (hanging, broken, healthy) =
            tokio::join!(client.resolve(&hanging), client.resolve(&broken), async {
                client.resolve(&healthy).await.unwrap();
                started.elapsed()
            },);
        assert!(healthy.is_zero());
        assert!(matches!(hanging, Err(DiscoveryError::Unavailable(..))), "{hanging:?}");
        assert!(matches!(broken, Err(DiscoveryError::Unavailable(..))), "{broken:?}");
    }
}
