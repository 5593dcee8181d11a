//! The `operator-host` command: what it prints, how it fails, how it runs outside a cluster.

#![cfg(test)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use devcluster::{DevCluster, Options};
use it::{apply, condition, host_binary, object, plugin, root};
use serde_json::Value;

fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| host_binary().unwrap())
}

fn redis() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| plugin("redis", None).unwrap())
}

fn hello() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| plugin("hello", None).unwrap())
}

fn run(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).env("KUBECONFIG", "/nonexistent").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A host in the background, killed at the end of its test; its log goes line by line into a channel.
struct Host {
    child: Child,
    log: std::sync::mpsc::Receiver<String>,
}

impl Host {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(binary())
            .arg("run")
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, log) = std::sync::mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, log }
    }

    fn wait_for_line(&self, text: &str) -> String {
        let mut seen = String::new();
        loop {
            match self.log.recv_timeout(it::PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.extend([line.as_str(), "\n"]),
                Err(error) => panic!("{text:?} was not logged ({error}), but\n{seen}"),
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn get(address: &str, path: &str) -> String {
    let Ok(mut stream) = std::net::TcpStream::connect(address) else { return String::new() };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    answer
}

#[test]
fn inspect_shows_that_the_redis_plugin_imports_a_log_and_nothing_else() {
    let output = run(&["plugin", "inspect", "--json", &redis().to_string_lossy()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["imports"], serde_json::json!(["operator-host:plugin/log@1.0.0"]));
    assert_eq!(report["parent"], "redis.operator-host.dev/v1alpha1/RedisCluster");
    assert_eq!(report["providers"], serde_json::json!(["redis"]));
    assert_eq!(report["contract"], "1.0.0");
    assert!(report["digest"].as_str().unwrap().starts_with("sha256:"));
}

#[test]
fn inspect_says_what_is_wrong_with_a_file() {
    let manifest = root().unwrap().join("Cargo.toml");
    let output = run(&["plugin", "inspect", &manifest.to_string_lossy()]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("is no plugin"), "{}", stderr(&output));
    let output = run(&["plugin", "inspect", "/nonexistent.wasm"]);
    assert!(stderr(&output).contains("cannot read /nonexistent.wasm"), "{}", stderr(&output));
}

#[test]
fn crds_prints_what_the_component_carries() {
    let output = run(&["crds", &redis().to_string_lossy()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("---\n") && text.contains("redisclusters.redis.operator-host.dev"),
        "{text}"
    );
}

#[test]
fn crds_without_a_file_prints_the_hosts_own_kind() {
    let output = run(&["crds"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (kind, api) = ("kind: CustomResourceDefinition", "name: plugins.plugins.operator-host.dev");
    assert!(text.contains(kind) && text.contains(api), "{text}");
}

#[test]
fn a_file_is_packaged_with_what_it_asks_for_and_checked() {
    let file = redis().to_string_lossy();
    let output = run(&["plugin", "package", &file]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["kind: ConfigMap", "kind: Plugin", "kind: ClusterRole\n", "poddisruptionbudgets"] {
        assert!(text.contains(part), "no {part}");
    }
    let output = run(&["plugin", "check", &file]);
    assert!(output.status.success(), "{}", stderr(&output));
    let manifest = root().unwrap().join("Cargo.toml");
    let output = run(&["plugin", "replay", &manifest.to_string_lossy(), "--with", &file]);
    assert!(stderr(&output).contains("is no recording"), "{}", stderr(&output));
}

#[test]
fn completions_are_generated() {
    let output = run(&["completions", "bash"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("complete -F"));
}

#[test]
fn a_kubeconfig_that_does_not_exist_is_named() {
    let port = format!("127.0.0.1:{}", free_port());
    let output = run(&["run", "--kubeconfig", "/nonexistent/config", "--listen", &port]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nonexistent/config"), "{}", stderr(&output));
}

#[test]
fn a_taken_port_is_named_with_the_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["run", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
}

#[test]
fn an_unreachable_api_server_leaves_the_host_up_but_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let server = format!("https://127.0.0.1:{}", free_port());
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    std::fs::write(&config, text).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let host = Host::start(&["--kubeconfig", &config.to_string_lossy(), "--listen", &address]);
    host.wait_for_line("trying on");
    host.wait_for_line("waiting for ConfigMaps");
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    let ready = get(&address, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("ConfigMaps"), "{ready}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorials_plugin_runs_outside_a_cluster_and_waits_for_its_crd() {
    let cluster = DevCluster::start(Options { quiet: true, ..Options::default() }).await.unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let (wasm, config) = (hello().to_string_lossy(), cluster.kubeconfig().to_string_lossy());
    let (collector, spans) = collector();
    let mut arguments = vec!["--kubeconfig", &config, "--listen", &address, "--plugin", &wasm];
    arguments.extend(["--otlp-endpoint", &collector]);
    let host = Host::start(&arguments);
    let line = tokio::task::block_in_place(|| host.wait_for_line("is its CRD installed?"));
    assert!(line.contains("operator-host crds"), "{line}");

    let crds = run(&["crds", &wasm]);
    let crds = String::from_utf8(crds.stdout).unwrap();
    cluster.kubectl_stdin(&["apply", "--server-side", "-f", "-"], &crds).await.unwrap();
    cluster
        .kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"])
        .await
        .unwrap();
    let greeting = "apiVersion: example.operator-host.dev/v1alpha1\nkind: Greeting\nmetadata: {name: world}\nspec: {name: World}\n";
    apply(&cluster, "tutorial", greeting).await.unwrap();
    let parent = object(
        &cluster,
        &["-n", "tutorial", "get", "greeting", "world"],
        "the greeting",
        |parent| condition(parent, "Ready", "status") == "True",
    )
    .await
    .unwrap();
    assert_eq!(parent["status"]["text"], "Hello, World!");

    let metrics = get(&address, "/metrics");
    for name in [
        "controller_runtime_reconcile_total",
        "operator_host_plugin_info",
        "operator_host_informer_objects",
        "workqueue_depth",
    ] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    explains(&address);
    let (head, body) = spans.recv_timeout(it::PATIENCE).unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    for name in ["reconcile", "decide", "operator-host", "hello"] {
        assert!(body.contains(name), "{name} is missing in {body:?}");
    }
}

/// `explain` says why the greeting was reconciled last, and what it waits for.
fn explains(address: &str) {
    let ask = |arguments: &[&str]| run(&[&["explain", "--host", address][..], arguments].concat());
    let output = ask(&["greeting", "world", "-n", "tutorial"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for expected in ["Greeting tutorial/world", "hello 0.1.0 (sha256:", "because", "Waits for"] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    let json = ask(&["greeting", "world", "-n", "tutorial", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["lastRun"]["result"], "success");
    assert!(json["waiting"]["dueInMs"].as_u64().is_some_and(|due| due > 0), "{json}");
    let nobody = ask(&["greeting", "nobody", "-n", "tutorial"]);
    assert!(stderr(&nobody).contains("Greeting tutorial/nobody does not exist"), "{nobody:?}");
    let unknown = ask(&["teapot", "world"]);
    assert!(stderr(&unknown).contains("it has plugins for: Greeting"), "{unknown:?}");
}

/// A collector that takes one request: its address, and where head and body arrive.
fn collector() -> (String, std::sync::mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, spans) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head).unwrap();
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        let mut body = vec![0; length.unwrap()];
        stream.read_exact(&mut body).unwrap();
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        sender.send((head, String::from_utf8_lossy(&body).into_owned()))
    });
    (address, spans)
}
