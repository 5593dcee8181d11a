//! Leases, events, questions, and what a test can do to the server.

#![cfg(test)]

#[path = "support/objects.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fakeapi::{Fault, Server};
use host_core::decision::{Event, EventKind};
use host_core::ident::{Kind, ObjectId, ObjectKey};
use host_kube::{ApiErrorKind, Elector, Leadership, Recorder, Regarding, Reporter};
use serde_json::json;
use support::{client, config, config_id, stored_config};
use tokio::sync::oneshot;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_and_the_other_follows_when_it_leaves() {
    let server = Server::new();
    let elector = |identity: &str, seed| {
        Elector::new(client(&server), "host", "leader", identity.to_owned(), seed)
    };
    let (first, mut first_leads) = elector("first", 1);
    let (leave, left) = oneshot::channel::<()>();
    let first = tokio::spawn(first.run(async { drop(left.await) }));
    first_leads.wait_for(|now| *now == Leadership::Leading).await.unwrap();
    let (second, mut second_leads) = elector("second", 2);
    let second = tokio::spawn(second.run(std::future::pending()));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let standby = Leadership::Standby { holder: Some("first".to_owned()) };
    assert_eq!(*second_leads.borrow(), standby);
    assert_eq!(*first_leads.borrow(), Leadership::Leading, "it renews");
    leave.send(()).unwrap();
    first.await.unwrap();
    second_leads.wait_for(|now| *now == Leadership::Leading).await.unwrap();
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn an_event_is_created_and_its_repeats_are_counted() {
    let server = Server::new();
    let (recorder, task) = Recorder::start(client(&server), SystemTime::UNIX_EPOCH);
    let reporter =
        Reporter { controller: "operator-host.dev/x".to_owned(), instance: "host-0".to_owned() };
    let regarding = Regarding {
        kind: Kind::new("v1", "ConfigMap"),
        key: ObjectKey::new("shop", "a"),
        uid: "u".into(),
    };
    for _ in 0..3 {
        let event = Event {
            kind: EventKind::Normal,
            reason: "Said".to_owned(),
            action: "Say".to_owned(),
            note: "something".to_owned(),
        };
        recorder.record(reporter.clone(), regarding.clone(), event);
    }
    drop(recorder);
    task.await.unwrap();
    let events = server.list("events.k8s.io/v1", "Event");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["series"]["count"], 3);
    let verbs: Vec<_> = server.writes().iter().map(|line| line[..6].to_owned()).collect();
    assert_eq!(verbs, ["create", "patch "]);
}

#[tokio::test(start_paused = true)]
async fn it_says_its_version_allows_everything_and_has_no_other_kinds() {
    let server = Server::new().kind("apps", "v1", "StatefulSet", "statefulsets", true, true);
    let client = client(&server);
    assert_eq!(client.ping().await.unwrap(), "v1.36.0");
    let set = Kind::new("apps/v1", "StatefulSet");
    assert!(client.may("patch", &set, Some("shop")).await.unwrap());
    let resource = client.resolve(&set).await.unwrap();
    assert!(resource.has_status && resource.namespaced && resource.offers("watch"));
    client.resolve(&Kind::new("apps/v1", "Deployment")).await.unwrap_err();
    let id = ObjectId { kind: Kind::new("batch/v1", "Job"), key: ObjectKey::new("shop", "a") };
    assert_eq!(client.get(&id).await.unwrap_err().kind(), ApiErrorKind::KindMissing);
    assert_eq!(server.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_creation_of_what_exists_and_a_replacement_of_what_has_changed_are_conflicts() {
    let server = Server::new();
    let client = client(&server);
    let (id, body) = (config_id("a"), config("a", &json!({"x": "1"})));
    client.create(&id, "host", &body).await.unwrap();
    let again = client.create(&id, "host", &body).await.unwrap_err();
    assert_eq!(again.kind(), ApiErrorKind::Conflict);
    client.merge(&id, "host", &json!({"data": {"x": null, "y": "2"}})).await.unwrap();
    assert_eq!(stored_config(&server, "a").unwrap()["data"], json!({"y": "2"}));
    let stale = json!({"metadata": {"resourceVersion": "2"}});
    let error = client.merge(&id, "host", &stale).await.unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_request_can_be_refused_be_late_or_lose_its_answer() {
    let server = Server::new();
    let client = client(&server);
    let (id, body) = (config_id("a"), config("a", &json!({})));
    server.on_request(|line| line.starts_with("apply").then_some(Fault::Refuse(403, "Forbidden")));
    let refused = client.apply(&id, "host", &body).await.unwrap_err();
    assert_eq!(refused.kind(), ApiErrorKind::Forbidden);
    assert!(stored_config(&server, "a").is_none());
    server.on_request(|line| {
        line.starts_with("apply").then_some(Fault::Delay(Duration::from_secs(7)))
    });
    let begin = Instant::now();
    client.apply(&id, "host", &body).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(7));
    server.on_request(|line| line.starts_with("patch").then_some(Fault::Lose));
    let patch = json!({"data": {"x": "1"}});
    let lost = client.merge(&id, "host", &patch).await.unwrap_err();
    assert_eq!(lost.kind(), ApiErrorKind::Unavailable);
    assert_eq!(stored_config(&server, "a").unwrap()["data"]["x"], "1", "it was carried out");
    server.no_faults();
    client.merge(&id, "host", &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_test_waits_for_what_another_task_does_without_sleeping() {
    let server = Server::new();
    let client = client(&server);
    let done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&done);
    let task = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(90)).await;
        client.apply(&config_id("a"), "host", &config("a", &json!({}))).await.unwrap();
        flag.store(true, Ordering::SeqCst);
    });
    server.until(|server| stored_config(server, "a").is_some()).await;
    task.await.unwrap();
    assert!(done.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "waited for 10 min in vain; objects:\n{\"apiVersion\":\"v1\"")]
async fn a_test_that_waits_in_vain_says_what_there_was() {
    let server = Server::new();
    server.put(config("a", &json!({})));
    server.until(|server| stored_config(server, "b").is_some()).await;
}

#[test]
fn the_same_steps_give_the_same_objects() {
    let run = || {
        let server = Server::new();
        server.put(config("a", &json!({"x": "1"})));
        server.put(config("a", &json!({"x": "2"})));
        server.put(config("b", &json!({})));
        server.list("v1", "ConfigMap")
    };
    assert_eq!(run(), run());
    assert_eq!(
        run()[1]["metadata"],
        json!({"name": "b", "namespace": "shop",
        "uid": "00000000-0000-4000-8000-000000000004", "resourceVersion": "4",
        "creationTimestamp": "2000-01-01T00:00:04Z"})
    );
}

#[test]
#[should_panic(expected = "there is no kind v9 Nothing")]
fn a_test_that_writes_what_is_not_served_is_told() {
    Server::new().put(json!({"apiVersion": "v9", "kind": "Nothing", "metadata": {"name": "a"}}));
}
