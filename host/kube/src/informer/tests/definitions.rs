//! What follows from a change of a CRD or an `APIService`.

use std::sync::Mutex;

use super::*;

const CRDS: &str = "customresourcedefinitions";

/// A server with definitions to be changed, and one kind that is there or not, under one plural or another.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Served>>);

#[derive(Default)]
struct Served {
    plural: Option<&'static str>,
    crds: Vec<mpsc::UnboundedSender<String>>,
    feeds: Vec<mpsc::UnboundedSender<String>>,
    version: u64,
}

impl Server {
    fn serve(&self, plural: Option<&'static str>) {
        self.0.lock().unwrap().plural = plural;
    }

    fn define(&self, event_type: &str, name: &str) {
        let mut served = self.0.lock().unwrap();
        served.version += 1;
        let metadata = json!({"name": name, "uid": name, "resourceVersion": (100 + served.version).to_string()});
        let line = event(event_type, &json!({"metadata": metadata}));
        served.crds.last().unwrap().send(line).unwrap();
    }

    /// Ends all watches of the kind.
    fn end_watches(&self) {
        self.0.lock().unwrap().feeds.clear();
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let mut served = self.0.lock().unwrap();
        let line = &asked.line;
        let watches = line.contains("watch=true");
        if line.ends_with("/apis/demo.dev/v1") {
            let kinds: Vec<_> = served
                .plural
                .iter()
                .map(|plural| json!({"name": plural, "kind": "Demo", "namespaced": true, "verbs": ["list", "watch"]}))
                .collect();
            return Answer::json(&json!({"resources": kinds}));
        }
        if line.ends_with("/apis/apiextensions.k8s.io/v1") {
            return Answer::json(
                &json!({"resources": [{"name": CRDS, "kind": "CustomResourceDefinition", "namespaced": false, "verbs": ["list", "watch"]}]}),
            );
        }
        if line.contains("/demo.dev/v1/") {
            let here = served.plural.is_some_and(|plural| line.contains(&format!("/{plural}?")));
            if !here {
                return Answer::Whole(404, "404 page not found".into());
            }
            if watches {
                let (feed, watch) = Answer::watch();
                served.feeds.push(feed);
                return watch;
            }
            return list(5, &[object("a", "u1", 3)]);
        }
        if line.contains(CRDS) && watches {
            let (feed, watch) = Answer::watch();
            served.crds.push(feed);
            return watch;
        }
        if line.contains(CRDS) {
            return list(
                9,
                &[
                    json!({"metadata": {"name": "demos.demo.dev", "uid": "c", "resourceVersion": "9"}, "spec": {"big": true}}),
                ],
            );
        }
        Answer::refusal(403, "Forbidden")
    }
}

async fn following(server: &Server) -> Case {
    let answering = server.clone();
    let case = start_kind(Kind::new("demo.dev/v1", "Demo"), move |asked| answering.answer(asked));
    case.informers.follow_definitions();
    case.informers.follow_definitions();
    case.log.wait_for(&format!("{CRDS}?watch")).await;
    case
}

fn discoveries(case: &Case) -> usize {
    let lines = case.log.lines("");
    lines.iter().filter(|line| *line == "GET /apis/demo.dev/v1").count()
}

/// An informer that has listed the kind, and the server that has it.
async fn following_what_is_served() -> (Server, Case) {
    let server = Server::default();
    server.serve(Some("demos"));
    let case = following(&server).await;
    case.synced().await;
    (server, case)
}

async fn appears_and_is_seen_at_once(server: &Server, case: &Case) {
    server.serve(Some("demos"));
    server.define("ADDED", "demos.demo.dev");
    let before = Instant::now();
    case.synced().await;
    assert!(before.elapsed() < Duration::from_millis(200), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_noticed_the_moment_its_definition_appears() {
    let server = Server::default();
    let case = following(&server).await;
    case.status(|status| *status == Status::Missing).await;
    // Long enough for the longest wait, and at no moment when it would end by itself.
    tokio::time::sleep(Duration::from_mins(1)).await;
    appears_and_is_seen_at_once(&server, &case).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_was_deleted_and_created_again_is_seen_at_once() {
    let (server, case) = following_what_is_served().await;
    server.serve(None);
    server.define("DELETED", "demos.demo.dev");
    server.end_watches();
    case.status(|status| *status == Status::Missing).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(case.store().view().is_err());
    appears_and_is_seen_at_once(&server, &case).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_changes_nothing_that_matters_costs_one_look_and_no_list() {
    let (server, case) = following_what_is_served().await;
    case.log.wait_for("demos?watch").await;
    let before = discoveries(&case);
    server.define("MODIFIED", "demos.demo.dev");
    server.define("MODIFIED", "others.elsewhere.dev");
    server.define("MODIFIED", "broken.metrics.k8s.io");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(discoveries(&case) - before, 1);
    assert_eq!(case.log.lines("demos?").len(), 2, "{:#?}", case.log.lines("demos?"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_elsewhere_is_listed_there() {
    let (server, case) = following_what_is_served().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.serve(Some("demoes"));
    server.define("MODIFIED", "demoes.demo.dev");
    case.log.wait_for("demoes?limit").await;
    case.log.wait_for("demoes?watch").await;
    case.synced().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_existence_of_definitions_is_asked_for_and_a_refusal_hurts_nobody() {
    let (_server, case) = following_what_is_served().await;
    let asked = case.log.all();
    let accepts = |text: &str| {
        let found = asked.iter().find(|asked| asked.line.contains(text));
        found.unwrap().accept.clone()
    };
    assert_eq!(
        accepts(&format!("{CRDS}?limit")),
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    );
    assert_eq!(
        accepts(&format!("{CRDS}?watch")),
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    );
    assert_eq!(case.log.lines("apiregistration.k8s.io/v1").len(), 1);
    assert_eq!(case.log.lines(&format!("{CRDS}?limit")).len(), 1, "followed once");
    assert_eq!(case.informers.report().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_in_one_group_hurries_no_other() {
    let server = Server::default();
    server.serve(Some("demos"));
    let case = following(&server).await;
    let broken = Kind::new("broken.dev/v1", "Broken");
    let _broken = case.informers.subscribe(broken, Scope::All);
    // Its waits have grown to half a minute.
    tokio::time::sleep(Duration::from_mins(5)).await;
    let looks = || case.log.lines("GET /apis/broken.dev/v1").len();
    let before = looks();
    for _ in 0..20 {
        server.define("MODIFIED", "demos.demo.dev");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(looks() - before <= 1, "{} looks", looks() - before);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_half_received_survives_a_look_at_the_definition() {
    let (server, case) = following_what_is_served().await;
    case.log.wait_for("demos?watch").await;
    let line = event("ADDED", &object("b", "u2", 7));
    let (first, rest) = line.split_at(20);
    let send = |text: String| server.0.lock().unwrap().feeds.last().unwrap().send(text).unwrap();
    send(format!("{first}\0"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.define("MODIFIED", "demos.demo.dev");
    tokio::time::sleep(Duration::from_secs(1)).await;
    send(rest.to_owned());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(case.store().len(), 2);
    assert_eq!(case.log.lines("demos?").len(), 2);
}
