//! Lists that come as the beginning of a watch.

use super::*;

const STREAM: &str = "sendInitialEvents=true";

fn start_streaming(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Case {
    start_client(Kind::new("apps/v1", "StatefulSet"), fake::streaming(answer))
}

fn end_of_list(version: u64) -> String {
    let metadata = json!({
        "resourceVersion": version.to_string(),
        "annotations": {"k8s.io/initial-events-end": "true"},
    });
    event("BOOKMARK", &json!({"metadata": metadata}))
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_goes_on_as_the_watch() {
    let (feed, watch) = Answer::watch();
    let mut case = start_streaming(fake::script([(STREAM, watch)]));
    feed.send(event("ADDED", &object("a", "u1", 3))).unwrap();
    feed.send(event("BOOKMARK", &json!({"metadata": {"resourceVersion": "4"}}))).unwrap();
    assert!(case.changes.recv().await.unwrap().initial);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(case.store().view().is_err(), "not before its end");
    feed.send(end_of_list(5)).unwrap();
    case.synced().await;
    assert_eq!(case.store().observed_version(), 5);
    feed.send(event("ADDED", &object("b", "u2", 6))).unwrap();
    assert!(!case.changes.recv().await.unwrap().initial);
    let lines = case.log.lines("statefulsets");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for part in ["watch=true", "allowWatchBookmarks=true", "resourceVersionMatch=NotOlderThan"] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    assert!(!lines[0].contains("resourceVersion="), "{lines:?}");
    // The next watch resumes; nothing is listed again.
    drop(feed);
    case.log.wait_for("&resourceVersion=6").await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_relist_tells_what_vanished_and_keeps_what_did_not_change() {
    let (feed, first) = Answer::watch();
    let (again, second) = Answer::watch();
    let mut case = start_streaming(fake::script([(STREAM, first), (STREAM, second)]));
    for name in ["a", "b", "c"] {
        feed.send(event("ADDED", &object(name, name, 3))).unwrap();
    }
    feed.send(end_of_list(5)).unwrap();
    for name in ["+a", "+b", "+c"] {
        assert_eq!(case.changed().await, name);
    }
    case.synced().await;
    let kept = case.store().view().unwrap().get(&ObjectKey::new("shop", "a")).unwrap();
    let expired = json!({"code": 410, "reason": "Expired", "message": "too old"});
    feed.send(event("ERROR", &expired)).unwrap();
    again.send(event("ADDED", &object("a", "a", 3))).unwrap();
    again.send(event("ADDED", &object("b", "b", 8))).unwrap();
    assert_eq!(case.changed().await, "~b");
    assert!(case.store().view().is_ok(), "what was known can be read while it is listed again");
    again.send(end_of_list(9)).unwrap();
    assert_eq!(case.changed().await, "-c");
    let still = case.store().view().unwrap().get(&ObjectKey::new("shop", "a")).unwrap();
    assert!(Arc::ptr_eq(&kept, &still));
    assert_eq!(case.informers.report()[0].relists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_is_asked_once() {
    let old_etcd = json!({"code": 500, "reason": "InternalError", "message": "RequestWatchProgress is disabled"});
    for refusal in [Answer::refusal(400, "BadRequest"), Answer::refusal(422, "Invalid"), {
        let (feed, watch) = Answer::watch();
        feed.send(event("ERROR", &old_etcd)).unwrap();
        watch
    }] {
        let expired = || Answer::refusal(410, "Expired");
        let case = start_streaming(fake::script([
            (STREAM, refusal),
            (LIST, list(5, &[object("a", "u1", 3)])),
            ("resourceVersion=5", expired()),
            (LIST, list(6, &[])),
        ]));
        case.log.wait_for_count(LIST, 2).await;
        assert_eq!(case.log.lines(STREAM).len(), 1);
        let gaps = case.gaps("statefulsets");
        assert_eq!(gaps[0], 0, "falls back at once: {gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_or_has_no_end_is_a_list_by_pages_for_this_once() {
    let (feed, endless) = Answer::watch();
    feed.send(event("ADDED", &object("gone", "u0", 1))).unwrap();
    let mut case = start_streaming(fake::script([
        (STREAM, endless),
        (LIST, list(5, &[object("a", "u1", 3)])),
        ("resourceVersion=5", Answer::refusal(410, "Expired")),
        (STREAM, Answer::ended()),
        (LIST, list(6, &[object("b", "u2", 6)])),
    ]));
    assert_eq!(case.changed().await, "+gone");
    assert_eq!(case.changed().await, "+a");
    assert_eq!(case.changed().await, "-gone");
    assert_eq!(case.gaps("statefulsets")[0], 60_000);
    for name in ["+b", "-a"] {
        assert_eq!(case.changed().await, name);
    }
    assert_eq!(case.log.lines(STREAM).len(), 2);
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn a_failing_server_is_not_taken_for_one_that_cannot_stream() {
    let (feed, watch) = Answer::watch();
    let busy = json!({"code": 429, "reason": "TooManyRequests", "message": "later"});
    feed.send(event("ERROR", &busy)).unwrap();
    let case = start_streaming(fake::script([
        (STREAM, Answer::refusal(500, "InternalError")),
        (STREAM, Answer::refusal(403, "Forbidden")),
        (STREAM, watch),
    ]));
    case.log.wait_for_count(STREAM, 4).await;
    assert_eq!(case.log.lines(LIST).len(), 0);
    let gaps = case.gaps(STREAM);
    assert!(gaps.windows(2).all(|pair| pair[1] > pair[0]), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn lists_take_turns_but_those_that_hang_do_not_hold_up_the_others() {
    let hangs = |asked: &Asked| asked.line.contains("/slow") && asked.line.contains("limit=");
    let (client, log) = fake::client(move |asked| {
        if asked.line.ends_with("/apis/demo.dev/v1") {
            let kinds: Vec<_> = (0..6)
                .map(|n| json!({"name": format!("slow{n}"), "kind": format!("Slow{n}"), "namespaced": true, "verbs": ["list", "watch"]}))
                .collect();
            return Answer::json(&json!({"resources": kinds}));
        }
        if hangs(asked) || asked.line.contains("watch=true") {
            Answer::Silence
        } else {
            list(5, &[])
        }
    });
    let informers = Informers::new(client, 1, Arc::new(|_| {}));
    let _slow: Vec<_> = (0..6)
        .map(|n| informers.subscribe(Kind::new("demo.dev/v1", format!("Slow{n}")), Scope::All))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(log.lines("limit=").len(), 4);
    let healthy = informers.subscribe(Kind::new("apps/v1", "StatefulSet"), Scope::All);
    let deadline = Instant::now() + Duration::from_secs(11);
    healthy.store().wait_synced(deadline).await.unwrap();
}
