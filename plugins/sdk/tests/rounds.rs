//! A plugin's run as the host drives it, natively: questions, answers, and what stops a run.

use operator_host_sdk::{
    Action, Answer, Context, Decision, Descriptor, Desired, FailureKind, Kind, ObjectMeta,
    ObjectQuery, Plugin, ProbeQuery, Query, Reply, Snapshot, Stop, Verdict, testing,
};
use serde::Deserialize;
use serde_json::{Value, json};

const POD: Kind = Kind::new("v1", "Pod");

/// Looks at its pods, then at each of them, then decides.
struct Watcher;

#[derive(Deserialize)]
struct Pod {
    metadata: ObjectMeta,
}

impl Plugin for Watcher {
    type Parent = Value;

    fn describe() -> Descriptor {
        Descriptor::new("watcher", "1.0.0", Kind::new("example.com/v1", "Watch"))
            .reads([POD])
            .providers(["redis"])
    }

    fn reconcile(ctx: &Context<Value>) -> Result<Decision, Stop> {
        let pods: Vec<Pod> = ctx.objects(&ObjectQuery::of(POD).labels("app=x"))?;
        let mut probes = Vec::new();
        for pod in &pods {
            probes.push(ProbeQuery::new("redis", &json!({"pod": pod.metadata.name}))?);
        }
        let replies = ctx.probes(&probes)?;
        Decision::new()
            .requeue_after_secs(5)
            .status(&json!({"replies": replies, "mode": ctx.config("mode"), "none": null}))
    }
}

fn parent() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Watch", "metadata": {"name": "w", "namespace": "n"}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n"}})
}

#[expect(clippy::panic, reason = "a test's own helper, which clippy does not count as a test")]
fn asked(snapshot: Snapshot) -> Vec<Query> {
    match testing::call::<Watcher>(snapshot) {
        Ok(Verdict::Ask(queries)) => queries,
        other => panic!("expected questions, got {other:?}"),
    }
}

#[test]
fn asks_round_by_round_and_all_probes_at_once() {
    let mut snapshot = testing::snapshot(&parent());
    snapshot.config.push(("mode".to_owned(), "fast".to_owned()));
    let first = asked(snapshot.clone());
    assert_eq!(first, [ObjectQuery::of(POD).labels("app=x").into()]);
    let pods = vec![testing::object(&pod("a")), testing::object(&pod("b"))];
    snapshot.answers.push(Answer { query: first[0].clone(), reply: Reply::Objects(pods) });

    let second = asked(snapshot.clone());
    assert_eq!(second.len(), 2);
    // One of two answers is not enough, and only the other one is asked for again.
    snapshot
        .answers
        .push(Answer { query: second[1].clone(), reply: Reply::Probe("\"B\"".to_owned()) });
    assert_eq!(asked(snapshot.clone()), second[..1]);
    snapshot
        .answers
        .push(Answer { query: second[0].clone(), reply: Reply::Probe("\"A\"".to_owned()) });

    let Ok(Verdict::Decide(decision)) = testing::call::<Watcher>(snapshot) else { panic!() };
    assert_eq!(decision.requeue_after_ms, Some(5_000));
    let status = r#"{"mode":"fast","replies":["\"A\"","\"B\""]}"#;
    assert_eq!(decision.status.as_deref(), Some(status), "in the order asked, nulls left out");
}

#[test]
fn equal_questions_are_asked_once() {
    let ctx: Context<Value> = Context::read(testing::snapshot(&parent())).unwrap();
    let query = ObjectQuery::of(POD);
    let stop = ctx.ask_all([query.clone(), query.clone()]).unwrap_err();
    assert_eq!(stop, Stop::Ask(vec![query.into()]));
    ctx.ask_all::<Query>([]).unwrap();
}

#[test]
fn an_object_of_another_shape_is_named() {
    let mut snapshot = testing::snapshot(&parent());
    let odd =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd", "labels": {"a": 1}}});
    snapshot.answers.push(Answer {
        query: ObjectQuery::of(POD).labels("app=x").into(),
        reply: Reply::Objects(vec![testing::object(&odd)]),
    });
    let failure = testing::call::<Watcher>(snapshot).unwrap_err();
    assert_eq!((failure.kind, failure.reason.as_str()), (FailureKind::Terminal, "InvalidObject"));
    assert!(failure.message.starts_with("Pod odd: metadata.labels.a: "), "{}", failure.message);
}

#[test]
fn children_are_those_of_the_kind() {
    let mut snapshot = testing::snapshot(&parent());
    snapshot.children = vec![testing::object(&pod("a")), testing::object(&parent())];
    let ctx: Context<Value> = Context::read(snapshot).unwrap();
    assert_eq!(ctx.children::<Pod>(POD).unwrap().len(), 1);
    assert_eq!(ctx.child::<Pod>(POD, "a").unwrap().unwrap().metadata.namespace, "n");
    assert!(ctx.child::<Pod>(POD, "w").unwrap().is_none());
    assert!(!ctx.deleting());
}

#[test]
fn json_is_canonical_and_claims_nothing_by_null() {
    let desired = Desired::owned(&json!({"b": [{"x": null, "y": 1}], "a": null})).unwrap();
    assert_eq!(desired.body, r#"{"b":[{"y":1}]}"#);
    let delete = Action::delete(POD, "a", "u");
    assert_eq!(delete.provider, "kubernetes");
    let request: Value = serde_json::from_str(&delete.request).unwrap();
    let object = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"});
    assert_eq!(request, json!({"delete": object}));
}
