use proptest::prelude::*;

use super::*;
use crate::ident::ObjectKey;
use crate::limits;
use crate::raw_decision::OnImmutable;

const NOW: Moment = Moment::from_secs(1);

fn observed(kind: Kind, raw: &Value) -> Observed {
    let object = StoredObject::parse(&kind, &raw.to_string()).unwrap();
    Observed { kind: Arc::new(kind), object: Arc::new(object) }
}

fn parent() -> Observed {
    let metadata = json!({"namespace": "n", "name": "p", "uid": "p1", "generation": 1});
    observed(Kind::new("example.com/v1", "Demo"), &json!({ "metadata": metadata }))
}

fn config_map() -> Kind {
    Kind::new("v1", "ConfigMap")
}

fn desired(name: &str, value: &str) -> DesiredObject {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "n"}, "data": {"key": value}});
    let Value::Object(body) = body else { unreachable!() };
    DesiredObject {
        id: ObjectId { kind: config_map(), key: ObjectKey::new("n", name) },
        ownership: Ownership::Owned,
        on_immutable: OnImmutable::Report,
        body,
    }
}

fn run(memory: &mut Memory, desired: Vec<DesiredObject>, children: &[Observed]) -> Vec<Step> {
    run_at(&parent(), memory, desired, children, NOW).steps
}

fn run_at(
    parent: &Observed,
    memory: &mut Memory,
    desired: Vec<DesiredObject>,
    children: &[Observed],
    now: Moment,
) -> Plan {
    let context = PlanContext { plugin: "demo", parent, children, marked: &[], now };
    let live = |id: &ObjectId| {
        let found =
            children.iter().find(|child| *child.kind == id.kind && child.object.key == id.key);
        found.map(|child| Arc::clone(&child.object))
    };
    plan(&context, desired, memory, live)
}

/// What a server would store: the applied body plus what servers add.
fn stored(step: &Step, version: u64) -> Observed {
    let Step::Apply(apply) = step else { panic!("not an apply: {step:?}") };
    let mut body = Value::Object(apply.body.clone());
    body["metadata"]["uid"] = json!(format!("uid-{}", apply.id.key.name));
    body["metadata"]["resourceVersion"] = json!(version.to_string());
    observed(apply.id.kind.clone(), &body)
}

#[test]
fn creates_what_is_missing_with_owner_labels_and_mark() {
    let steps = run(&mut Memory::default(), vec![desired("a", "1")], &[]);
    let Step::Apply(apply) = &steps[0] else { panic!("{steps:?}") };
    let metadata = &apply.body["metadata"];
    assert_eq!(metadata["ownerReferences"][0]["uid"], "p1");
    assert_eq!(metadata["ownerReferences"][0]["controller"], true);
    assert_eq!(metadata["labels"]["operator-host.dev/plugin"], "demo");
    assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "operator-host");
    assert_eq!(metadata["annotations"]["operator-host.dev/applied"], format!("p1/{}", apply.hash));
    assert_eq!(apply.live, None);
}

#[test]
fn the_second_plan_is_empty() {
    let first = run(&mut Memory::default(), vec![desired("a", "1")], &[]);
    let second = run(&mut Memory::default(), vec![desired("a", "1")], &[stored(&first[0], 1)]);
    assert!(matches!(second[..], [Step::Keep(_)]), "{second:?}");
}

#[test]
fn repairs_drift_of_a_kind_without_generation() {
    let first = run(&mut Memory::default(), vec![desired("a", "1")], &[]);
    let Step::Apply(mut drifted) = first[0].clone() else { panic!() };
    drifted.body.insert("data".into(), json!({"key": "edited"}));
    let second =
        run(&mut Memory::default(), vec![desired("a", "1")], &[stored(&Step::Apply(drifted), 2)]);
    assert!(matches!(second[..], [Step::Apply(_)]), "{second:?}");
}

#[test]
fn a_field_no_longer_returned_is_applied_away() {
    let mut with_more = desired("a", "1");
    with_more.body.insert("immutable".into(), json!(false));
    let first = run(&mut Memory::default(), vec![with_more], &[]);
    let second = run(&mut Memory::default(), vec![desired("a", "1")], &[stored(&first[0], 1)]);
    assert!(matches!(second[..], [Step::Apply(_)]), "{second:?}");
}

