use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host_core::ident::{Kind, ObjectKey};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::change::{Change, OnChange};
use crate::client::Client;
use crate::fake::{self, Answer, Asked, Log};
use crate::informers::{Informers, Subscription};
use crate::scope::Scope;
use crate::store::Store;

mod definitions;
mod streaming;

const LIST: &str = "statefulsets?limit";
const WATCH: &str = "statefulsets?watch";

fn object(name: &str, uid: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": version.to_string()}})
}

fn list(version: u64, items: &[Value]) -> Answer {
    Answer::json(
        &json!({"kind": "StatefulSetList", "metadata": {"resourceVersion": version.to_string()}, "items": items}),
    )
}

fn event(event: &str, object: &Value) -> String {
    json!({"type": event, "object": object}).to_string()
}

struct Case {
    log: Log,
    informers: Informers,
    subscription: Subscription,
    changes: mpsc::UnboundedReceiver<Change>,
}

fn start_kind(kind: Kind, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Case {
    start_client(kind, fake::client(answer))
}

fn start_client(kind: Kind, (client, log): (Client, Log)) -> Case {
    let (sender, changes) = mpsc::unbounded_channel();
    let on_change: OnChange = Arc::new(move |change| sender.send(change).unwrap());
    let informers = Informers::new(client, 1, on_change);
    let subscription = informers.subscribe(kind, Scope::All);
    Case { log, informers, subscription, changes }
}

fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Case {
    start_kind(Kind::new("apps/v1", "StatefulSet"), answer)
}

impl Case {
    fn store(&self) -> &Arc<Store> {
        self.subscription.store()
    }

    async fn synced(&self) {
        let deadline = Instant::now() + Duration::from_mins(10);
        self.store().wait_synced(deadline).await.unwrap();
    }

    /// `+a` for new, `~a` for changed, `-a` for gone.
    async fn changed(&mut self) -> String {
        let deadline = Duration::from_mins(10);
        let change = tokio::time::timeout(deadline, self.changes.recv()).await.unwrap().unwrap();
        let sign = match (&change.old, &change.new) {
            (None, _) => '+',
            (Some(_), Some(_)) => '~',
            (Some(_), None) => '-',
        };
        format!("{sign}{}", change.key.name)
    }

    async fn status(&self, wanted: impl Fn(&Status) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(10);
        while !wanted(&self.store().status()) {
            assert!(Instant::now() < deadline, "{:?}", self.store().status());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The waits between requests whose lines contain a text, in milliseconds.
    fn gaps(&self, text: &str) -> Vec<u128> {
        let times: Vec<_> = self
            .log
            .all()
            .into_iter()
            .filter(|asked| asked.line.contains(text))
            .map(|asked| asked.at)
            .collect();
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }
}

fn grows_to_the_bound(gaps: &[u128]) {
    assert!(gaps[0] >= 600 && gaps[0] <= 1_000, "{gaps:?}");
    assert!(gaps[1] >= 1_200 && gaps[1] <= 2_000, "{gaps:?}");
    assert!(gaps[2] >= 2_400 && gaps[2] <= 4_000, "{gaps:?}");
    assert!(gaps[7..].iter().all(|gap| (22_500..=37_500).contains(gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn lists_all_pages_then_watches_from_the_lists_version() {
    let first = json!({"metadata": {"resourceVersion": "10", "continue": "a=b"}, "items": [object("a", "u1", 3)]});
    let case = start(fake::script([
        ("limit=500&continue", list(10, &[object("b", "u2", 4)])),
        (LIST, Answer::json(&first)),
    ]));
    case.synced().await;
    let names: Vec<_> = case
        .store()
        .view()
        .unwrap()
        .select(None, None, None)
        .iter()
        .map(|o| o.key.to_string())
        .collect();
    assert_eq!(names, ["shop/a", "shop/b"]);
    case.log.wait_for("watch=true").await;
    let lines = case.log.lines("");
    assert_eq!(lines[0], "GET /apis/apps/v1");
    assert_eq!(lines[1], "GET /apis/apps/v1/statefulsets?limit=500");
    assert_eq!(lines[2], "GET /apis/apps/v1/statefulsets?limit=500&continue=a%3Db");
    assert!(
        lines[3].starts_with(
            "GET /apis/apps/v1/statefulsets?watch=true&allowWatchBookmarks=true&timeoutSeconds=2"
        ),
        "{}",
        lines[3]
    );
    assert!(lines[3].ends_with("&resourceVersion=10"), "{}", lines[3]);
}

#[tokio::test(start_paused = true)]
async fn a_scope_of_one_namespace_asks_for_that_namespace() {
    let (client, log) = fake::client(fake::script([]));
    let informers = Informers::new(client, 1, Arc::new(|_| {}));
    let _subscription =
        informers.subscribe(Kind::new("apps/v1", "StatefulSet"), Scope::Namespace("shop".into()));
    log.wait_for("GET /apis/apps/v1/namespaces/shop/statefulsets?limit=500").await;
}

#[tokio::test(start_paused = true)]
async fn tells_what_happens_in_order() {
    let (feed, watch) = Answer::watch();
    let mut case = start(fake::script([(LIST, list(5, &[object("a", "u1", 3)])), (WATCH, watch)]));
    assert_eq!(case.changed().await, "+a");
    feed.send(event("ADDED", &object("b", "u2", 6))).unwrap();
    feed.send(event("MODIFIED", &object("a", "u1", 7))).unwrap();
    feed.send(event("DELETED", &object("b", "u2", 8))).unwrap();
    assert_eq!(case.changed().await, "+b");
    assert_eq!(case.changed().await, "~a");
    assert_eq!(case.changed().await, "-b");
    assert_eq!(case.store().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_the_first_list_is_initial() {
    let (feed, watch) = Answer::watch();
    let mut case = start(fake::script([(LIST, list(5, &[object("a", "u1", 3)])), (WATCH, watch)]));
    assert!(case.changes.recv().await.unwrap().initial);
    feed.send(event("ADDED", &object("b", "u2", 6))).unwrap();
    assert!(!case.changes.recv().await.unwrap().initial);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_the_version_and_the_point_to_resume_from() {
    let (feed, watch) = Answer::watch();
    let case = start(fake::script([(LIST, list(5, &[])), (WATCH, watch)]));
    case.synced().await;
    feed.send(event("BOOKMARK", &json!({"metadata": {"resourceVersion": "77"}}))).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(case.store().observed_version(), 77);
    drop(feed);
    case.log.wait_for("resourceVersion=77").await;
    assert_eq!(case.log.lines(LIST).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_relist_tells_what_vanished_and_keeps_what_did_not_change() {
    let (feed, watch) = Answer::watch();
    let before =
        [object("a", "u1", 1), object("b", "u2", 2), object("c", "u3", 3), object("d", "u4", 4)];
    let after = [object("a", "u1", 1), object("b", "u2", 9), object("d", "u5", 10)];
    let mut case =
        start(fake::script([(LIST, list(5, &before)), (WATCH, watch), (LIST, list(11, &after))]));
    for name in ["+a", "+b", "+c", "+d"] {
        assert_eq!(case.changed().await, name);
    }
    case.synced().await;
    let kept = case.store().view().unwrap().get(&ObjectKey::new("shop", "a")).unwrap();
    feed.send(event("ERROR", &json!({"code": 410, "reason": "Expired", "message": "too old"})))
        .unwrap();
    for name in ["~b", "-d", "+d", "-c"] {
        assert_eq!(case.changed().await, name);
    }
    case.log.wait_for("resourceVersion=11").await;
    let still = case.store().view().unwrap().get(&ObjectKey::new("shop", "a")).unwrap();
    assert!(Arc::ptr_eq(&kept, &still));
    assert!(case.changes.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_pages_expire_is_taken_again_from_the_start() {
    let first = json!({"metadata": {"resourceVersion": "10", "continue": "x"}, "items": [object("a", "u1", 3)]});
    let case = start(fake::script([
        ("continue=x", Answer::refusal(410, "Expired")),
        (LIST, Answer::json(&first)),
        (LIST, list(12, &[object("b", "u2", 4)])),
    ]));
    case.synced().await;
    assert_eq!(case.store().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn waits_longer_and_longer_while_the_list_fails() {
    let case = start(|_| Answer::refusal(503, "ServiceUnavailable"));
    tokio::time::sleep(Duration::from_mins(5)).await;
    grows_to_the_bound(&case.gaps(LIST));
    assert!(
        matches!(case.store().status(), Status::Failing(message) if message.contains("ServiceUnavailable"))
    );
    assert!(case.store().view().is_err());
}

#[tokio::test(start_paused = true)]
async fn waits_longer_and_longer_while_the_watch_ends_at_once_and_lists_again() {
    let case =
        start(
            |asked| {
                if asked.line.contains("watch=true") { Answer::ended() } else { list(5, &[]) }
            },
        );
    tokio::time::sleep(Duration::from_mins(5)).await;
    grows_to_the_bound(&case.gaps(WATCH));
    let (lists, watches) = (case.log.lines(LIST).len(), case.log.lines(WATCH).len());
    assert_eq!(lists, watches.div_ceil(3), "{watches}");
}

#[tokio::test(start_paused = true)]
async fn waits_longer_and_longer_while_every_watch_says_expired() {
    let case = start(|asked| {
        if asked.line.contains("watch=true") {
            Answer::refusal(410, "Expired")
        } else {
            list(5, &[])
        }
    });
    tokio::time::sleep(Duration::from_mins(5)).await;
    grows_to_the_bound(&case.gaps(WATCH));
}

#[tokio::test(start_paused = true)]
async fn progress_ends_the_waiting() {
    let (feed, watch) = Answer::watch();
    let refused = || (WATCH, Answer::refusal(503, "ServiceUnavailable"));
    let mut case = start(fake::script([
        (LIST, list(5, &[])),
        refused(),
        refused(),
        refused(),
        refused(),
        (WATCH, watch),
        refused(),
    ]));
    feed.send(event("ADDED", &object("a", "u1", 6))).unwrap();
    drop(feed);
    assert_eq!(case.changed().await, "+a");
    case.log.wait_for_count("resourceVersion=6", 2).await;
    let gaps = case.gaps(WATCH);
    assert!(gaps[3] >= 4_800, "{gaps:?}");
    assert_eq!(gaps[4], 0, "the next watch follows at once: {gaps:?}");
    assert!(gaps[5] <= 1_000, "the next failure is a first one: {gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_noticed_within_seconds_of_its_installation() {
    let installed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&installed);
    let case = start_kind(Kind::new("demo.dev/v1", "Demo"), move |asked| {
        if !seen.load(Ordering::SeqCst) {
            return Answer::Whole(404, "404 page not found".into());
        }
        if asked.line.ends_with("/apis/demo.dev/v1") {
            let verbs = ["list", "watch"];
            return Answer::json(
                &json!({"resources": [{"name": "demos", "kind": "Demo", "namespaced": true, "verbs": verbs}]}),
            );
        }
        if asked.line.contains("watch=true") { Answer::Silence } else { list(5, &[]) }
    });
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(case.store().status(), Status::Missing);
    let refusal = case.store().view().err().unwrap().to_string();
    assert!(
        refusal.contains("demo.dev/v1/Demo") && refusal.contains("is its CRD installed?"),
        "{refusal}"
    );
    let asked = case.log.all().len();
    assert!((20..40).contains(&asked), "{asked} requests in two minutes");
    installed.store(true, Ordering::SeqCst);
    let before = Instant::now();
    case.synced().await;
    assert!(before.elapsed() < Duration::from_secs(7), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_removed_kind_cannot_be_read_and_nothing_is_said_to_be_deleted() {
    let (feed, watch) = Answer::watch();
    let mut case = start(fake::script([
        (LIST, list(5, &[object("a", "u1", 3)])),
        (WATCH, watch),
        (WATCH, Answer::Whole(404, "404 page not found".into())),
        (LIST, list(20, &[object("a", "u9", 19)])),
    ]));
    assert_eq!(case.changed().await, "+a");
    case.synced().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(feed);
    case.status(|status| *status == Status::Missing).await;
    assert!(case.store().view().is_err());
    assert_eq!(case.store().len(), 1);
    assert!(case.changes.try_recv().is_err());
    // Installed again: the old object is another one.
    assert_eq!(case.changed().await, "-a");
    assert_eq!(case.changed().await, "+a");
    case.synced().await;
    // It may be served differently, so it was looked up again.
    let lines = case.log.lines("GET /apis/apps/v1");
    assert_eq!(lines.iter().filter(|line| *line == "GET /apis/apps/v1").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_cannot_be_read_until_it_is_listed_again() {
    let (feed, watch) = Answer::watch();
    let case = start(fake::script([
        (LIST, list(5, &[object("a", "u1", 3)])),
        (WATCH, watch),
        (WATCH, Answer::refusal(403, "Forbidden")),
        (LIST, Answer::refusal(403, "Forbidden")),
        (LIST, list(6, &[object("a", "u1", 3)])),
    ]));
    case.synced().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(feed);
    case.status(|status| matches!(status, Status::Forbidden(_))).await;
    assert!(case.store().view().is_err());
    case.synced().await;
    assert_eq!(case.log.lines(LIST).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failing_watch_keeps_the_contents_readable_for_a_minute_only() {
    let (feed, watch) = Answer::watch();
    let (_open, again) = Answer::watch();
    let failing = Arc::new(AtomicBool::new(false));
    let first = fake::script([
        (LIST, list(5, &[object("a", "u1", 3)])),
        (WATCH, watch),
        ("resourceVersion=5", again),
    ]);
    let seen = Arc::clone(&failing);
    let case = start(move |asked| {
        if seen.load(Ordering::SeqCst) {
            Answer::refusal(500, "InternalError")
        } else {
            first(asked)
        }
    });
    case.synced().await;
    case.log.wait_for(WATCH).await;
    failing.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(feed);
    case.status(|status| matches!(status, Status::Failing(_))).await;
    assert_eq!(case.store().view().unwrap().select(None, None, None).len(), 1);
    assert!(case.informers.report()[0].synced);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let refusal = case.store().view().err().unwrap().to_string();
    assert!(refusal.contains("InternalError") && refusal.contains("more than 60 s"), "{refusal}");
    let report = case.informers.report().remove(0);
    assert!(!report.synced && report.objects == 1, "{report:?}");
    assert!(report.staleness.unwrap() > Duration::from_mins(1), "{report:?}");
    failing.store(false, Ordering::SeqCst);
    case.synced().await;
    assert_eq!(case.store().status(), Status::Synced);
    assert_eq!(case.log.lines(LIST).len(), 1, "the watch goes on where it was");
}

#[tokio::test(start_paused = true)]
async fn one_watch_serves_all_and_outlives_them_by_a_minute() {
    let case = start(fake::script([(LIST, list(5, &[])), (LIST, list(5, &[]))]));
    let Case { log, informers, subscription, .. } = case;
    subscription.store().wait_synced(Instant::now() + Duration::from_secs(5)).await.unwrap();
    let kind = Kind::new("apps/v1", "StatefulSet");
    let second = informers.subscribe(kind.clone(), Scope::All);
    assert!(Arc::ptr_eq(second.store(), subscription.store()));
    drop((second, subscription));
    tokio::time::sleep(Duration::from_secs(50)).await;
    let third = informers.subscribe(kind.clone(), Scope::All);
    assert!(third.store().is_synced());
    // The timer of the first farewell must not end what was taken up since, nor cut the second one short.
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(third);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(informers.report().len(), 1);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(informers.report().is_empty());
    assert_eq!(log.lines(LIST).len(), 1);
    let fourth = informers.subscribe(kind, Scope::All);
    assert!(!fourth.store().is_synced());
    log.wait_for_count(LIST, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_listener_costs_a_list_and_not_the_informer() {
    let (client, log) = fake::client(fake::script([
        (LIST, list(5, &[object("a", "u1", 3)])),
        (LIST, list(5, &[object("a", "u1", 3)])),
    ]));
    let panicked = AtomicBool::new(false);
    let informers = Informers::new(
        client,
        1,
        Arc::new(move |_| {
            assert!(panicked.swap(true, Ordering::SeqCst), "once");
        }),
    );
    let subscription = informers.subscribe(Kind::new("apps/v1", "StatefulSet"), Scope::All);
    let deadline = Instant::now() + Duration::from_mins(1);
    assert_eq!(
        subscription.store().wait_synced(deadline).await.unwrap().select(None, None, None).len(),
        1
    );
    assert_eq!(log.lines(LIST).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_after_a_minute() {
    let case = start(|_| Answer::Silence);
    case.status(|status| matches!(status, Status::Failing(message) if message.contains("no answer within 60 s"))).await;
}
