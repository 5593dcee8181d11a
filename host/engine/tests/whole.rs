//! The whole engine in one process, on an API server in memory, with time paused: no child process, no cluster.

#![cfg(test)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fakeapi::{Fault, Server};
use host_engine::{Clock, Compilation, Engine, InProcess, Lost, Monitor, Parts, Settings, Sources};
use host_wasm::{CompiledPlugin, LoadError, VerifiedPlugin};
use operator_host_kit::{BuildOptions, build};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const GROUP: &str = "example.operator-host.dev";

/// The hello plugin, one of as many builds as there are ids.
fn hello(id: &str) -> Vec<u8> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/hello");
    let options = BuildOptions { build_id: Some(id.to_owned()), progress: false };
    build(&package, &options).unwrap().bytes
}

/// The ConfigMap that carries a component, as a user makes it.
fn source(component: &[u8]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "hello-plugin", "namespace": "operator-host",
            "labels": {"operator-host.dev/plugin": "hello"},
        },
        "binaryData": {"plugin.wasm": STANDARD.encode(component)},
        "data": {"plugin.yaml": "grants: {owns: [{apiVersion: v1, kind: ConfigMap}]}"},
    })
}

fn greeting(name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Greeting",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"name": name},
    })
}

/// Counts what it compiles.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Compilation for Counted {
    fn compile(&self, plugin: VerifiedPlugin) -> Result<CompiledPlugin, LoadError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        InProcess.compile(plugin)
    }
}

/// A running engine.
struct Running {
    compiled: Arc<Counted>,
    monitor: Monitor,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), Lost>>,
}

impl Running {
    fn start(server: &Server) -> Self {
        let compiled = Arc::<Counted>::default();
        let parts = Parts {
            client: host_kube::Client::from_kube(server.client(), "memory"),
            sources: Sources::Cluster,
            compilation: Arc::clone(&compiled) as _,
            keys: host_engine::signature::Keys::default(),
            registries: host_engine::registry::Registries::default(),
            clock: Clock::new(|| jiff::Timestamp::UNIX_EPOCH),
            meter: Arc::new(()),
        };
        let engine = Engine::new(parts, Settings::new("memory", 0)).unwrap();
        let monitor = engine.monitor();
        let (stop, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or_default() };
        Self { compiled, monitor, stop, ended: tokio::spawn(engine.run(stopped)) }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap().unwrap();
    }
}

fn server() -> Server {
    Server::new().kind(GROUP, "v1alpha1", "Greeting", "greetings", true, true)
}

/// The digest that a parent says it was reconciled by.
fn reconciled_by(server: &Server, name: &str) -> Option<String> {
    let parent = server.get(&format!("{GROUP}/v1alpha1"), "Greeting", "default", name)?;
    let conditions = parent["status"]["conditions"].as_array()?;
    let reconciled = conditions.iter().find(|one| one["type"] == "Reconciled")?;
    (reconciled["status"] == "True").then(|| reconciled["message"].as_str().unwrap().to_owned())
}

fn active(server: &Server) -> Option<String> {
    let plugin =
        server.get("plugins.operator-host.dev/v1alpha1", "Plugin", "operator-host", "hello")?;
    Some(plugin["status"]["active"]["digest"].as_str()?.to_owned())
}

fn short(digest: &str) -> &str {
    &digest[.."sha256:".len() + 12]
}

#[tokio::test(start_paused = true)]
async fn a_parent_is_reconciled_and_its_plugin_swapped() {
    let server = server();
    server.put(greeting("world"));
    server.put(source(&hello("one")));
    let engine = Running::start(&server);

    server.until(|server| reconciled_by(server, "world").is_some()).await;
    let child = server.get("v1", "ConfigMap", "default", "world").unwrap();
    assert_eq!(child["data"]["text"], "Hello, world!");
    assert_eq!(child["metadata"]["ownerReferences"][0]["kind"], "Greeting");
    server.until(|server| active(server).is_some()).await;
    let first = active(&server).unwrap();
    assert_eq!(engine.monitor.readiness(), Ok(()));

    server.put(source(&hello("two")));
    server.until(|server| active(server).is_some_and(|digest| digest != first)).await;
    let second = active(&server).unwrap();
    let by_second =
        |server: &Server| reconciled_by(server, "world").unwrap().contains(short(&second));
    server.until(by_second).await;
    // What has not changed was not written.
    let after = server.get("v1", "ConfigMap", "default", "world").unwrap();
    assert_eq!(after["metadata"]["resourceVersion"], child["metadata"]["resourceVersion"]);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_sight_of_a_plugin_loads_it_once() {
    let server = server();
    server.put(source(&hello("one")));
    let engine = Running::start(&server);
    server.until(|server| active(server).is_some()).await;
    assert_eq!(engine.compiled.0.load(Ordering::Relaxed), 1);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_object_that_could_not_be_made_is_made_later() {
    let server = server();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    server.on_request(move |line| {
        let create = line.starts_with("create") && line.ends_with("/plugins");
        let first = create && count.fetch_add(1, Ordering::Relaxed) < 3;
        first.then_some(Fault::Refuse(500, "InternalError"))
    });
    server.put(greeting("world"));
    server.put(source(&hello("one")));
    let engine = Running::start(&server);
    server.until(|server| reconciled_by(server, "world").is_some()).await;
    server.until(|server| active(server).is_some()).await;
    assert!(refused.load(Ordering::Relaxed) > 3);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_hour_in_which_nothing_happens_writes_nothing() {
    let server = server();
    server.put(greeting("world"));
    server.put(source(&hello("one")));
    let engine = Running::start(&server);
    server.until(|server| reconciled_by(server, "world").is_some()).await;
    // Past the rollout's probation, and everything that was to be told.
    tokio::time::sleep(Duration::from_mins(30)).await;
    let before = server.writes();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(server.writes(), before);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_build_changes_nothing_and_is_told() {
    let server = server();
    server.put(greeting("world"));
    server.put(source(&hello("one")));
    let engine = Running::start(&server);
    server.until(|server| active(server).is_some()).await;
    let good = active(&server).unwrap();

    server.put(source(b"\0asm\x0d\0\x01\0 no component"));
    let refused = |server: &Server| {
        let plugin =
            server.get("plugins.operator-host.dev/v1alpha1", "Plugin", "operator-host", "hello");
        plugin.is_some_and(|plugin| plugin["status"]["verdict"] == "Refused")
    };
    server.until(refused).await;
    assert_eq!(active(&server).unwrap(), good);
    server.put(greeting("moon"));
    let by_good = |server: &Server| {
        reconciled_by(server, "moon").is_some_and(|said| said.contains(short(&good)))
    };
    server.until(by_good).await;
    engine.stop().await;
}
