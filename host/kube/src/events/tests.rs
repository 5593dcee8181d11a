use std::time::UNIX_EPOCH;

use host_core::decision::EventKind;
use host_core::ident::{Kind, ObjectKey};
use serde_json::{Value, json};

use super::*;
use crate::fake::{self, Answer, Log};

/// 2026-01-31T08:00:00Z: 20,484 days and 8 hours.
const NOW: Duration = Duration::from_hours(20_484 * 24 + 8);

fn reporter() -> Reporter {
    Reporter { controller: "operator-host.dev/redis".into(), instance: "host-0".into() }
}

fn about(namespace: &str, name: &str) -> Regarding {
    Regarding {
        kind: Kind::new("redis.operator-host.dev/v1alpha1", "RedisCluster"),
        key: ObjectKey::new(namespace, name),
        uid: format!("uid-{name}").into(),
    }
}

fn event(note: &str) -> Event {
    Event {
        kind: EventKind::Warning,
        reason: "MasterLost".into(),
        action: "FailOver".into(),
        note: note.into(),
    }
}

struct Case {
    recorder: Recorder,
    task: JoinHandle<()>,
    log: Log,
}

fn start(answer: impl Fn(&fake::Asked) -> Answer + Send + Sync + 'static) -> Case {
    let (client, log) = fake::client(answer);
    let (recorder, task) = Recorder::start(client, UNIX_EPOCH + NOW);
    Case { recorder, task, log }
}

fn accepting() -> Case {
    start(|_| Answer::json(&json!({})))
}

impl Case {
    fn record(&self, note: &str) {
        self.recorder.record(reporter(), about("shop", "cart"), event(note));
    }

    fn bodies(&self, verb: &str) -> Vec<Value> {
        let all = self.log.all().into_iter().filter(|asked| asked.line.starts_with(verb));
        all.map(|asked| serde_json::from_str(&asked.body).unwrap()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_occurrence_is_created_as_the_api_wants_it() {
    let case = accepting();
    case.record("master 10.0.0.1 is gone");
    case.log.wait_for("POST").await;
    assert_eq!(case.log.lines(""), ["POST /apis/events.k8s.io/v1/namespaces/shop/events"]);
    let mut body = case.bodies("POST").remove(0);
    let name = body["metadata"]["name"].take();
    let name = name.as_str().unwrap();
    assert!(name.starts_with("cart.") && name.len() == "cart.".len() + 16, "{name}");
    assert_eq!(
        body,
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "shop", "name": null},
            "eventTime": "2026-01-31T08:00:00.000000Z",
            "type": "Warning",
            "reason": "MasterLost",
            "action": "FailOver",
            "note": "master 10.0.0.1 is gone",
            "regarding": {
                "apiVersion": "redis.operator-host.dev/v1alpha1",
                "kind": "RedisCluster",
                "namespace": "shop",
                "name": "cart",
                "uid": "uid-cart",
            },
            "reportingController": "operator-host.dev/redis",
            "reportingInstance": "host-0",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn repeats_are_counted_and_written_once_a_minute() {
    let case = accepting();
    for _ in 0..50 {
        case.record("gone");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(case.bodies("POST").len(), 1);
    let patches = case.bodies("PATCH");
    assert_eq!(
        patches,
        [json!({"series": {"count": 30, "lastObservedTime": "2026-01-31T08:00:58.000000Z"}})]
    );
    let name = case.bodies("POST")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let asked = case.log.all().remove(1);
    assert_eq!(asked.line, format!("PATCH /apis/events.k8s.io/v1/namespaces/shop/events/{name}"));
    assert_eq!(asked.content_type, "application/merge-patch+json");
    // What is not written yet is written at the end.
    let Case { recorder, task, log } = case;
    drop(recorder);
    task.await.unwrap();
    assert!(log.all().remove(2).body.contains(r#""count":50"#));
}

#[tokio::test(start_paused = true)]
async fn each_series_keeps_its_own_time() {
    let case = accepting();
    for note in ["a", "a", "b", "b"] {
        case.record(note);
        tokio::time::sleep(Duration::from_secs(15)).await;
    }
    case.log.wait_for("PATCH").await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(case.bodies("PATCH").len(), 1);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(case.bodies("PATCH").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_note_is_another_event_and_so_is_a_late_repeat() {
    let case = accepting();
    case.record("a");
    case.record("b");
    tokio::time::sleep(Duration::from_mins(7)).await;
    case.record("a");
    case.log.wait_for_count("POST", 3).await;
    let names: std::collections::BTreeSet<_> =
        case.bodies("POST").iter().map(|body| body["metadata"]["name"].to_string()).collect();
    assert_eq!(names.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_object_cannot_flood_and_does_not_silence_another() {
    let case = accepting();
    for index in 0..40 {
        case.record(&format!("note {index}"));
    }
    case.recorder.record(reporter(), about("shop", "other"), event("x"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(case.bodies("POST").len(), 26);
    assert_eq!(
        case.recorder.unrecorded(),
        UnrecordedEvents { rate_limited: 15, ..Default::default() }
    );
    tokio::time::sleep(Duration::from_mins(5)).await;
    case.record("later");
    case.record("too many again");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(case.bodies("POST").len(), 27);
}

#[tokio::test(start_paused = true)]
async fn an_expired_event_is_created_again() {
    let case = start(|asked| {
        if asked.line.starts_with("PATCH") {
            Answer::refusal(404, "NotFound")
        } else {
            Answer::json(&json!({}))
        }
    });
    case.record("a");
    case.record("a");
    case.log.wait_for("PATCH").await;
    case.record("a");
    case.log.wait_for_count("POST", 2).await;
    assert_eq!(case.recorder.unrecorded(), UnrecordedEvents::default());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_costs_events_and_never_a_reconcile() {
    let case = start(|_| Answer::Silence);
    for _ in 0..2_000 {
        case.record("a");
    }
    assert_eq!(case.recorder.unrecorded().queue_full, 2_000 - WAITING_MAX as u64);
    case.log.wait_for("POST").await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(case.recorder.unrecorded().failed >= 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_cluster_scoped_object_is_in_default() {
    let case = accepting();
    let name = format!("system:{}-", "x".repeat(300));
    case.recorder.record(reporter(), about("", &name), event(&"ä".repeat(1_000)));
    case.log.wait_for("POST /apis/events.k8s.io/v1/namespaces/default/events").await;
    let body = case.bodies("POST").remove(0);
    assert!(body["regarding"].get("namespace").is_none());
    assert!(body["note"].as_str().unwrap().len() <= 1_024);
    let name = body["metadata"]["name"].as_str().unwrap();
    assert!(name.len() <= 253 && name.starts_with("system-xxx") && !name.contains(':'), "{name}");
}
