//! What the benchmark itself asks the API server, as administrator.

use std::time::Instant;

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use futures::{AsyncBufRead, TryFutureExt as _};
use http::Request;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

/// Creates and changes in flight at once; more than this server answers faster.
const IN_FLIGHT: usize = 16;

/// A client.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
}

/// The two kinds that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Tutorials.
    Parents,
    /// Their `StatefulSet`s.
    Children,
}

impl Resource {
    /// The collection.
    pub(crate) fn path(self, namespace: &str) -> String {
        match self {
            Self::Parents => {
                format!("/apis/bench.operator-host.dev/v1/namespaces/{namespace}/tutorials")
            }
            Self::Children => format!("/apis/apps/v1/namespaces/{namespace}/statefulsets"),
        }
    }
}

/// Of an object, what the benchmark looks at. Serves for both kinds.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Object {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) generation: i64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) replicas: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) phase: Option<String>,
    pub(crate) observed_generation: Option<i64>,
}

/// A list, and where a watch goes on from it.
#[derive(Debug, Deserialize)]
pub(crate) struct List {
    pub(crate) metadata: ListMetadata,
    pub(crate) items: Vec<Object>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    pub(crate) resource_version: String,
}

impl Api {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The API server's metrics.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        Ok(self.client.request_text(Request::get("/metrics").body(vec![])?).await?)
    }

    /// Everything of a kind in a namespace.
    pub(crate) async fn list(&self, resource: Resource, namespace: &str) -> anyhow::Result<List> {
        let request = Request::get(resource.path(namespace)).body(vec![])?;
        Ok(self.client.request(request).await?)
    }

    /// One event a line.
    pub(crate) async fn watch(
        &self,
        resource: Resource,
        namespace: &str,
        from: &str,
    ) -> anyhow::Result<impl AsyncBufRead + use<>> {
        let path = format!("{}?watch=true&resourceVersion={from}", resource.path(namespace));
        Ok(self.client.request_stream(Request::get(path).body(vec![])?).await?)
    }

    /// Anything, whole.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = Request::get(path).body(vec![])?;
        self.client.request(request).await.with_context(|| format!("reading {path}"))
    }

    /// Changes anything by a JSON merge patch; gives what has become of it.
    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> anyhow::Result<Value> {
        let request = Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(serde_json::to_vec(patch)?)?;
        self.client.request(request).await.with_context(|| format!("changing {path}"))
    }

    /// Creates anything; gives when the server had acknowledged it.
    pub(crate) async fn post(&self, path: &str, object: &Value) -> anyhow::Result<Instant> {
        let request = Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(object)?)?;
        self.client.request_text(request).await.with_context(|| format!("creating in {path}"))?;
        Ok(Instant::now())
    }

    /// One event a line, of any kind.
    pub(crate) async fn follow(
        &self,
        path: &str,
        from: &str,
    ) -> anyhow::Result<impl AsyncBufRead + use<>> {
        let path = format!("{path}?watch=true&resourceVersion={from}");
        Ok(self.client.request_stream(Request::get(path).body(vec![])?).await?)
    }

    /// One parent.
    pub(crate) async fn parent(&self, namespace: &str, name: &str) -> anyhow::Result<Object> {
        let path = format!("{}/{name}", Resource::Parents.path(namespace));
        Ok(self.client.request(Request::get(path).body(vec![])?).await?)
    }

    /// Creates one parent.
    pub(crate) async fn create(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let body = json!({
            "apiVersion": "bench.operator-host.dev/v1", "kind": "Tutorial",
            "metadata": {"name": name}, "spec": {"replicas": 1},
        });
        let created = self.post(&Resource::Parents.path(namespace), &body).await;
        created.with_context(|| format!("creating {name}"))?;
        Ok(())
    }

    /// Changes one parent; gives when the server had acknowledged it.
    pub(crate) async fn set_replicas(
        &self,
        namespace: &str,
        name: &str,
        replicas: u32,
    ) -> anyhow::Result<Instant> {
        let body = json!({"spec": {"replicas": replicas}});
        let request = Request::patch(format!("{}/{name}", Resource::Parents.path(namespace)))
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(serde_json::to_vec(&body)?)?;
        self.client.request_text(request).await.with_context(|| format!("changing {name}"))?;
        Ok(Instant::now())
    }

    /// Creates many, as fast as the server takes them.
    pub(crate) async fn create_all(&self, namespace: &str, names: &[String]) -> anyhow::Result<()> {
        stream::iter(names)
            .map(|name| self.create(namespace, name))
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await
    }

    /// Changes many, as fast as the server takes them; gives when each was acknowledged.
    pub(crate) async fn set_all(
        &self,
        namespace: &str,
        names: &[String],
        replicas: u32,
    ) -> anyhow::Result<Vec<(String, Instant)>> {
        stream::iter(names)
            .map(|name| {
                self.set_replicas(namespace, name, replicas).map_ok(|at| (name.clone(), at))
            })
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await
    }
}
