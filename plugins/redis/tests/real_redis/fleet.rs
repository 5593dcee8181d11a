//! A fleet of real Redis servers, and everything around the plugin, played in a few hundred lines.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use operator_host_sdk::{
    Action, ActionOutcome, Answer, Decision, EventKind, ObjectQuery, Outcome, Ownership, Problem,
    Query, Reply, Snapshot, Time, Verdict, testing,
};
use redis_plugin::RedisPlugin;
use serde_json::{Value, json};

use crate::resp::Connection;

const ROLE: &str = "redis.operator-host.dev/role";

/// The third part of the addresses 127.<process>.<fleet>.<pod>: fleets run side by side.
static FLEETS: AtomicU8 = AtomicU8::new(1);

struct FakePod {
    uid: String,
    ip: String,
    child: Option<Child>,
    restarts: u32,
    started: String,
    role: Option<String>,
    revision: String,
}

/// One RedisCluster with everything it needs.
pub(crate) struct Fleet {
    name: String,
    directory: tempfile::TempDir,
    network: String,
    spec: Value,
    generation: u64,
    status: Option<Value>,
    workload: Option<Value>,
    config: String,
    pods: BTreeMap<String, FakePod>,
    volumes: BTreeMap<String, PathBuf>,
    addresses: u8,
    previous: Option<Outcome>,
    requeue: Duration,
    changed: bool,
    /// Every event, as `Reason: note`.
    pub(crate) events: Vec<String>,
    /// Pods the plugin deleted.
    pub(crate) deletions: usize,
    /// Pods the plugin deleted in one decision, at most.
    pub(crate) deletions_max: usize,
    marked: Instant,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for pod in self.pods.values_mut() {
            stop(pod);
        }
    }
}

fn stop(pod: &mut FakePod) {
    if let Some(mut child) = pod.child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Time::from_unix(i64::try_from(seconds).unwrap()).unwrap().to_string()
}

impl Fleet {
    pub(crate) fn new(name: &str, spec: Value) -> Self {
        let found = Command::new("redis-server").arg("--version").output();
        assert!(found.is_ok(), "redis-server is not installed: apt-get install redis-server");
        let network = format!(
            "127.{}.{}",
            64 + std::process::id() % 128,
            FLEETS.fetch_add(1, Ordering::Relaxed)
        );
        Self {
            name: name.to_owned(),
            directory: tempfile::tempdir().unwrap(),
            network,
            spec,
            generation: 1,
            status: None,
            workload: None,
            config: String::new(),
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            addresses: 0,
            previous: None,
            requeue: Duration::ZERO,
            changed: false,
            events: Vec::new(),
            deletions: 0,
            deletions_max: 0,
            marked: Instant::now(),
        }
    }

    // The host.

