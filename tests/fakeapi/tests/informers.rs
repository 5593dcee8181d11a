//! What the host's informers see.

#![cfg(test)]

#[path = "support/objects.rs"]
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fakeapi::{Fault, Server};
use host_core::ident::{Kind, ObjectKey};
use host_kube::{Informers, Scope, Status, Store, Subscription};
use serde_json::json;
use support::{client, config};
use tokio::time::Instant;

struct Watched {
    informers: Informers,
    subscription: Subscription,
    told: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    fn new(server: &Server, kind: Kind, scope: Scope) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let book = Arc::clone(&told);
        let informers = Informers::new(
            client(server),
            1,
            Arc::new(move |change| {
                let what = match (&change.old, &change.new) {
                    (None, _) => "new",
                    (_, None) => "gone",
                    _ => "changed",
                };
                book.lock().unwrap().push(format!("{what} {}", change.key));
            }),
        );
        let subscription = informers.subscribe(kind, scope);
        Self { informers, subscription, told }
    }

    async fn config_maps(server: &Server) -> Self {
        let watched = Self::new(server, Kind::new("v1", "ConfigMap"), Scope::All);
        let deadline = Instant::now() + Duration::from_secs(30);
        watched.store().wait_synced(deadline).await.unwrap();
        watched
    }

    fn store(&self) -> &Store {
        self.subscription.store()
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    /// Waits until the store has an object in a version, or has not got it.
    async fn has(&self, name: &str, version: Option<u64>) {
        let key = ObjectKey::new("shop", name);
        let begin = Instant::now();
        loop {
            let found = self.store().view().unwrap().get(&key);
            if found.map(|object| object.resource_version) == version {
                return;
            }
            assert!(begin.elapsed() < Duration::from_mins(10), "{name} never came to {version:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn version(object: &serde_json::Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().ok()
}

#[tokio::test(start_paused = true)]
async fn an_informer_lists_and_sees_a_change_and_a_deletion() {
    let server = Server::new();
    let first = server.put(config("a", &json!({"x": "1"})));
    let watched = Watched::config_maps(&server).await;
    watched.has("a", version(&first)).await;
    let second = server.put(config("a", &json!({"x": "2"})));
    watched.has("a", version(&second)).await;
    server.put(config("b", &json!({})));
    server.delete("v1", "ConfigMap", "shop", "a");
    watched.has("a", None).await;
    assert_eq!(watched.told(), ["new shop/a", "changed shop/a", "new shop/b", "gone shop/a"]);
    assert_eq!(server.requests(), ["get /api/v1", "watch /api/v1/configmaps"]);
    assert_eq!(server.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_namespace_sees_no_other() {
    let server = Server::new();
    let kind = Kind::new("v1", "ConfigMap");
    let watched = Watched::new(&server, kind, Scope::Namespace("shop".into()));
    watched.store().wait_synced(Instant::now() + Duration::from_secs(9)).await.unwrap();
    let mut other = config("a", &json!({}));
    other["metadata"]["namespace"] = "other".into();
    server.put(other);
    let ours = server.put(config("a", &json!({})));
    watched.has("a", version(&ours)).await;
    assert_eq!(watched.told(), ["new shop/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_in_time_and_the_next_goes_on_where_it_ended() {
    let server = Server::new();
    let watched = Watched::config_maps(&server).await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    let watches = server.requests().len() - 1;
    assert!((4..=6).contains(&watches), "{watches} in 20 min");
    let object = server.put(config("a", &json!({})));
    watched.has("a", version(&object)).await;
    let told = watched.store();
    assert_eq!((told.relists(), told.status()), (0, Status::Synced));
    assert!(told.last_contact().unwrap().elapsed() < Duration::from_secs(61), "bookmarks");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_misses_nothing_and_one_from_before_a_compaction_lists_again() {
    let server = Server::new();
    server.put(config("a", &json!({})));
    let watched = Watched::config_maps(&server).await;
    server.cut_watches();
    let object = server.put(config("a", &json!({"x": "1"})));
    watched.has("a", version(&object)).await;
    assert_eq!(watched.store().relists(), 0);
    server.on_request(|line| {
        line.starts_with("watch").then_some(Fault::Refuse(503, "ServiceUnavailable"))
    });
    server.cut_watches();
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.delete("v1", "ConfigMap", "shop", "a");
    server.compact();
    server.no_faults();
    watched.has("a", None).await;
    assert_eq!(watched.store().relists(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streamed_lists_is_listed_by_pages_of_one_state() {
    let server = Server::new().pages_only();
    for number in 0..1_001 {
        server.put(config(&format!("m{number:04}"), &json!({})));
    }
    let meddler = server.clone();
    server.on_request(move |line| {
        if line.starts_with("list") && meddler.requests().iter().any(|before| before == line) {
            meddler.delete("v1", "ConfigMap", "shop", "m1000");
        }
        None
    });
    let watched = Watched::config_maps(&server).await;
    let lists = server.requests().into_iter().filter(|line| line.starts_with("list")).count();
    assert_eq!(lists, 3);
    watched.has("m0999", Some(1_001)).await;
    watched.has("m1000", None).await;
    assert_eq!(watched.told().len(), 1_002, "it was in the list, then in the watch");
}

#[tokio::test(start_paused = true)]
async fn existence_is_watched_without_contents() {
    let server = Server::new();
    server.put(config("a", &json!({"big": "1"})));
    let watched = Watched::config_maps(&server).await;
    let kind = Kind::new("v1", "ConfigMap");
    let existence = watched.informers.subscribe_to_existence(kind, Scope::All);
    let deadline = Instant::now() + Duration::from_secs(9);
    let view = existence.store().wait_synced(deadline).await.unwrap();
    assert!(view.get(&ObjectKey::new("shop", "a")).is_some());
    assert_eq!(existence.store().bytes(), 0);
    let request = http::Request::get("/api/v1/configmaps?limit=5")
        .header("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .body(Vec::new())
        .unwrap();
    let text = server.client().request_text(request).await.unwrap();
    assert!(text.contains("PartialObjectMetadata") && !text.contains("big"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_crd_brings_its_kind_and_takes_it_and_its_objects_away() {
    let server = Server::new();
    let kind = Kind::new("demo.dev/v1", "Demo");
    let watched = Watched::new(&server, kind, Scope::All);
    watched.informers.follow_definitions();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(watched.store().status(), Status::Missing);
    server.put(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "demos.demo.dev"},
        "spec": {"group": "demo.dev", "scope": "Namespaced",
            "names": {"kind": "Demo", "plural": "demos"},
            "versions": [{"name": "v1", "served": true, "subresources": {"status": {}}}]},
    }));
    watched.store().wait_synced(Instant::now() + Duration::from_secs(1)).await.unwrap();
    let demo = server.put(json!({"apiVersion": "demo.dev/v1", "kind": "Demo",
        "metadata": {"name": "d", "namespace": "shop", "finalizers": ["x/y"]}}));
    watched.has("d", version(&demo)).await;
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "demos.demo.dev");
    server.delete(crd.0, crd.1, crd.2, crd.3);
    let mut demo = server.get("demo.dev/v1", "Demo", "shop", "d").expect("it has a finalizer");
    assert!(server.get(crd.0, crd.1, crd.2, crd.3).is_some(), "it waits for its objects");
    demo["metadata"]["finalizers"] = json!([]);
    server.put(demo);
    assert!(server.get(crd.0, crd.1, crd.2, crd.3).is_none());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(watched.store().status(), Status::Missing);
}