#[test]
fn learns_how_the_server_writes_a_value() {
    let mut memory = Memory::default();
    let first = run(&mut memory, vec![desired("a", "1")], &[]);
    let Step::Apply(apply) = &first[0] else { panic!() };
    let mut normalised = apply.clone();
    normalised.body.insert("data".into(), json!({"key": "one"}));
    let live = stored(&Step::Apply(normalised), 2);
    let unlearned = run(&mut memory, vec![desired("a", "1")], std::slice::from_ref(&live));
    assert!(matches!(unlearned[..], [Step::Apply(_)]));
    memory.learn(apply, &live.object);
    let learned = run(&mut memory, vec![desired("a", "1")], &[live]);
    assert!(matches!(learned[..], [Step::Keep(_)]), "{learned:?}");
}

#[test]
fn prunes_only_what_it_owns() {
    let first = run(&mut Memory::default(), vec![desired("a", "1"), desired("b", "1")], &[]);
    let mine = stored(&first[0], 1);
    let unmarked = observed(
        config_map(),
        &json!({"metadata": {"namespace": "n", "name": "x", "uid": "x",
            "ownerReferences": [{"uid": "p1", "controller": true, "kind": "Demo", "name": "p"}]}}),
    );
    let steps = run(&mut Memory::default(), vec![], &[mine, unmarked]);
    let names: Vec<_> = steps.iter().map(|step| step.id().key.name.to_string()).collect();
    assert_eq!(names, ["a"]);
    assert!(matches!(&steps[0], Step::Prune { uid, .. } if **uid == *"uid-a"));
}

