//! The API server as a test sees it: JSON in and out, without a process for every look.

use anyhow::{Context as _, Result};
use devcluster::{DevCluster, wait_for};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

use crate::PATIENCE;

/// An administrator.
#[derive(Clone)]
pub struct Api(Client);

/// The path of an object, or of all of a namespace if `name` is empty. `resource` is a plural that these tests use.
pub fn path(resource: &str, namespace: &str, name: &str) -> String {
    let version = match resource {
        "puppets" => "apis/it.operator-host.dev/v1",
        "greetings" => "apis/example.operator-host.dev/v1alpha1",
        "redisclusters" => "apis/redis.operator-host.dev/v1alpha1",
        "statefulsets" => "apis/apps/v1",
        _ => "api/v1",
    };
    let path = format!("/{version}/namespaces/{namespace}/{resource}/{name}");
    path.trim_end_matches('/').to_owned()
}

impl Api {
    /// Connects, for the caller's runtime.
    pub fn new(cluster: &DevCluster) -> Result<Self> {
        Ok(Self(cluster.client()?))
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value> {
        let doing = format!("{method} {path}");
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        self.0.request(request.body(body)?).await.context(doing)
    }

    /// One object, or a list.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, "application/json", &Value::Null).await
    }

    /// The objects of a list.
    pub async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.get(path).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Applies what is to be applied at its path; creates what is not there.
    pub async fn apply(&self, path: &str, body: &Value) -> Result<Value> {
        let path = format!("{path}?fieldManager=test&force=true");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", body).await
    }

    /// Changes some fields.
    pub async fn merge(&self, path: &str, body: &Value) -> Result<Value> {
        self.send(Method::PATCH, path, "application/merge-patch+json", body).await
    }

    /// Changes an object step by step (RFC 6902).
    pub async fn json_patch(&self, path: &str, steps: &Value) -> Result<Value> {
        self.send(Method::PATCH, path, "application/json-patch+json", steps).await
    }

    /// Deletes; `propagation` is `Background`, `Foreground` or `Orphan`.
    pub async fn delete(&self, path: &str, propagation: &str) -> Result<()> {
        let body = json!({"propagationPolicy": propagation});
        self.send(Method::DELETE, path, "application/json", &body).await.map(drop)
    }

    /// Makes a namespace.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply(&format!("/api/v1/namespaces/{name}"), &body).await.map(drop)
    }

    /// Applies a Puppet with this spec.
    pub async fn puppet(&self, namespace: &str, name: &str, spec: &Value) -> Result<()> {
        let body = json!({"apiVersion": "it.operator-host.dev/v1", "kind": "Puppet",
            "metadata": {"name": name}, "spec": spec});
        self.apply(&path("puppets", namespace, name), &body).await.map(drop)
    }

    /// Applies a Greeting to somebody.
    pub async fn greeting(&self, namespace: &str, name: &str, greeted: &str) -> Result<()> {
        let body = json!({"apiVersion": "example.operator-host.dev/v1alpha1", "kind": "Greeting",
            "metadata": {"name": name}, "spec": {"name": greeted}});
        self.apply(&path("greetings", namespace, name), &body).await.map(drop)
    }

    /// Waits until an object satisfies a condition; gives the object.
    pub async fn until(
        &self,
        what: &str,
        path: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let last = std::sync::Mutex::new(Value::Null);
        let found = wait_for(what, PATIENCE, || async {
            let object = self.get(path).await?;
            if let Ok(mut last) = last.lock() {
                last.clone_from(&object);
            }
            Ok(holds(&object).then_some(object))
        });
        let found = found.await;
        found.with_context(|| {
            let last = last.lock().map(|last| last.to_string()).unwrap_or_default();
            format!("{path}: last seen as {last}")
        })
    }

    /// Waits until a path leads nowhere.
    pub async fn until_gone(&self, path: &str) -> Result<()> {
        wait_for(&format!("{path} to be gone"), PATIENCE, || async {
            match self.get(path).await {
                Ok(_) => Ok(None),
                Err(error) if format!("{error:#}").contains("not found") => Ok(Some(())),
                Err(error) => Err(error),
            }
        })
        .await
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Api")
    }
}