    /// Reconciles until `condition` holds; how long that took.
    pub(crate) fn run_until(
        &mut self,
        what: &str,
        patience: Duration,
        condition: impl Fn(&Self) -> bool,
    ) -> Duration {
        let start = Instant::now();
        loop {
            self.changed = false;
            self.reconcile();
            let again = Instant::now() + self.requeue;
            // Woken as in the host: by a pod that changed, or by the plugin's own wish, and by nothing else.
            loop {
                if condition(self) {
                    return start.elapsed();
                }
                assert!(
                    start.elapsed() < patience,
                    "{}: not {what} after {patience:?}\nstatus: {:#}\nevents: {:#?}\nprevious: {:#?}",
                    self.name,
                    self.status.clone().unwrap_or_default(),
                    self.events,
                    self.previous
                );
                if self.changed || Instant::now() >= again {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn reconcile(&mut self) {
        self.control_stateful_set();
        let mut snapshot = self.snapshot();
        let decision = loop {
            match testing::call::<RedisPlugin>(snapshot.clone()).expect("a decision") {
                Verdict::Decide(decision) => break decision,
                Verdict::Ask(queries) => {
                    for query in queries {
                        let reply = self.answer(&query);
                        snapshot.answers.push(Answer { query, reply });
                    }
                }
            }
        };
        self.apply(decision);
        self.control_stateful_set();
        let masters =
            self.pods.values().filter(|pod| pod.role.as_deref() == Some("master")).count();
        let shards = if self.spec["clusterMode"] == json!(true) { 16 } else { 1 };
        assert!(masters <= shards, "{masters} pods are labelled master");
    }

    fn snapshot(&self) -> Snapshot {
        let mut parent = json!({
            "apiVersion": "redis.operator-host.dev/v1alpha1",
            "kind": "RedisCluster",
            "metadata": {"name": self.name, "namespace": "test", "uid": "parent", "generation": self.generation},
            "spec": self.spec,
        });
        if let Some(status) = &self.status {
            parent["status"] = status.clone();
        }
        let mut snapshot = testing::snapshot(&parent);
        snapshot.now = now();
        snapshot.children.extend(self.workload.as_ref().map(testing::object));
        snapshot.previous.clone_from(&self.previous);
        snapshot
    }

    fn answer(&self, query: &Query) -> Reply {
        match query {
            Query::Objects(ObjectQuery { kind, .. }) => {
                assert_eq!(kind.kind, "Pod");
                Reply::Objects(
                    self.pods
                        .iter()
                        .map(|(name, pod)| testing::object(&Self::pod_object(name, pod)))
                        .collect(),
                )
            }
            Query::Probe(probe) => {
                Reply::Probe(self.probe(&serde_json::from_str(&probe.request).unwrap()).to_string())
            }
        }
    }

    fn pod_object(name: &str, pod: &FakePod) -> Value {
        let mut labels = json!({"controller-revision-hash": pod.revision});
        if let Some(role) = &pod.role {
            labels[ROLE] = json!(role);
        }
        let state = if pod.child.is_some() {
            json!({"running": {"startedAt": pod.started}})
        } else {
            json!({"terminated": {"exitCode": 137}})
        };
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "test", "uid": pod.uid, "labels": labels,
                "ownerReferences": [{"uid": "workload", "controller": true}],
            },
            "status": {
                "phase": "Running",
                "podIP": pod.ip,
                "conditions": [{"type": "Ready", "status": if pod.child.is_some() { "True" } else { "False" }}],
                "containerStatuses": [{"name": "redis", "restartCount": pod.restarts, "state": state}],
            },
        })
    }

    fn probe(&self, request: &Value) -> Value {
        match self.call(request) {
            Ok((address, replies)) => {
                json!({"reachable": true, "address": address, "replies": replies})
            }
            Err(error) => {
                let class = match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => "refused",
                    std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => "timeout",
                    _ => "unreachable",
                };
                json!({"reachable": false, "error": {"class": class, "message": error.to_string()}})
            }
        }
    }

