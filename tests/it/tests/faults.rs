//! Faults on the real control plane. After each: converged, nothing lost, nothing written twice, others undisturbed.
//!
//! Every test has a host of its own behind a proxy of its own, which looks at the test's namespaces only; what hurts
//! the cluster itself happens while no other test runs.

#![cfg(test)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use devcluster::{Signal, wait_for};
use faults::{Asked, Fault, Moment, Traffic, WatchEnd};
use it::api::{Api, path};
use it::rig::{Rig, Staged};
use it::{PATIENCE, condition};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, RwLock};

/// Never dropped: the kernel ends the cluster with this process.
static STAGED: OnceCell<Staged> = OnceCell::const_new();

/// Written by who hurts the whole cluster.
static WORLD: RwLock<()> = RwLock::const_new(());

async fn staged() -> &'static Staged {
    STAGED.get_or_init(|| async { Staged::start().await.unwrap() }).await
}

/// Waits until a Puppet's last spec is carried out.
async fn pulled(api: &Api, namespace: &str, name: &str) -> Value {
    let at = path("puppets", namespace, name);
    let what = format!("{namespace}/{name} to be as its spec says");
    let done = api.until(&what, &at, |parent| {
        parent["status"]["observedGeneration"] == parent["metadata"]["generation"]
            && condition(parent, "Reconciled", "status") == "True"
    });
    done.await.unwrap()
}

