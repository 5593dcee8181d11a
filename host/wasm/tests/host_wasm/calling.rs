//! Calls: each limit, each fault, and what crosses the boundary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use host_core::decision::{EventKind, OnImmutable, Ownership};
use host_core::grants::CallLimits;
use host_core::ident::{Kind, ObjectId, ObjectKey};
use host_core::snapshot::{
    Action, ActionOutcome, Answer, Failure, FailureKind, ObjectOutcome, ObjectQuery, ObjectResult,
    Outcome, ProbeQuery, Problem, Query, Reply, Verdict,
};
use host_wasm::{CallFault, FaultKind, LogLevel, LogLine};

use crate::guest::{DESCRIBE_SPINS, HOSTILE, chain, compile, engine, hostile, observed, snapshot};

fn fault(behaviour: &str) -> CallFault {
    hostile().reconcile(&snapshot(behaviour), &mut |_| ()).unwrap_err()
}

fn status(behaviour: &str) -> String {
    match hostile().reconcile(&snapshot(behaviour), &mut |_| ()).unwrap().unwrap() {
        Verdict::Decide(decision) => decision.status.unwrap(),
        Verdict::Ask(queries) => panic!("asked {queries:?}"),
    }
}

#[test]
fn every_fault_is_told_apart_and_harms_no_other_call() {
    let id = hostile().id().to_string();
    assert!(id.starts_with("hostile@sha256:"), "{id}");
    for (behaviour, reason, text) in [
        ("spin", "PluginDeadline", "exceeded 2000 ms"),
        ("grow", "PluginMemory", "exceeded 16 MiB of memory"),
        ("recurse", "PluginStackOverflow", "overflowed its stack"),
        ("recurse-with-frames", "PluginStackOverflow", "overflowed its stack"),
        ("panic", "PluginPanicked", "index out of bounds: the len is 2 but the index is 7"),
        ("trap", "PluginTrapped", "`unreachable` instruction executed, in "),
        ("huge", "PluginOutputTooLarge", "handed over more than 8388608 bytes at once"),
        ("many", "PluginOutputTooLarge", "handed over more than 8388608 bytes at once"),
        ("bad-text", "PluginBadOutput", "utf-8"),
        ("log-flood", "PluginLogQuota", "logged more than 65536 bytes"),
        ("log-nothing", "PluginLogQuota", "logged more than 65536 bytes"),
    ] {
        let fault = fault(behaviour);
        let message = fault.to_string();
        assert_eq!(fault.reason(), reason, "{behaviour}: {message}");
        assert!(message.starts_with(&id) && message.contains(text), "{behaviour}: {message}");
        assert_eq!(status("plain"), r#"{"calls":1}"#, "after {behaviour}");
    }
}

#[test]
fn a_deadline_is_kept_within_two_ticks_and_a_busy_machine() {
    let limits = CallLimits { call_deadline_ms: 50, memory_mib: 16 };
    let plugin = engine().load(compile(&HOSTILE), &limits).unwrap();
    let start = Instant::now();
    let fault = plugin.reconcile(&snapshot("spin"), &mut |_| ()).unwrap_err();
    let took = start.elapsed();
    assert_eq!(fault.kind, FaultKind::Deadline { ms: 50 });
    assert!(took >= Duration::from_millis(50), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn state_never_leaks_between_calls() {
    for _ in 0..50 {
        assert_eq!(status("plain"), r#"{"calls":1}"#);
    }
}

#[test]
fn more_callers_than_slots_wait_for_each_other() {
    std::thread::scope(|scope| {
        for behaviour in ["plain", "grow", "plain", "trap"].into_iter().cycle().take(24) {
            scope.spawn(move || match behaviour {
                "plain" => assert_eq!(status("plain"), r#"{"calls":1}"#),
                "grow" => assert_eq!(fault("grow").reason(), "PluginMemory"),
                _ => assert_eq!(fault("trap").reason(), "PluginTrapped"),
            });
        }
    });
}

#[test]
fn equal_snapshots_get_equal_verdicts() {
    for behaviour in ["plain", "decide", "echo", "fail", "ask"] {
        let result = hostile().check_determinism(&snapshot(behaviour)).unwrap();
        assert_eq!(result, Ok(()), "{behaviour}");
    }
    assert_eq!(
        hostile().check_determinism(&snapshot("trap")).unwrap_err().reason(),
        "PluginTrapped"
    );
}

#[test]
fn log_lines_arrive_with_their_fields_and_after_a_fault_too() {
    let mut lines = Vec::new();
    hostile().reconcile(&snapshot("log"), &mut |line| lines.push(line)).unwrap().unwrap();
    let expected = LogLine {
        level: LogLevel::Info,
        message: "hello".into(),
        fields: vec![("key".into(), "value".into())],
    };
    assert_eq!(lines, [expected]);

    lines.clear();
    hostile().reconcile(&snapshot("panic"), &mut |line| lines.push(line)).unwrap_err();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].level, LogLevel::Error);

    lines.clear();
    hostile().reconcile(&snapshot("log-nothing"), &mut |line| lines.push(line)).unwrap_err();
    assert_eq!(lines.len(), 1_024);
}

#[test]
fn describes_itself_once_loaded() {
    let descriptor = hostile().descriptor();
    assert_eq!((descriptor.name.as_str(), descriptor.version.as_str()), ("hostile", "1.2.3"));
    assert_eq!(descriptor.parent, Kind::new("example.com/v1", "Demo"));
    assert_eq!(descriptor.owns, [Kind::new("v1", "ConfigMap")]);
    assert_eq!(descriptor.reads, [Kind::new("v1", "Secret")]);
    assert_eq!(descriptor.patches, [Kind::new("v1", "Pod")]);
    assert_eq!(descriptor.providers, ["redis"]);
    assert!(descriptor.finalizer);
    assert_eq!(descriptor.hints, [("colour".to_owned(), "red".to_owned())]);
}

#[test]
fn a_plugin_that_cannot_describe_itself_is_not_loaded() {
    let limits = CallLimits { call_deadline_ms: 50, memory_mib: 16 };
    let error = engine().load(compile(&DESCRIBE_SPINS), &limits).unwrap_err();
    assert_eq!(error.reason(), "PluginDeadline");
    let text = chain(&error);
    assert!(text.starts_with("asking the plugin to describe itself: test@sha256:"), "{text}");
}

#[test]
fn refuses_limits_that_make_no_sense() {
    let compiled = || compile(&HOSTILE);
    for (call_deadline_ms, memory_mib, text) in [
        (0, 16, "limits.callDeadlineMs is 0, but must be from 1 to 60000"),
        (1_000, 65, "limits.memoryMib is 65, but must be from 1 to 64"),
    ] {
        let limits = CallLimits { call_deadline_ms, memory_mib };
        let message = engine().load(compiled(), &limits).unwrap_err().to_string();
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn a_failure_is_the_plugins_own_word() {
    let failure = hostile().reconcile(&snapshot("fail"), &mut |_| ()).unwrap().unwrap_err();
    let expected = Failure {
        kind: FailureKind::Terminal,
        reason: "NotToday".into(),
        message: "come back tomorrow".into(),
    };
    assert_eq!(failure, expected);
}

#[test]
fn questions_come_through() {
    let Verdict::Ask(queries) =
        hostile().reconcile(&snapshot("ask"), &mut |_| ()).unwrap().unwrap()
    else {
        panic!("expected questions");
    };
    assert_eq!(queries, [secrets_query(), probe_query()]);
}

fn secrets_query() -> Query {
    Query::Objects(ObjectQuery {
        kind: Kind::new("v1", "Secret"),
        namespace: Some("other".into()),
        name: None,
        label_selector: Some("a=b".into()),
    })
}

fn probe_query() -> Query {
    Query::Probe(ProbeQuery { provider: "redis".into(), request: "{}".into() })
}

#[test]
fn decisions_come_through() {
    let Verdict::Decide(decision) =
        hostile().reconcile(&snapshot("decide"), &mut |_| ()).unwrap().unwrap()
    else {
        panic!("expected a decision");
    };
    let objects: Vec<_> = decision
        .objects
        .iter()
        .map(|object| (object.ownership, object.on_immutable, object.body.as_str()))
        .collect();
    assert_eq!(
        objects,
        [
            (Ownership::Owned, OnImmutable::Report, r#"{"a":1}"#),
            (Ownership::Owned, OnImmutable::Recreate, r#"{"b":2}"#),
            (Ownership::Partial, OnImmutable::RecreateOrphan, r#"{"c":3}"#),
        ]
    );
    assert_eq!(decision.events[0].kind, EventKind::Warning);
    assert_eq!(decision.events[0].action, "Acting");
    assert_eq!(decision.requeue_after_ms, Some(5_000));
    assert!(decision.finished);
}

#[test]
fn garbage_json_is_passed_on_for_the_core_to_refuse() {
    assert_eq!(status("garbage"), "{not json");
}

#[test]
fn a_plugin_sees_everything_that_was_observed() {
    let problem = Problem { reason: "Conflict".into(), message: "taken".into() };
    let outcome = |name: &str, result| ObjectOutcome {
        id: ObjectId { kind: Kind::new("v1", "Pod"), key: ObjectKey::new("shop", name) },
        result,
    };
    let action = |result| ActionOutcome {
        action: Action { provider: "redis".into(), request: "{r}".into() },
        result,
    };
    let mut snapshot = snapshot("echo");
    snapshot.children = vec![observed("Child", "c1"), observed("Child", "c2")];
    snapshot.answers = vec![
        Answer { query: secrets_query(), reply: Reply::Objects(vec![observed("Secret", "s")]) },
        Answer { query: probe_query(), reply: Reply::Probe("{pong}".into()) },
    ];
    snapshot.previous = Some(Arc::new(Outcome {
        objects: vec![
            outcome("a", ObjectResult::Unchanged),
            outcome("b", ObjectResult::Applied),
            outcome("c", ObjectResult::Deleted),
            outcome("d", ObjectResult::Failed(problem.clone())),
        ],
        actions: vec![action(Ok("{done}".into())), action(Err(problem))],
    }));
    snapshot.config = vec![("colour".into(), "red".into())];

    let verdict = hostile().reconcile(&snapshot, &mut |_| ()).unwrap().unwrap();
    let Verdict::Decide(decision) = verdict else { panic!("expected a decision") };
    let object = |kind: &str, name: &str| {
        format!("example.com/v1 {kind} shop/{name} {}", observed(kind, name).object.json)
    };
    let expected = [
        "2026-01-31T08:00:00Z",
        &object("Demo", "echo"),
        &object("Child", "c1"),
        &object("Child", "c2"),
        r#"objects? v1 Secret Some("other") None Some("a=b")"#,
        &object("Secret", "s"),
        "probe? redis {}",
        "{pong}",
        "Pod shop/a unchanged",
        "Pod shop/b applied",
        "Pod shop/c deleted",
        "Pod shop/d Conflict: taken",
        "redis {r} {done}",
        "redis {r} Conflict: taken",
        "colour=red",
    ];
    assert_eq!(decision.status.unwrap(), expected.join("\n"));
}
