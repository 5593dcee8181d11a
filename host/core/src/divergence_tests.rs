use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::decision::{DesiredObject, Ownership};
use crate::grants::tests::grants_for_tests;
use crate::guard::{GuardContext, guard};
use crate::ident::Kind;
use crate::plan::{Memory, PlanContext, plan};
use crate::queue::Moment;
use crate::snapshot::Observed;

/// Children as the cluster has them after one version has applied its objects.
struct World {
    parent: Observed,
    children: Vec<Observed>,
}

fn observed(kind: &Kind, body: &Value) -> Observed {
    let object = StoredObject::parse(kind, &body.to_string()).unwrap();
    Observed { kind: Arc::new(kind.clone()), object: Arc::new(object) }
}

fn config_map() -> Kind {
    Kind::new("v1", "ConfigMap")
}

fn desired(name: &str, text: &str) -> DesiredObject {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "n"}, "data": {"text": text}});
    let Value::Object(body) = body else { panic!("an object") };
    DesiredObject {
        id: ObjectId { kind: config_map(), key: ObjectKey::new("n", name) },
        ownership: Ownership::Owned,
        on_immutable: OnImmutable::Recreate,
        body,
    }
}

impl World {
    fn empty() -> Self {
        let parent =
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1}});
        Self { parent: observed(&Kind::new("example.com/v1", "Demo"), &parent), children: vec![] }
    }

    fn live(&self, id: &ObjectId) -> Option<Arc<StoredObject>> {
        let mut children = self.children.iter();
        children.find(|child| child.object.key == id.key).map(|child| Arc::clone(&child.object))
    }

    fn propose(&self, desired: Vec<DesiredObject>, status: &Value) -> Proposal {
        let grants = grants_for_tests();
        let context = PlanContext {
            plugin: "demo",
            parent: &self.parent,
            children: &self.children,
            marked: &[],
            now: Moment::ZERO,
        };
        let plan = plan(&context, desired, &mut Memory::default(), |id| self.live(id));
        let context = GuardContext {
            grants: &grants,
            parent_namespace: "n",
            parent_deleting: false,
            parent_generation: 1,
            allow_deletions: None,
            children: self.children.len(),
        };
        let Value::Object(status) = status.clone() else { panic!("an object") };
        Proposal { plan: guard(&context, plan), status: Some(status), actions: Vec::new() }
    }

    /// What it is after these objects were applied.
    fn after(desired: Vec<DesiredObject>) -> Self {
        let mut world = Self::empty();
        let proposal = world.propose(desired, &json!({}));
        let applied = proposal.plan.steps().iter().filter_map(|step| match step {
            Step::Apply(apply) => Some(apply.body.clone()),
            Step::Keep(_) | Step::Prune { .. } | Step::Release { .. } | Step::Refuse { .. } => None,
        });
        let children: Vec<_> = applied
            .map(|body| {
                let mut body = Value::Object(body);
                let uid = format!("uid-{}", body["metadata"]["name"]);
                body["metadata"]["uid"] = json!(uid);
                observed(&config_map(), &body)
            })
            .collect();
        world.children = children;
        world
    }

    fn compare(&self, active: Vec<DesiredObject>, candidate: Vec<DesiredObject>) -> Vec<String> {
        let active = Ok(self.propose(active, &json!({"size": 1})));
        let candidate = Ok(self.propose(candidate, &json!({"size": 1})));
        match compare(&active, &candidate, |id| self.live(id), &BTreeSet::new()) {
            Effect::Same => vec![],
            Effect::Changes(changes) => changes.iter().map(ToString::to_string).collect(),
            Effect::Fails(problem) => vec![problem.reason],
        }
    }
}

#[test]
fn what_both_would_do_is_no_difference() {
    let world = World::empty();
    let both = || vec![desired("a", "one"), desired("b", "one")];
    assert_eq!(world.compare(both(), both()), Vec::<String>::new(), "in the middle of a creation");
    let world = World::after(both());
    assert_eq!(world.compare(both(), both()), Vec::<String>::new(), "in the steady state");
}

#[test]
fn says_what_would_be_created_changed_and_deleted() {
    let world = World::after(vec![desired("a", "one"), desired("b", "one")]);
    let active = || vec![desired("a", "one"), desired("b", "one")];
    let found = world.compare(active(), vec![desired("a", "two"), desired("c", "one")]);
    let expected =
        ["patch ConfigMap n/a (.data.text)", "create ConfigMap n/c", "delete ConfigMap n/b"];
    assert_eq!(found, expected);
}

#[test]
fn a_mass_deletion_that_would_be_held_is_still_a_deletion() {
    let all = || ["a", "b", "c", "d"].map(|name| desired(name, "one")).to_vec();
    let world = World::after(all());
    assert_eq!(world.compare(all(), Vec::new()).len(), 4);
}

#[test]
fn an_object_that_an_apply_cannot_change_would_be_recreated() {
    let world = World::after(vec![desired("a", "one")]);
    let active = Ok(world.propose(vec![desired("a", "one")], &json!({})));
    let candidate = Ok(world.propose(vec![desired("a", "two")], &json!({})));
    let recreated = BTreeSet::from([desired("a", "").id]);
    let effect = compare(&active, &candidate, |id| world.live(id), &recreated);
    let Effect::Changes(changes) = effect else { panic!("no change") };
    assert_eq!(changes.first().map(|change| change.verb), Some(Verb::Recreate));
}

#[test]
fn a_candidate_is_not_to_blame_for_what_nobody_can_do() {
    let problem = || Err(Problem { reason: "PluginPanicked".into(), message: "boom".into() });
    let world = World::empty();
    let fine = Ok(world.propose(vec![], &json!({})));
    let live = |_: &ObjectId| None;
    assert_eq!(compare(&problem(), &problem(), live, &BTreeSet::new()), Effect::Same);
    assert!(matches!(compare(&fine, &problem(), live, &BTreeSet::new()), Effect::Fails(_)));
}

#[test]
fn a_status_alone_is_counted_apart() {
    let world = World::after(vec![desired("a", "one")]);
    let active = Ok(world.propose(vec![desired("a", "one")], &json!({"size": 1})));
    let candidate = Ok(world.propose(vec![desired("a", "one")], &json!({"size": 2})));
    let effect = compare(&active, &candidate, |id| world.live(id), &BTreeSet::new());
    let plan = FleetPlan::new(vec![(ObjectKey::new("n", "p"), effect)], None);
    let summary = plan.summary(10);
    assert_eq!((summary.changed, summary.status_only, summary.patches), (1, 1, 0));
    assert_eq!(summary.verdict(), "Changes");
}

#[test]
fn the_worst_comes_first_and_the_rest_is_counted() {
    let change = |verb| Change { verb, object: "ConfigMap n/a".into(), fields: vec![] };
    let parent = |name: &str| ObjectKey::new("n", name);
    let fails = Effect::Fails(Problem { reason: "R".into(), message: "m".into() });
    let plan = FleetPlan::new(
        vec![
            (parent("a"), Effect::Same),
            (parent("b"), Effect::Changes(vec![change(Verb::Patch)])),
            (parent("c"), Effect::Changes(vec![change(Verb::Delete)])),
            (parent("d"), fails),
        ],
        None,
    );
    let summary = plan.summary(2);
    let first: Vec<_> = summary.differences.iter().map(|one| one.parent.as_str()).collect();
    assert_eq!(first, ["n/d", "n/c"]);
    let expected = "4 parents: 1 same, 2 changed, 1 failing; 1 patches, 1 deletes";
    assert_eq!(summary.to_string(), expected);
}