/// Waits until a child has this text.
async fn says(api: &Api, namespace: &str, name: &str, text: &str) -> Value {
    let at = path("configmaps", namespace, name);
    let what = format!("{namespace}/{name} to say {text:?}");
    api.until(&what, &at, |child| child["data"]["text"] == text).await.unwrap()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Waits until nothing has been written for two seconds.
async fn quiet(rig: &Rig) {
    wait_for("no write for two seconds", PATIENCE, || async {
        let mark = rig.proxy.mark();
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(rig.proxy.since(mark).of(Asked::is_write).is_empty().then_some(()))
    })
    .await
    .unwrap();
}

/// Events apart: that something happened twice is written twice.
fn objects(traffic: &Traffic) -> Traffic {
    traffic.of(|asked| asked.resource() != "events")
}

/// Nothing written twice: no write that left its object as it was, none that put back what was replaced.
fn nothing_twice(traffic: &Traffic, idle_max: usize) {
    let traffic = objects(traffic);
    let (idle, reversals) = (traffic.idle_writes(), traffic.reversals());
    assert!(idle.len() <= idle_max, "writes that changed nothing:\n{idle}");
    let history = traffic.of(|asked| reversals.0.iter().any(|one| one.asked.path == asked.path));
    assert!(reversals.is_empty(), "writes that put back what was replaced, among\n{history}");
}

/// A small world under one host: a Puppet with children and a Redis with a key, which meet the faults, and a Greeting
/// in another namespace, which must not notice those that are aimed at the first.
struct World {
    rig: Rig,
    namespace: String,
    bystander: String,
    round: usize,
    children: Vec<String>,
    mark: usize,
}

const CHILDREN: [&str; 3] = ["a", "b", "c"];

impl World {
    async fn new(name: &str) -> Self {
        let (namespace, bystander) = (name.to_owned(), format!("{name}-bystander"));
        let rig = staged().await.rig(&[&namespace, &bystander]).await.unwrap();
        let redis = json!({"apiVersion": "redis.operator-host.dev/v1alpha1", "kind": "RedisCluster",
            "metadata": {"name": "kept"}, "spec": {"replicas": 2}});
        rig.api.apply(&path("redisclusters", &namespace, "kept"), &redis).await.unwrap();
        let mut world = Self { rig, namespace, bystander, round: 0, children: Vec::new(), mark: 0 };
        world.change().await;
        world.converges(0).await;
        for child in CHILDREN {
            let at = path("configmaps", &world.namespace, child);
            world.children.push(uid(&world.rig.api.get(&at).await.unwrap()));
        }
        let address = master_address(&world.rig.api, &world.namespace, "kept").await;
        redis_set(&address, "key", "kept");
        world.mark = world.rig.proxy.mark();
        world
    }

    fn text(&self) -> String {
        format!("round {}", self.round)
    }

    /// Something new to do for the Puppet.
    async fn change(&mut self) {
        self.round += 1;
        let spec = json!({"own": CHILDREN, "text": self.text()});
        self.rig.api.puppet(&self.namespace, "p", &spec).await.unwrap();
    }

    /// The bystander's work goes on; gives how long one change took.
    async fn bystander_is_served(&self) -> Duration {
        let started = Instant::now();
        let greeted = format!("round-{}-{}", self.round, self.rig.proxy.mark());
        self.rig.api.greeting(&self.bystander, "g", &greeted).await.unwrap();
        says(&self.rig.api, &self.bystander, "g", &format!("Hello, {greeted}!")).await;
        started.elapsed()
    }

    /// Everything is as it should be, and nothing was lost or written twice on the way.
    async fn converges(&mut self, idle_max: usize) {
        let api = &self.rig.api;
        for child in CHILDREN {
            says(api, &self.namespace, child, &self.text()).await;
        }
        pulled(api, &self.namespace, "p").await;
        redis_ready(api, &self.namespace, "kept").await;
        self.bystander_is_served().await;
        quiet(&self.rig).await;
        let traffic = self.rig.proxy.since(self.mark);
        nothing_twice(&traffic, idle_max);
        assert!(traffic.deletions().is_empty(), "{}", traffic.deletions());
        if !self.children.is_empty() {
            for (child, uid_before) in CHILDREN.iter().zip(&self.children) {
                let now = api.get(&path("configmaps", &self.namespace, child)).await.unwrap();
                assert_eq!(uid(&now), *uid_before, "{child} is another object now");
            }
            let address = master_address(api, &self.namespace, "kept").await;
            assert_eq!(redis_get(&address, "key").as_deref(), Some("kept"));
        }
        self.mark = self.rig.proxy.mark();
    }

    /// The pods, by uid: who is here may not be evicted by what the control plane suffers.
    async fn pods(&self) -> Vec<String> {
        let pods = self.rig.api.items(&path("pods", &self.namespace, "")).await.unwrap();
        pods.iter().map(uid).collect()
    }
}

async fn redis_ready(api: &Api, namespace: &str, name: &str) -> Value {
    let at = path("redisclusters", namespace, name);
    let what = format!("{namespace}/{name} to be Ready");
    let ready = api.until(&what, &at, |parent| {
        condition(parent, "Ready", "status") == "True"
            && parent["status"]["observedGeneration"] == parent["metadata"]["generation"]
    });
    ready.await.unwrap()
}

fn master(parent: &Value) -> String {
    parent["status"]["master"].as_str().unwrap_or_default().to_owned()
}

async fn address(api: &Api, namespace: &str, pod: &str) -> String {
    let pod = api.get(&path("pods", namespace, pod)).await.unwrap();
    pod["status"]["podIP"].as_str().unwrap().to_owned()
}

async fn master_address(api: &Api, namespace: &str, name: &str) -> String {
    let parent = redis_ready(api, namespace, name).await;
    address(api, namespace, &master(&parent)).await
}

fn connect(address: &str) -> anyhow::Result<redis::Connection> {
    let client = redis::Client::open(format!("redis://{address}:6379"))?;
    Ok(client.get_connection_with_timeout(Duration::from_secs(2))?)
}

fn redis_set(address: &str, key: &str, value: &str) {
    let mut connection = connect(address).unwrap();
    redis::cmd("SET").arg(key).arg(value).query::<()>(&mut connection).unwrap();
    let copies: u32 = redis::cmd("WAIT").arg(1).arg(10_000).query(&mut connection).unwrap();
    assert_eq!(copies, 1, "the replica has not got {key}");
}

fn redis_get(address: &str, key: &str) -> Option<String> {
    redis::cmd("GET").arg(key).query(&mut connect(address).unwrap()).unwrap()
}

fn role(address: &str) -> anyhow::Result<String> {
    let info: String = redis::cmd("INFO").arg("replication").query(&mut connect(address)?)?;
    let role = info.lines().find_map(|line| line.strip_prefix("role:"));
    Ok(role.unwrap_or_default().trim().to_owned())
}

/// Waits until there is one master: by its own word, by its label and by the status, with every pod there.
async fn one_master(api: &Api, namespace: &str, name: &str) -> String {
    let at = path("redisclusters", namespace, name);
    wait_for(&format!("{namespace}/{name} to have one master"), PATIENCE, || async {
        let parent = api.get(&at).await?;
        let pods = api.items(&path("pods", namespace, "")).await?;
        let prefix = format!("{name}-");
        let named = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut masters = Vec::new();
        let mut count = 0_u64;
        for pod in pods.iter().filter(|pod| named(pod).starts_with(&prefix)) {
            let labelled = pod["metadata"]["labels"]["redis.operator-host.dev/role"] == "master";
            let is_master = role(pod["status"]["podIP"].as_str().unwrap_or_default())? == "master";
            anyhow::ensure!(is_master == labelled, "{} is labelled wrongly", named(pod));
            masters.extend(is_master.then(|| named(pod)));
            count += 1;
        }
        let ready = condition(&parent, "Ready", "status") == "True"
            && parent["spec"]["replicas"] == count
            && parent["status"]["readyReplicas"] == count;
        anyhow::ensure!(ready && masters == [master(&parent)], "{masters:?}, {}", parent["status"]);
        Ok(masters.pop())
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn an_api_server_killed_and_an_etcd_away_for_15_s_cost_nothing() {
    let staged = staged().await;
    let _alone = WORLD.write().await;
    let mut world = World::new("servers").await;
    let pods = world.pods().await;
    staged.cluster.kill_apiserver().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    staged.cluster.start_apiserver().await.unwrap();
    world.change().await;
    world.converges(0).await;

    staged.cluster.stop_etcd().await.unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(world.rig.host.is_running());
    staged.cluster.start_etcd().await.unwrap();
    world.change().await;
    world.converges(0).await;
    assert_eq!(world.pods().await, pods, "pods were evicted");
}

#[tokio::test]
async fn watches_that_are_cut_compacted_or_end_at_once_hide_nothing() {
    let _shared = WORLD.read().await;
    let mut world = World::new("watches").await;
    let here = world.namespace.clone();
    let of_here = move |asked: &Asked| asked.namespace() == here;

    // Cut, again and again, while there is something to do.
    for _ in 0..3 {
        wait_for("a watch to cut", PATIENCE, || async {
            Ok((world.rig.proxy.end_watches(WatchEnd::Cut, &of_here) > 0).then_some(()))
        })
        .await
        .unwrap();
        world.change().await;
    }
    world.converges(0).await;

    // Compacted, in both forms, while nothing can be seen: a child vanishes, another text comes.
    for form in [Fault::Refuse(410), Fault::ExpireInStream] {
        let blind = world.rig.proxy.inject(Fault::Hang, of_here.clone());
        world.rig.proxy.end_watches(WatchEnd::Cut, &of_here);
        let lost = path("configmaps", &world.namespace, "a");
        let before = uid(&world.rig.api.get(&lost).await.unwrap());
        world.rig.api.delete(&lost, "Background").await.unwrap();
        let of_here_too = of_here.clone();
        // Each kind's first watch is told that its version is gone; it lists, and the next one works.
        let seen = Mutex::new(std::collections::BTreeSet::new());
        let expired = world.rig.proxy.inject(form, move |asked| {
            of_here_too(asked)
                && asked.is_watch()
                && seen.lock().unwrap().insert(asked.path.clone())
        });
        drop(blind);
        assert!(world.bystander_is_served().await < Duration::from_secs(5));
        let again = world.rig.api.until("the child to come back", &lost, |child| {
            child["metadata"]["uid"] != before.as_str()
        });
        world.children[0] = uid(&again.await.unwrap());
        assert!(expired.hits() > 0, "no watch was told {form:?}");
        drop(expired);
        world.change().await;
        world.converges(0).await;
    }

    // An open watch that expires in the middle.
    assert!(world.rig.proxy.end_watches(WatchEnd::Expired, &of_here) > 0);
    world.change().await;
    world.converges(0).await;

    // Watches that end at once: few requests, and no blindness, since the list is taken again.
    let mark = world.rig.proxy.mark();
    let of_here_too = of_here.clone();
    let short = world
        .rig
        .proxy
        .inject(Fault::EndAtOnce, move |asked| asked.is_watch() && of_here_too(asked));
    world.rig.proxy.end_watches(WatchEnd::Clean, &of_here);
    world.change().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(world.bystander_is_served().await < Duration::from_secs(5));
    let looks = world.rig.proxy.since(mark).of(|asked| of_here(asked) && !asked.is_write());
    // Ten kinds in eight seconds: at 0.8 s, 2.4 s and 5.6 s, three watches and one list each, and a quarter of jitter.
    assert!(looks.len() <= 60, "{} requests:\n{looks}", looks.len());
    assert!(short.hits() >= 6);
    drop(short);
    world.converges(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_met_a_conflict_is_written_all_the_same() {
    let _shared = WORLD.read().await;
    let mut world = World::new("conflict").await;
    let (here, refusals) = (world.namespace.clone(), AtomicUsize::new(0));
    let refused = world.rig.proxy.inject(Fault::Refuse(409), move |asked| {
        asked.is_status()
            && asked.resource() == "puppets"
            && asked.namespace() == here
            && refusals.fetch_add(1, Ordering::Relaxed) < 3
    });
    world.change().await;
    world.converges(0).await;
    assert_eq!(refused.hits(), 3);
}

#[tokio::test]
async fn storms_of_429_and_5xx_are_weathered_without_a_flood() {
    let _shared = WORLD.read().await;
    let mut world = World::new("storm").await;
    let here = world.namespace.clone();
    let turn = Arc::new(AtomicUsize::new(0));
    let mark = world.rig.proxy.mark();
    let mut storm = Vec::new();
    for (index, code) in [429, 500, 503].into_iter().enumerate() {
        let (here, turn) = (here.clone(), Arc::clone(&turn));
        storm.push(world.rig.proxy.inject(Fault::Refuse(code), move |asked| {
            // The first rule counts; a request that none refuses does not exist.
            let count = if index == 0 {
                turn.fetch_add(1, Ordering::Relaxed)
            } else {
                turn.load(Ordering::Relaxed) - 1
            };
            asked.namespace() == here && (count % 3 == index || index == 2)
        }));
    }
    world.rig.proxy.end_watches(WatchEnd::Cut, |asked| asked.namespace() == here);
    world.change().await;
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    while started.elapsed() < Duration::from_secs(10) {
        slowest = slowest.max(world.bystander_is_served().await);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let refused: usize = storm.iter().map(faults::Injected::hits).sum();
    drop(storm);
    assert!(slowest < Duration::from_secs(5), "the bystander waited {slowest:?}");
    let asked = world.rig.proxy.since(mark).of(|asked| asked.namespace() == here);
    assert!(refused >= 3 && asked.len() <= 200, "{} requests, {refused} refused", asked.len());
    world.converges(0).await;
}

#[tokio::test]
async fn under_a_watch_10_s_late_each_child_is_created_once_and_nothing_flips() {
    let _shared = WORLD.read().await;
    let staged = staged().await;
    let rig = staged.rig(&["late"]).await.unwrap();
    let late = rig.proxy.inject(Fault::Lag(Duration::from_secs(10)), |_| true);
    let children = ["a", "b", "c", "d"];
    rig.api.puppet("late", "p", &json!({"own": children, "text": "one"})).await.unwrap();
    for child in children {
        says(&rig.api, "late", child, "one").await;
    }
    // Changed twice, and a child is lost, all before the first of it can be seen.
    rig.api.puppet("late", "p", &json!({"own": children, "text": "two"})).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.api.puppet("late", "p", &json!({"own": children, "text": "three"})).await.unwrap();
    rig.api.delete(&path("configmaps", "late", "a"), "Background").await.unwrap();
    for child in children {
        says(&rig.api, "late", child, "three").await;
    }
    pulled(&rig.api, "late", "p").await;
    drop(late);
    quiet(&rig).await;
    let traffic = rig.proxy.since(0);
    let created = traffic.of(|asked| asked.resource() == "configmaps").creations();
    assert_eq!(created.len(), children.len() + 1, "one each, and the lost one again:\n{created}");
    assert!(traffic.deletions().is_empty(), "{}", traffic.deletions());
    nothing_twice(&traffic, 0);
}

#[tokio::test]
async fn what_may_not_be_seen_is_not_taken_for_gone() {
    let _alone = WORLD.write().await;
    let staged = staged().await;
    let rig = staged.rig(&["rights", "rights-bystander"]).await.unwrap();
    let own = json!({"own": ["a", "b", "c"], "text": "one"});
    rig.api.puppet("rights", "p", &own).await.unwrap();
    pulled(&rig.api, "rights", "p").await;
    let mark = rig.proxy.mark();
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/operator-host-puppet";
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/operator-host-puppet";
    let whole = rig.api.get(role).await.unwrap();

    // One kind of several: the parent says so, and nothing is deleted, although its spec wants nothing any more.
    let rules = whole["rules"].as_array().unwrap().clone();
    let less: Vec<_> =
        rules.iter().filter(|rule| rule["resources"] != json!(["serviceaccounts"])).collect();
    assert_eq!(less.len() + 1, rules.len());
    rig.api.merge(role, &json!({"rules": less})).await.unwrap();
    let accounts =
        |asked: &Asked| asked.resource() == "serviceaccounts" && asked.namespace() == "rights";
    wait_for("the refusal", PATIENCE, || async {
        // Again and again: the API server takes its time to notice, and asks nobody about a watch that is open.
        rig.proxy.end_watches(WatchEnd::Cut, accounts);
        let refused = rig.proxy.since(mark).of(accounts);
        Ok(refused.0.iter().any(|one| one.host == Some(403)).then_some(()))
    })
    .await
    .unwrap();
    rig.api.puppet("rights", "p", &json!({"own": [], "text": "one"})).await.unwrap();
    let at = path("puppets", "rights", "p");
    let told = rig.api.until("the condition", &at, |parent| {
        condition(parent, "Reconciled", "reason") == "ObservedStateUnavailable"
    });
    let told = told.await.unwrap();
    let message = condition(&told, "Reconciled", "message");
    assert!(message.contains("ServiceAccount") && message.contains("forbidden"), "{message}");

    // The parents' kind too: nobody is called.
    rig.api.delete(binding, "Background").await.unwrap();
    wait_for("the refusal", PATIENCE, || async {
        rig.proxy.end_watches(WatchEnd::Cut, |asked| asked.resource() == "puppets");
        let refused = rig.proxy.since(mark).of(|asked| {
            asked.resource() == "puppets" && asked.namespace() == "rights" && !asked.is_write()
        });
        Ok(refused.0.iter().any(|one| one.host == Some(403)).then_some(()))
    })
    .await
    .unwrap();
    rig.api.delete(&path("configmaps", "rights", "a"), "Background").await.unwrap();
    let started = Instant::now();
    rig.api.greeting("rights-bystander", "g", "you").await.unwrap();
    says(&rig.api, "rights-bystander", "g", "Hello, you!").await;
    assert!(started.elapsed() < Duration::from_secs(5), "another plugin waits");
    rig.api.puppet("rights", "p", &json!({"own": ["a", "b", "c"], "text": "two"})).await.unwrap();
    let children = rig
        .proxy
        .since(mark)
        .of(|asked| asked.namespace() == "rights" && asked.resource() == "configmaps");
    assert!(children.writes().is_empty(), "{}", children.writes());

    let deploy = it::root().unwrap().join("tests/it/puppet/deploy.yaml");
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", deploy.to_str().unwrap()];
    staged.cluster.kubectl(&apply).await.unwrap();
    for child in ["a", "b", "c"] {
        says(&rig.api, "rights", child, "two").await;
    }
    pulled(&rig.api, "rights", "p").await;
    quiet(&rig).await;
    let traffic = rig.proxy.since(mark);
    assert!(traffic.deletions().is_empty(), "{}", traffic.deletions());
    nothing_twice(&traffic, 0);
}

#[tokio::test]
async fn a_crd_that_goes_and_comes_back_is_served_at_once_and_others_do_not_notice() {
    let _alone = WORLD.write().await;
    let staged = staged().await;
    let rig = staged.rig(&["kinds"]).await.unwrap();
    rig.api.greeting("kinds", "g", "first").await.unwrap();
    rig.api.puppet("kinds", "p", &json!({"own": ["a"], "text": "one"})).await.unwrap();
    says(&rig.api, "kinds", "g", "Hello, first!").await;
    says(&rig.api, "kinds", "a", "one").await;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/greetings.example.operator-host.dev";
    rig.api.delete(crd, "Background").await.unwrap();
    rig.api.until_gone(crd).await.unwrap();
    let mark = rig.proxy.mark();
    rig.api.puppet("kinds", "p", &json!({"own": ["a"], "text": "two"})).await.unwrap();
    says(&rig.api, "kinds", "a", "two").await;
    // Long enough for the back-off to grow to its bound.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let looks = rig.proxy.since(mark).of(|asked| asked.path.contains("example.operator-host.dev"));
    assert!(looks.len() <= 20, "{looks}");

    let manifest = it::root().unwrap().join("plugins/hello/greetings.yaml");
    let apply = ["apply", "--server-side", "-f", manifest.to_str().unwrap()];
    staged.cluster.kubectl(&apply).await.unwrap();
    staged
        .cluster
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd",
            "greetings.example.operator-host.dev",
            "--timeout=60s",
        ])
        .await
        .unwrap();
    let started = Instant::now();
    // Another name: the garbage collector takes its time over the first one's child.
    rig.api.greeting("kinds", "h", "again").await.unwrap();
    says(&rig.api, "kinds", "h", "Hello, again!").await;
    // A kind that is missing is asked for every 5 s, jittered by a quarter.
    assert!(started.elapsed() < Duration::from_secs(10), "served after {:?}", started.elapsed());
    quiet(&rig).await;
    nothing_twice(&rig.proxy.since(mark), 0);
}

#[tokio::test]
async fn a_namespace_ends_with_its_parents_and_without_a_storm_of_errors() {
    let _shared = WORLD.read().await;
    let rig = staged().await.rig(&["ending"]).await.unwrap();
    for (name, children) in [("p", ["a", "b"]), ("q", ["c", "d"]), ("r", ["e", "f"])] {
        rig.api.puppet("ending", name, &json!({"own": children, "text": "one"})).await.unwrap();
    }
    for name in ["p", "q", "r"] {
        let parent = pulled(&rig.api, "ending", name).await;
        assert_eq!(parent["metadata"]["finalizers"][0], "operator-host.dev/puppet");
    }
    let (mark, logged) = (rig.proxy.mark(), rig.host.log().len());
    rig.api.delete("/api/v1/namespaces/ending", "Background").await.unwrap();
    rig.api.until_gone("/api/v1/namespaces/ending").await.unwrap();
    quiet(&rig).await;
    let writes = objects(&rig.proxy.since(mark)).of(Asked::is_write);
    // For each of three parents: each of two children that goes makes a run, with two refused applies and a status
    // that says so; and the finalizer.
    assert!(writes.len() <= 3 * (2 * 3 + 1), "{writes}");
    assert!(writes.creations().is_empty(), "{}", writes.creations());
    let log = rig.host.log();
    let complaints =
        log[logged..].lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
    let complaints: Vec<_> = complaints.collect();
    assert!(complaints.len() <= 9, "{}", complaints.join("\n"));
}

#[tokio::test]
async fn foreground_deletion_is_not_undone_and_orphans_are_left_alone() {
    let _shared = WORLD.read().await;
    let rig = staged().await.rig(&["leaving"]).await.unwrap();
    let own = |hold: &str, children: [&str; 2]| json!({"own": children, "waitForGone": hold, "text": "one"});
    rig.api.puppet("leaving", "foreground", &own("hold", ["a", "b"])).await.unwrap();
    rig.api.puppet("leaving", "orphaning", &own("hold", ["c", "d"])).await.unwrap();
    pulled(&rig.api, "leaving", "foreground").await;
    pulled(&rig.api, "leaving", "orphaning").await;
    let hold = path("configmaps", "leaving", "hold");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hold"}});
    rig.api.apply(&hold, &body).await.unwrap();
    let mark = rig.proxy.mark();
    let (foreground, orphaning) =
        (path("puppets", "leaving", "foreground"), path("puppets", "leaving", "orphaning"));
    rig.api.delete(&foreground, "Foreground").await.unwrap();
    rig.api.delete(&orphaning, "Orphan").await.unwrap();
    // The plugin still wants them, and they go all the same.
    for child in ["a", "b"] {
        rig.api.until_gone(&path("configmaps", "leaving", child)).await.unwrap();
    }
    // It is woken, and wants them again.
    let body = json!({"data": {"still": "here"}});
    rig.api.merge(&hold, &body).await.unwrap();
    quiet(&rig).await;
    rig.api.get(&foreground).await.expect("its plugin has not finished");
    rig.api.delete(&hold, "Background").await.unwrap();
    rig.api.until_gone(&foreground).await.unwrap();
    rig.api.until_gone(&orphaning).await.unwrap();
    quiet(&rig).await;
    for child in ["c", "d"] {
        let child = rig.api.get(&path("configmaps", "leaving", child)).await.unwrap();
        assert!(child["metadata"].get("ownerReferences").is_none(), "{child}");
    }
    let traffic = rig.proxy.since(mark);
    let children = traffic.of(|asked| asked.resource() == "configmaps");
    assert!(children.creations().is_empty(), "{}", children.creations());
    assert!(children.deletions().is_empty(), "{}", children.deletions());
}

/// What makes a process see a clock that is an hour ahead; sleeping goes by the real one.
fn an_hour_ahead() -> Vec<(&'static str, String)> {
    devcluster::ensure_programs(&[("faketime", "faketime")], true).unwrap();
    let asked = std::process::Command::new("faketime")
        .args(["-f", "+1h", "printenv", "LD_PRELOAD"])
        .output()
        .unwrap();
    let library = String::from_utf8(asked.stdout).unwrap().trim().to_owned();
    assert!(!library.is_empty(), "faketime preloads nothing");
    vec![
        ("LD_PRELOAD", library),
        ("FAKETIME", "+1h".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}

#[tokio::test]
async fn a_host_whose_clock_is_an_hour_ahead_takes_its_turn_like_any_other() {
    let _shared = WORLD.read().await;
    let ahead = tokio::task::spawn_blocking(an_hour_ahead).await.unwrap();
    let ahead: Vec<_> = ahead.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let elected = ["--leader-elect"];
    let rig = async |name: &'static str, more: &[(&str, &str)]| {
        let environment: Vec<_> = more.iter().copied().chain([("HOSTNAME", name)]).collect();
        staged().await.rig_with(&["clocks"], &elected, &environment).await.unwrap()
    };
    let leads = async |rig: &Rig, name: &str| {
        wait_for(&format!("{name} to lead"), PATIENCE, || async {
            let leading = rig.host.metric("leader_election_master_status", &[]).await?;
            Ok((leading > 0.5).then_some(()))
        })
        .await
        .unwrap();
    };
    let acts = async |rig: &Rig, text: &str| {
        let spec = json!({"own": ["a"], "text": text});
        rig.api.puppet("clocks", "p", &spec).await.unwrap();
        says(&rig.api, "clocks", "a", text).await;
    };
    // Longer than a lease: by the other's clock it has ended an hour ago, or ends in an hour.
    let longer = Duration::from_secs(20);
    let right = rig("right", &[]).await;
    leads(&right, "the host with the right clock").await;
    let wrong = rig("wrong", &ahead).await;
    tokio::time::sleep(longer).await;
    acts(&right, "by the right one").await;
    assert!(
        wrong
            .proxy
            .since(0)
            .of(|asked| asked.is_write() && asked.resource() == "configmaps")
            .is_empty()
    );
    right.host.kill();
    leads(&wrong, "the host with the wrong clock").await;
    acts(&wrong, "by the wrong one").await;
    // It is as wrong as it should be: the Lease says when its holder thinks that it is.
    let lease = "/apis/coordination.k8s.io/v1/namespaces/operator-host/leases/operator-host";
    let lease = wrong.api.get(lease).await.unwrap();
    let parent = wrong.api.get(&path("configmaps", "clocks", "a")).await.unwrap();
    let renewed = lease["spec"]["renewTime"].as_str().unwrap();
    let created = parent["metadata"]["creationTimestamp"].as_str().unwrap();
    let minute = |time: &str| {
        let part = |at: usize| time.get(at..at + 2).unwrap().parse::<u32>().unwrap();
        part(11) * 60 + part(14)
    };
    let ahead = (minute(renewed) + 24 * 60 - minute(created)) % (24 * 60);
    assert!((58..=65).contains(&ahead), "{created} {renewed}");
    let again = rig("again", &[]).await;
    tokio::time::sleep(longer).await;
    acts(&wrong, "still by the wrong one").await;
    assert!(
        again
            .proxy
            .since(0)
            .of(|asked| asked.is_write() && asked.resource() == "configmaps")
            .is_empty()
    );
}

/// How many hosts are killed at a time: killing and starting is waiting, mostly.
const LANES: usize = 3;

#[tokio::test]
async fn a_host_killed_at_any_write_of_a_creation_leaves_one_whole_cluster() {
    let _shared = WORLD.read().await;
    staged().await;
    let (next, over) = (Arc::new(AtomicUsize::new(2)), Arc::new(AtomicBool::new(false)));
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..LANES {
        let (next, over) = (Arc::clone(&next), Arc::clone(&over));
        lanes.spawn(async move {
            let namespace = format!("creation-{lane}");
            let mut rig = staged().await.rig(&[&namespace]).await.unwrap();
            let mut killed = 0_usize;
            while !over.load(Ordering::Relaxed) {
                let count = next.fetch_add(1, Ordering::Relaxed);
                let moment = [Moment::BeforeServer, Moment::BeforeHost][count % 2];
                if killed_while_creating(&mut rig, &namespace, count / 2, moment).await {
                    killed += 1;
                } else {
                    over.store(true, Ordering::Relaxed);
                }
            }
            killed
        });
    }
    let killed: usize = lanes.join_all().await.into_iter().sum();
    // Finalizers apart: config, services, disruption budget, StatefulSet, labels, status; each at two moments.
    assert!(killed >= 2 * 6, "only {killed} hosts were killed");
}

/// Creates a RedisCluster and kills the host at its n-th write; false if there were fewer.
async fn killed_while_creating(rig: &mut Rig, namespace: &str, nth: usize, moment: Moment) -> bool {
    let name = format!("n{nth}{}", if moment == Moment::BeforeServer { "b" } else { "a" });
    let (own, prefix) = (name.clone(), format!("{name}-"));
    let concerns = move |asked: &Asked| {
        asked.resource() != "events" && (asked.name() == own || asked.name().starts_with(&prefix))
    };
    let mark = rig.proxy.mark();
    let trap = rig.proxy.at_write(nth, moment, concerns.clone(), rig.host.killer());
    let parent = json!({"apiVersion": "redis.operator-host.dev/v1alpha1", "kind": "RedisCluster",
        "metadata": {"name": name}, "spec": {"replicas": 1}});
    let at = path("redisclusters", namespace, &name);
    rig.api.apply(&at, &parent).await.unwrap();
    wait_for("the host's death or a RedisCluster that is Ready", PATIENCE, || async {
        let parent = rig.api.get(&at).await?;
        let ready = condition(&parent, "Ready", "status") == "True";
        Ok((trap.has_sprung() || ready).then_some(()))
    })
    .await
    .unwrap();
    if !trap.has_sprung() {
        quiet(rig).await;
    }
    let sprung = trap.has_sprung();
    drop(trap);
    if sprung {
        rig.restart_host().await.unwrap();
    }
    one_master(&rig.api, namespace, &name).await;
    wait_for("the last write", PATIENCE, || async {
        let mark = rig.proxy.mark();
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(rig.proxy.since(mark).of(&concerns).of(Asked::is_write).is_empty().then_some(()))
    })
    .await
    .unwrap();
    let traffic = rig.proxy.since(mark).of(&concerns);
    let mut created: Vec<_> = traffic.creations().0.into_iter().map(|one| one.asked.path).collect();
    let count = created.len();
    created.sort();
    created.dedup();
    assert_eq!(created.len(), count, "created twice: {traffic}");
    assert!(traffic.deletions().is_empty(), "{}", traffic.deletions());
    // A new host does not know how the API server writes quantities: once for each object that has some.
    nothing_twice(&traffic, usize::from(sprung));
    rig.api.delete(&at, "Background").await.unwrap();
    sprung
}

#[tokio::test]
async fn a_host_killed_at_any_write_of_a_failover_leaves_one_master_with_the_data() {
    let _shared = WORLD.read().await;
    let lane = async |namespace: &str, moment: Moment| {
        let mut rig = staged().await.rig(&[namespace]).await.unwrap();
        let parent = json!({"apiVersion": "redis.operator-host.dev/v1alpha1", "kind": "RedisCluster",
            "metadata": {"name": "f"}, "spec": {"replicas": 2}});
        rig.api.apply(&path("redisclusters", namespace, "f"), &parent).await.unwrap();
        let mut killed = 0_usize;
        while killed_while_failing_over(&mut rig, namespace, killed + 1, moment).await {
            killed += 1;
        }
        killed
    };
    let (before, after) = tokio::join!(
        lane("failover-unsent", Moment::BeforeServer),
        lane("failover-unheard", Moment::BeforeHost),
    );
    // Both pods' labels, and the status, at least.
    assert!(before >= 3 && after >= 3, "only {before} and {after} hosts were killed");
}

/// Kills the master's process, and the host at its n-th write after that; false if there were fewer.
async fn killed_while_failing_over(
    rig: &mut Rig,
    namespace: &str,
    nth: usize,
    moment: Moment,
) -> bool {
    let at = path("redisclusters", namespace, "f");
    let old = one_master(&rig.api, namespace, "f").await;
    let value = format!("{nth} {moment:?}");
    redis_set(&address(&rig.api, namespace, &old).await, "key", &value);
    quiet(rig).await;
    let writes = |asked: &Asked| asked.resource() != "events";
    let trap = rig.proxy.at_write(nth, moment, writes, rig.host.killer());
    staged().await.cluster.kill_pod(namespace, &old, Signal::KILL).unwrap();
    wait_for("the host's death or another master", PATIENCE, || async {
        let parent = rig.api.get(&at).await?;
        let moved = condition(&parent, "Ready", "status") == "True" && master(&parent) != old;
        Ok((trap.has_sprung() || moved).then_some(()))
    })
    .await
    .unwrap();
    if !trap.has_sprung() {
        quiet(rig).await;
    }
    let sprung = trap.has_sprung();
    drop(trap);
    if sprung {
        rig.restart_host().await.unwrap();
    }
    let new = one_master(&rig.api, namespace, "f").await;
    let kept = redis_get(&address(&rig.api, namespace, &new).await, "key");
    assert_eq!(kept.as_deref(), Some(value.as_str()), "on {new}; the master was {old}");
    sprung
}