#[test]
fn never_takes_an_object_of_another_controller() {
    let foreign = observed(
        config_map(),
        &json!({"metadata": {"namespace": "n", "name": "a", "uid": "x",
            "ownerReferences": [{"uid": "other", "controller": true, "kind": "Demo", "name": "q"}]}}),
    );
    let steps = run(&mut Memory::default(), vec![desired("a", "1")], &[foreign]);
    let [Step::Refuse { problem, .. }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(problem.reason, "OwnedByOther");
    assert!(problem.message.contains("Demo q"), "{}", problem.message);
}

#[test]
fn sets_fields_only_on_what_exists_and_pins_its_uid() {
    let mut partial = desired("a", "1");
    partial.ownership = Ownership::Partial;
    let missing = run(&mut Memory::default(), vec![partial.clone()], &[]);
    assert!(matches!(&missing[..], [Step::Refuse { problem, .. }] if problem.reason == "NotFound"));
    let live =
        observed(config_map(), &json!({"metadata": {"namespace": "n", "name": "a", "uid": "x"}}));
    let steps = run(&mut Memory::default(), vec![partial], &[live]);
    let [Step::Apply(apply)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(apply.body["metadata"]["uid"], "x");
    assert!(apply.body["metadata"].get("ownerReferences").is_none());
}

#[test]
fn releases_fields_no_longer_returned() {
    let parent = parent();
    let pod = Kind::new("v1", "Pod");
    let marked = observed(
        pod,
        &json!({"metadata": {"namespace": "n", "name": "a", "uid": "x",
            "annotations": {"operator-host.dev/applied": "p1/abc"}}}),
    );
    let context =
        PlanContext { plugin: "demo", parent: &parent, children: &[], marked: &[marked], now: NOW };
    let steps = plan(&context, vec![], &mut Memory::default(), |_| None).steps;
    assert!(matches!(&steps[..], [Step::Release { uid, .. }] if **uid == *"x"), "{steps:?}");
}

#[test]
fn prunes_what_has_lost_its_owner_reference_and_leaves_what_another_has_taken() {
    let parent = parent();
    let child = |name: &str, owners: Value| {
        let labels = json!({"operator-host.dev/plugin": "demo"});
        let annotations = json!({"operator-host.dev/applied": "p1/abc"});
        let metadata = json!({"namespace": "n", "name": name, "uid": name, "labels": labels,
            "annotations": annotations, "ownerReferences": owners});
        observed(config_map(), &json!({"metadata": metadata}))
    };
    let taken = json!([{"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o1", "controller": true}]);
    let marked = [child("lost", json!([])), child("taken", taken)];
    let context =
        PlanContext { plugin: "demo", parent: &parent, children: &[], marked: &marked, now: NOW };
    let steps = plan(&context, vec![], &mut Memory::default(), |_| None).steps;
    assert!(matches!(&steps[..], [Step::Prune { uid, .. }] if **uid == *"lost"), "{steps:?}");
}

#[test]
fn prunes_nothing_of_a_parent_that_is_deleted_without_its_children() {
    let metadata = json!({"namespace": "n", "name": "p", "uid": "p1", "generation": 2,
        "deletionTimestamp": "2026-01-31T08:00:00Z", "finalizers": ["orphan", "x/y"]});
    let parent = observed(Kind::new("example.com/v1", "Demo"), &json!({ "metadata": metadata }));
    let mut memory = Memory::default();
    let children = [stored(&run(&mut memory, vec![desired("a", "1")], &[])[0], 7)];
    let context =
        |parent| PlanContext { plugin: "demo", parent, children: &children, marked: &[], now: NOW };
    let living = self::parent();
    let pruned = plan(&context(&living), vec![], &mut memory, |_| None).steps;
    assert!(matches!(&pruned[..], [Step::Prune { .. }]), "{pruned:?}");
    assert_eq!(plan(&context(&parent), vec![], &mut memory, |_| None).steps, []);
}

proptest! {
    /// Whatever is desired, once applied there is nothing left to do, in any order of keys.
    #[test]
    fn applying_a_plan_reaches_a_fixed_point(
        names in prop::collection::btree_set("[a-c]{1,2}", 0..5),
        value in "[a-z0-9]{0,8}",
    ) {
        let wanted: Vec<_> = names.iter().map(|name| desired(name, &value)).collect();
        let first = run(&mut Memory::default(), wanted.clone(), &[]);
        let live: Vec<_> = first.iter().map(|step| stored(step, 1)).collect();
        let second = run(&mut Memory::default(), wanted, &live);
        prop_assert!(second.iter().all(|step| matches!(step, Step::Keep(_))), "{second:?}");
    }
}

#[test]
fn repairs_drift_and_tells_a_fight_from_an_accident() {
    let mut memory = Memory::default();
    let mut version = 1;
    let mut contested = Vec::new();
    let mut now = NOW;
    let steps = run(&mut memory, vec![desired("a", "ours")], &[]);
    let Step::Apply(apply) = &steps[0] else { panic!("{steps:?}") };
    memory.learn(apply, &stored(&steps[0], version).object);
    for _ in 0..limits::CONTEST_REPAIRS {
        version += 1;
        let theirs = stored(&steps[0], version).object.json.replace("ours", "theirs");
        let theirs = observed(config_map(), &serde_json::from_str(&theirs).unwrap());
        now += Moment::from_secs(5);
        let plan = run_at(&parent(), &mut memory, vec![desired("a", "ours")], &[theirs], now);
        let Step::Apply(apply) = &plan.steps[0] else { panic!("not repaired: {plan:?}") };
        version += 1;
        memory.learn(apply, &stored(&plan.steps[0], version).object);
        contested.push(plan.contested.len());
        let repaired = stored(&plan.steps[0], version);
        let after =
            run_at(&parent(), &mut memory, vec![desired("a", "ours")], &[repaired], now + NOW);
        assert!(matches!(after.steps[0], Step::Keep(_)));
        assert_eq!(after.contested.len(), plan.contested.len(), "told until it has ended");
        assert!(after.contested.iter().all(|contested| !contested.repaired));
    }
    assert_eq!(contested, [0, 0, 0, 0, 1]);
    now += limits::CONTEST_WINDOW;
    let theirs = stored(&steps[0], version + 1).object.json.replace("ours", "theirs");
    let theirs = observed(config_map(), &serde_json::from_str(&theirs).unwrap());
    let plan = run_at(
        &parent(),
        &mut memory,
        vec![desired("a", "ours")],
        std::slice::from_ref(&theirs),
        now,
    );
    assert_eq!(plan.contested, [], "an accident every now and then is no fight");
    let plan = run_at(&parent(), &mut memory, vec![desired("a", "changed")], &[theirs], now);
    assert_eq!(plan.contested, [], "a change of what is desired is no drift");
}

#[test]
fn does_not_take_over_again_what_a_deletion_has_orphaned() {
    let metadata = json!({"namespace": "n", "name": "p", "uid": "p1", "generation": 2,
        "deletionTimestamp": "2026-01-31T08:00:00Z"});
    let deleting = observed(Kind::new("example.com/v1", "Demo"), &json!({ "metadata": metadata }));
    let mut memory = Memory::default();
    let created = run(&mut memory, vec![desired("a", "1")], &[]);
    let mut orphan: Value = serde_json::from_str(&stored(&created[0], 7).object.json).unwrap();
    orphan["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let orphan = [observed(config_map(), &orphan)];
    let steps = run_at(&deleting, &mut memory, vec![desired("a", "1")], &orphan, NOW).steps;
    assert!(
        matches!(&steps[..], [Step::Refuse { problem, .. }] if problem.reason == "ParentDeleting"),
        "{steps:?}"
    );
}