    fn call(&self, request: &Value) -> std::io::Result<(String, Vec<Value>)> {
        let pod = &self.pods[request["pod"].as_str().unwrap()];
        assert_eq!(request["podUid"], pod.uid);
        let mut connection = Connection::open(&pod.ip)?;
        let mut replies = Vec::new();
        for command in request["commands"].as_array().unwrap() {
            let words: Vec<String> =
                command.as_array().unwrap().iter().map(|word| self.word(word)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            replies.push(connection.call(&words)?);
        }
        Ok((pod.ip.clone(), replies))
    }

    fn word(&self, word: &Value) -> String {
        match word.get("podIp") {
            Some(pod) => self.pods[pod.as_str().unwrap()].ip.clone(),
            None => word.as_str().unwrap().to_owned(),
        }
    }

    fn apply(&mut self, decision: Decision) {
        let mut outcome = Outcome { objects: Vec::new(), actions: Vec::new() };
        for object in decision.objects {
            let body: Value = serde_json::from_str(&object.body).unwrap();
            let name = body["metadata"]["name"].as_str().unwrap();
            match body["kind"].as_str().unwrap() {
                "Pod" => {
                    assert_eq!(object.ownership, Ownership::Partial);
                    let role = body["metadata"]["labels"][ROLE].as_str().map(str::to_owned);
                    self.pods.get_mut(name).unwrap().role = role;
                }
                "ConfigMap" => {
                    body["data"]["redis.conf"].as_str().unwrap().clone_into(&mut self.config);
                }
                "StatefulSet" => self.accept_workload(body),
                _ => {}
            }
        }
        let deletions =
            decision.actions.iter().filter(|action| action.provider == "kubernetes").count();
        self.deletions += deletions;
        self.deletions_max = self.deletions_max.max(deletions);
        for action in decision.actions {
            let result = self.act(&action);
            let failed = result.is_err();
            outcome.actions.push(ActionOutcome { action, result });
            if failed {
                break;
            }
        }
        self.previous = Some(outcome);
        self.status = decision.status.map(|status| serde_json::from_str(&status).unwrap());
        for event in decision.events {
            let mark = if event.kind == EventKind::Warning { "!" } else { "" };
            self.events.push(format!("{mark}{}: {}", event.reason, event.note));
        }
        self.requeue = Duration::from_millis(decision.requeue_after_ms.unwrap_or(60_000).into());
    }

    fn accept_workload(&mut self, mut body: Value) {
        let generation =
            self.workload.as_ref().map_or(0, |old| old["metadata"]["generation"].as_u64().unwrap());
        let changed = self.workload.as_ref().is_none_or(|old| old["spec"] != body["spec"]);
        let mut hasher = DefaultHasher::new();
        body["spec"]["template"].to_string().hash(&mut hasher);
        // The controller answers a change with a new status, which wakes.
        self.changed |= changed;
        let generation = generation + u64::from(changed);
        body["metadata"]["uid"] = json!("workload");
        body["metadata"]["generation"] = json!(generation);
        body["status"] = json!({"observedGeneration": generation, "updateRevision": format!("{:x}", hasher.finish())});
        self.workload = Some(body);
    }

    fn act(&mut self, action: &Action) -> Result<String, Problem> {
        let request: Value = serde_json::from_str(&action.request).unwrap();
        if action.provider == "kubernetes" {
            let name = request["delete"]["name"].as_str().unwrap().to_owned();
            assert_eq!(request["delete"]["uid"], self.pods[&name].uid);
            self.delete(&name);
            return Ok("{}".to_owned());
        }
        let problem = |message: String| Problem { reason: "RedisError".to_owned(), message };
        let (_, replies) = self.call(&request).map_err(|error| problem(error.to_string()))?;
        match replies.iter().find(|reply| reply.get("error").is_some()) {
            Some(error) => Err(problem(format!("{}: {error}", request["commands"]))),
            None => Ok("{}".to_owned()),
        }
    }

    // The StatefulSet controller and the kubelet.

    fn control_stateful_set(&mut self) {
        let Some(workload) = self.workload.clone() else { return };
        let replicas = u32::try_from(workload["spec"]["replicas"].as_u64().unwrap()).unwrap();
        let wanted: Vec<String> = (0..replicas).map(|ordinal| self.pod_name(ordinal)).collect();
        let leaving: Vec<String> =
            self.pods.keys().filter(|name| !wanted.contains(name)).cloned().collect();
        for name in leaving {
            self.delete(&name);
        }
        for name in wanted {
            if !self.pods.contains_key(&name) {
                self.create(&name, workload["status"]["updateRevision"].as_str().unwrap());
            }
        }
    }

    fn create(&mut self, name: &str, revision: &str) {
        self.addresses += 1;
        let ip = format!("{}.{}", self.network, self.addresses);
        let persistent = self.spec.get("storage").is_some();
        let data = match self.volumes.get(name) {
            Some(data) if persistent => data.clone(),
            _ => self.directory.path().join(format!("{name}-{}", self.addresses)),
        };
        std::fs::create_dir_all(&data).unwrap();
        self.volumes.insert(name.to_owned(), data);
        let pod = FakePod {
            uid: format!("uid-{}", self.addresses),
            ip,
            child: None,
            restarts: 0,
            started: now(),
            role: None,
            revision: revision.to_owned(),
        };
        self.pods.insert(name.to_owned(), pod);
        self.start(name);
    }

    /// Runs the container's command, with its two mounts replaced by directories.
    fn start(&mut self, name: &str) {
        self.changed = true;
        let data = self.volumes[name].clone();
        let config = data.with_extension("conf");
        std::fs::create_dir_all(&config).unwrap();
        let here = |text: &str| {
            text.replace("/etc/redis", &config.display().to_string())
                .replace("/data", &data.display().to_string())
        };
        std::fs::write(config.join("redis.conf"), here(&self.config)).unwrap();
        let container =
            &self.workload.as_ref().unwrap()["spec"]["template"]["spec"]["containers"][0];
        let command: Vec<String> = container["command"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| here(word.as_str().unwrap()))
            .collect();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(data.with_extension("log"))
            .unwrap();
        let pod = self.pods.get_mut(name).unwrap();
        let child = Command::new(&command[0])
            .args(&command[1..])
            .env("POD_IP", &pod.ip)
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .unwrap();
        pod.child = Some(child);
        pod.started = now();
    }

    // What happens to pods.

    /// The process dies, and stays dead until `restart`.
    pub(crate) fn kill(&mut self, name: &str) {
        self.changed = true;
        stop(self.pods.get_mut(name).unwrap());
    }

    /// The kubelet starts the container again: same address, same directory. Returns once it listens.
    pub(crate) fn restart(&mut self, name: &str) {
        self.restart_in_background(name);
        let start = Instant::now();
        while !self.answers(name) {
            assert!(start.elapsed() < Duration::from_secs(10), "{name} does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The same, without waiting.
    pub(crate) fn restart_in_background(&mut self, name: &str) {
        self.pods.get_mut(name).unwrap().restarts += 1;
        self.start(name);
    }

    /// The pod is deleted; its successor has another address, and another directory unless there is a volume.
    pub(crate) fn delete(&mut self, name: &str) {
        self.changed = true;
        let mut pod = self.pods.remove(name).unwrap();
        stop(&mut pod);
        self.marked = Instant::now();
    }

    /// The same, and the volume is gone too.
    pub(crate) fn delete_with_volume(&mut self, name: &str) {
        self.delete(name);
        self.volumes.remove(name);
    }

    /// The user changes the spec.
    pub(crate) fn change_spec(&mut self, change: &Value) {
        for (key, value) in change.as_object().unwrap() {
            self.spec[key] = value.clone();
        }
        self.generation += 1;
    }

    // What is seen from outside.

    pub(crate) fn pod_name(&self, ordinal: u32) -> String {
        format!("{}-redis-{ordinal}", self.name)
    }

    pub(crate) fn pods(&self) -> Vec<String> {
        self.pods.keys().cloned().collect()
    }

    pub(crate) fn phase(&self) -> &str {
        self.status.as_ref().and_then(|status| status["phase"].as_str()).unwrap_or_default()
    }

    pub(crate) fn labels(&self, name: &str) -> Option<String> {
        self.pods[name].role.clone()
    }

    pub(crate) fn labelled_master(&self) -> Option<String> {
        self.pods
            .iter()
            .find(|(_, pod)| pod.role.as_deref() == Some("master"))
            .map(|(name, _)| name.clone())
    }

    /// The pod in the master Service, which must be what the status says.
    pub(crate) fn master(&self) -> String {
        let master = self.labelled_master().expect("a master");
        assert_eq!(self.status.as_ref().unwrap()["master"], master);
        master
    }

    pub(crate) fn told(&self, reason: &str) -> bool {
        self.events
            .iter()
            .any(|event| event.trim_start_matches('!').starts_with(&format!("{reason}:")))
    }

    pub(crate) fn all_pods_are_current(&self) -> bool {
        let revision = &self.workload.as_ref().unwrap()["status"]["updateRevision"];
        self.pods.values().all(|pod| *revision == pod.revision)
    }

    pub(crate) fn uptimes_are_new(&self) -> bool {
        let seconds = self.marked.elapsed().as_secs() + 1;
        self.pods().iter().all(|pod| {
            self.info(pod, "uptime_in_seconds")
                .is_some_and(|uptime| uptime.parse::<u64>().unwrap() <= seconds)
        })
    }

    /// Runs that change nothing and say nothing (corpus B36).
    pub(crate) fn assert_steady(&mut self) {
        self.run_until("settled", Duration::from_secs(30), |fleet| {
            fleet.requeue == Duration::from_mins(1)
        });
        let before = (self.status.clone(), self.workload.clone(), self.events.len());
        for _ in 0..3 {
            self.reconcile();
            assert!(self.previous.as_ref().unwrap().actions.is_empty());
            assert_eq!((self.status.clone(), self.workload.clone(), self.events.len()), before);
        }
    }

    // Clients.

    fn connect(&self, name: &str) -> Option<Connection> {
        Connection::open(&self.pods.get(name)?.ip).ok()
    }

    fn text(&self, name: &str, words: &[&str]) -> Option<String> {
        self.connect(name)?.call(words).ok()?["text"].as_str().map(str::to_owned)
    }

    fn info(&self, name: &str, field: &str) -> Option<String> {
        let info = self.text(name, &["INFO"])?;
        info.lines()
            .find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(':'))
            .map(str::to_owned)
    }

    pub(crate) fn answers(&self, name: &str) -> bool {
        self.text(name, &["PING"]).is_some()
    }

    pub(crate) fn keys(&self, name: &str) -> usize {
        let reply = self.connect(name).and_then(|mut connection| connection.call(&["DBSIZE"]).ok());
        reply
            .and_then(|reply| reply["integer"].as_u64())
            .map_or(0, |count| usize::try_from(count).unwrap())
    }

    pub(crate) fn write_keys(&self, name: &str, count: usize) {
        let mut connection = self.connect(name).expect("a connection");
        for key in 0..count {
            let reply = connection.call(&["SET", &format!("key-{key}"), "value"]).unwrap();
            assert_eq!(reply["text"], "OK", "{reply}");
        }
    }

    /// Until every replica has what the master has.
    pub(crate) fn wait_for_replicas(&self, master: &str) {
        let others = (self.pods.len() - 1).to_string();
        let mut connection = self.connect(master).unwrap();
        // WAIT is about what its own connection has written before.
        connection.call(&["SET", "key-0", "value"]).unwrap();
        let reply = connection.call(&["WAIT", &others, "5000"]).unwrap();
        assert_eq!(reply["integer"].to_string(), others);
    }

    pub(crate) fn wait_for_cluster_replicas(&self) {
        for pod in self.pods() {
            if self.info(&pod, "role").as_deref() == Some("master") {
                let reply = self.connect(&pod).unwrap().call(&["WAIT", "1", "5000"]).unwrap();
                assert_eq!(reply["integer"], 1, "{pod}");
            }
        }
    }

    /// Makes sure that what was written is on disk: `appendfsync everysec` may take a second.
    pub(crate) fn flush_append_only_file(&self, name: &str) {
        let start = Instant::now();
        self.connect(name).unwrap().call(&["CONFIG", "SET", "appendfsync", "always"]).unwrap();
        self.connect(name).unwrap().call(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
        while self.info(name, "aof_pending_bio_fsync").as_deref() != Some("0")
            || self.info(name, "aof_buffer_length").as_deref() != Some("0")
        {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn flush_all_append_only_files(&self) {
        for pod in self.pods() {
            self.flush_append_only_file(&pod);
        }
    }

    /// Somebody else than the operator moves the master, as a person may.
    pub(crate) fn hand_over_to(&self, name: &str) {
        let words = ["FAILOVER", "TO", &self.pods[name].ip, "6379", "TIMEOUT", "5000"];
        let reply = self.connect(&self.master()).unwrap().call(&words).unwrap();
        assert_eq!(reply["text"], "OK", "{reply}");
        let start = Instant::now();
        while self.info(name, "role").as_deref() != Some("master") {
            assert!(start.elapsed() < Duration::from_secs(10), "no failover to {name}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    // Redis Cluster.

    /// A key for each slot range, written wherever its slot is.
    pub(crate) fn write_cluster_keys(&self, count: usize) {
        for key in 0..count {
            let name = format!("key-{key}");
            let written = self.pods().iter().any(|pod| {
                let reply = self
                    .connect(pod)
                    .and_then(|mut connection| connection.call(&["SET", &name, "value"]).ok());
                reply.is_some_and(|reply| reply["text"] == "OK")
            });
            assert!(written, "nobody takes {name}");
        }
    }

    /// Keys on masters.
    pub(crate) fn cluster_keys(&self) -> usize {
        let pods = self.pods();
        let masters = pods.iter().filter(|pod| self.info(pod, "role").as_deref() == Some("master"));
        masters.map(|pod| self.keys(pod)).sum()
    }

    fn cluster_info(&self, name: &str, field: &str) -> Option<String> {
        let info = self.text(name, &["CLUSTER", "INFO"])?;
        info.lines()
            .find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(':'))
            .map(str::to_owned)
    }

    pub(crate) fn known_nodes_max(&self) -> u32 {
        let known = |pod: &String| {
            self.cluster_info(pod, "cluster_known_nodes").and_then(|text| text.parse().ok())
        };
        self.pods().iter().filter_map(known).max().unwrap_or(0)
    }

    pub(crate) fn every_node_is_up(&self) -> bool {
        self.pods().iter().all(|pod| {
            self.text(pod, &["CLUSTER", "NODES"]).is_some_and(|table| !table.contains("fail"))
                && self.cluster_info(pod, "cluster_state").as_deref() == Some("ok")
        })
    }

    /// Every slot has an owner, and every owner this many replicas with a working link.
    pub(crate) fn assert_slots_covered(&self, shards: usize, replicas: usize) {
        let pods = self.pods();
        let role = |pod: &String| self.info(pod, "role");
        let masters: Vec<&String> =
            pods.iter().filter(|pod| role(pod).as_deref() == Some("master")).collect();
        assert_eq!(masters.len(), shards);
        for master in masters {
            assert_eq!(
                self.info(master, "connected_slaves").unwrap(),
                replicas.to_string(),
                "{master}"
            );
        }
        for pod in &pods {
            assert_eq!(
                self.cluster_info(pod, "cluster_slots_assigned").as_deref(),
                Some("16384"),
                "{pod}"
            );
        }
    }
}
