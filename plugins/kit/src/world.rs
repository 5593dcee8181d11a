//! A scenario as the host would see it: snapshots, and answers to queries.

use std::sync::Arc;

use host_core::grants::Grants;
use host_core::ident::{Kind, ObjectId, ObjectKey};
use host_core::object::StoredObject;
use host_core::selector::Selector;
use host_core::snapshot::{
    Action, ActionOutcome, Answer, ObjectOutcome, ObjectQuery, ObjectResult, Observed, Outcome,
    ProbeQuery, Problem, Query, Reply, Snapshot,
};
use serde_json::{Map, Value, json};

use crate::scenario::{Previous, PreviousProblem, PreviousResult, Probe, Scenario, ScenarioError};

/// In which order lists are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// As the contract says.
    Canonical,
    /// The other way round: nothing may depend on it.
    Reversed,
}

/// What a scenario says there is.
pub(crate) struct World {
    order: Order,
    now: String,
    parent: Observed,
    children: Vec<Observed>,
    /// Everything there is, children and parent included.
    all: Vec<Observed>,
    probes: Vec<Probe>,
    previous: Option<Arc<Outcome>>,
    config: Vec<(String, String)>,
}

impl World {
    /// Fills in what a scenario may leave out.
    pub(crate) fn new(scenario: &Scenario, order: Order) -> Result<Self, ScenarioError> {
        let mut parent = scenario.parent.clone();
        complete(&mut parent, &[("uid", json!("uid-of-the-parent")), ("generation", json!(1))]);
        let namespace = parent.pointer("/metadata/namespace").cloned();
        let owner = json!([{
            "apiVersion": parent.get("apiVersion"),
            "kind": parent.get("kind"),
            "name": parent.pointer("/metadata/name"),
            "uid": parent.pointer("/metadata/uid"),
            "controller": true,
        }]);
        let mut defaults = vec![("ownerReferences", owner)];
        defaults.extend(namespace.map(|namespace| ("namespace", namespace)));
        let parent = observed("parent", &parent)?;
        let mut children = Vec::new();
        for (index, child) in scenario.children.iter().enumerate() {
            let mut child = child.clone();
            complete(&mut child, &defaults);
            complete(&mut child, &[("uid", json!(format!("uid-of-child-{index}")))]);
            children.push(observed(&format!("children[{index}]"), &child)?);
        }
        let mut all = vec![parent.clone()];
        all.extend(children.iter().cloned());
        for (index, object) in scenario.objects.iter().enumerate() {
            let mut object = object.clone();
            complete(&mut object, &[("uid", json!(format!("uid-of-object-{index}")))]);
            all.push(observed(&format!("objects[{index}]"), &object)?);
        }
        arrange(&mut children, order);
        arrange(&mut all, order);
        let mut config: Vec<(String, String)> = scenario.config.clone().into_iter().collect();
        if order == Order::Reversed {
            config.reverse();
        }
        Ok(Self {
            order,
            now: scenario.now.clone(),
            parent,
            children,
            all,
            probes: scenario.probes.clone(),
            previous: scenario.previous.clone().map(|previous| Arc::new(outcome(previous))),
            config,
        })
    }

    /// The parent's key.
    pub(crate) fn parent(&self) -> &ObjectKey {
        &self.parent.object.key
    }

    /// The snapshot of a round.
    pub(crate) fn snapshot(&self, answers: &[Answer]) -> Snapshot {
        let mut answers = answers.to_vec();
        if self.order == Order::Reversed {
            answers.reverse();
        }
        Snapshot {
            now: self.now.clone(),
            parent: self.parent.clone(),
            children: self.children.clone(),
            answers,
            previous: self.previous.clone(),
            config: self.config.clone(),
        }
    }

    /// What the host would answer.
    pub(crate) fn answer(&self, query: &Query, grants: &Grants) -> Result<Reply, ScenarioError> {
        let refused = |error: &dyn std::fmt::Display| ScenarioError::Query(error.to_string());
        match query {
            Query::Objects(query) => {
                grants.check_reads(&query.kind).map_err(|error| refused(&error))?;
                let selector = query.label_selector.as_deref().unwrap_or_default();
                let selector = Selector::parse(selector).map_err(|error| refused(&error))?;
                let matching =
                    self.all.iter().filter(|object| self.matches(object, query, &selector));
                Ok(Reply::Objects(matching.cloned().collect()))
            }
            Query::Probe(query) => {
                grants.check_provider(&query.provider).map_err(|error| refused(&error))?;
                self.probe(query).map(|reply| Reply::Probe(reply.to_string()))
            }
        }
    }

    fn matches(&self, observed: &Observed, query: &ObjectQuery, selector: &Selector) -> bool {
        let key = &observed.object.key;
        let namespace = match query.namespace.as_deref() {
            None if self.parent().namespace.is_empty() => None,
            None => Some(&*self.parent().namespace),
            given => given,
        };
        // Cluster-scoped objects have no namespace to be asked for.
        *observed.kind == query.kind
            && namespace.is_none_or(|wanted| key.namespace.is_empty() || *key.namespace == *wanted)
            && query.name.as_deref().is_none_or(|wanted| *key.name == *wanted)
            && selector.matches(&observed.object.labels)
    }

    fn probe(&self, query: &ProbeQuery) -> Result<&Value, ScenarioError> {
        let request: Value = serde_json::from_str(&query.request)
            .map_err(|error| ScenarioError::Query(format!("a request is not JSON: {error}")))?;
        let fits =
            |probe: &&Probe| probe.provider == query.provider && contains(&request, &probe.request);
        self.probes.iter().find(fits).map(|probe| &probe.reply).ok_or_else(|| {
            ScenarioError::NoProbe {
                provider: query.provider.clone(),
                request: query.request.clone(),
            }
        })
    }
}

fn arrange(objects: &mut [Observed], order: Order) {
    let key = |observed: &Observed| {
        let kind = (observed.kind.api_version.clone(), observed.kind.kind.clone());
        (kind, observed.object.key.clone())
    };
    objects.sort_by_key(key);
    if order == Order::Reversed {
        objects.reverse();
    }
}

/// Whether every field of `part` is in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|found| contains(found, value))),
        _ => whole == part,
    }
}

fn complete(object: &mut Value, defaults: &[(&str, Value)]) {
    let Value::Object(map) = object else { return };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else {
        return;
    };
    for (key, value) in defaults {
        metadata.entry(*key).or_insert_with(|| value.clone());
    }
}

fn observed(what: &str, object: &Value) -> Result<Observed, ScenarioError> {
    let fail = |problem: String| ScenarioError::Object { what: what.to_owned(), problem };
    let text = |pointer: &str| {
        let value = object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        value.ok_or_else(|| {
            fail(format!("{} is missing", pointer.trim_start_matches('/').replace('/', ".")))
        })
    };
    let kind = Kind::new(text("/apiVersion")?, text("/kind")?);
    text("/metadata/name")?;
    let stored = StoredObject::parse(&kind, &object.to_string()).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        fail(cause)
    })?;
    Ok(Observed { kind: Arc::new(kind), object: Arc::new(stored) })
}

fn outcome(previous: Previous) -> Outcome {
    let objects = previous.objects.into_iter().map(|object| ObjectOutcome {
        id: ObjectId {
            kind: Kind::new(object.api_version, object.kind),
            key: ObjectKey::new(object.namespace, object.name),
        },
        result: match object.result {
            PreviousResult::Unchanged => ObjectResult::Unchanged,
            PreviousResult::Applied => ObjectResult::Applied,
            PreviousResult::Deleted => ObjectResult::Deleted,
            PreviousResult::Failed { failed } => ObjectResult::Failed(problem(failed)),
        },
    });
    let actions = previous.actions.into_iter().map(|action| ActionOutcome {
        action: Action { provider: action.provider, request: action.request.to_string() },
        result: match action.failed {
            Some(failed) => Err(problem(failed)),
            None => Ok(action.reply.unwrap_or(Value::Null).to_string()),
        },
    });
    Outcome { objects: objects.collect(), actions: actions.collect() }
}

fn problem(problem: PreviousProblem) -> Problem {
    Problem { reason: problem.reason, message: problem.message }
}

#[cfg(test)]
mod tests {
    use host_core::snapshot::Descriptor;

    use super::*;

    fn world(order: Order) -> World {
        let scenario = Scenario::from_yaml(
            r"
            parent: {apiVersion: example.com/v1, kind: Demo, metadata: {name: d, namespace: n}}
            children:
              - {apiVersion: v1, kind: ConfigMap, metadata: {name: b, labels: {app: x}}}
              - {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {app: y}}}
            objects:
              - {apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: elsewhere}}
            probes:
              - {provider: p, request: {host: a, deep: {x: 1}}, reply: first}
              - {provider: p, request: {host: a}, reply: second}
            ",
        );
        World::new(&scenario.unwrap(), order).unwrap()
    }

    fn grants() -> Grants {
        Grants::as_asked(&Descriptor {
            name: "demo".into(),
            version: "1".into(),
            parent: Kind::new("example.com/v1", "Demo"),
            owns: vec![],
            reads: vec![Kind::new("v1", "ConfigMap")],
            patches: vec![],
            providers: vec!["p".into()],
            finalizer: false,
            hints: vec![],
        })
        .unwrap()
    }

    fn names(world: &World, namespace: Option<&str>, selector: Option<&str>) -> Vec<String> {
        let query = Query::Objects(ObjectQuery {
            kind: Kind::new("v1", "ConfigMap"),
            namespace: namespace.map(Into::into),
            name: None,
            label_selector: selector.map(Into::into),
        });
        let Reply::Objects(objects) = world.answer(&query, &grants()).unwrap() else { panic!() };
        objects.iter().map(|object| object.object.key.to_string()).collect()
    }

    #[test]
    fn answers_object_queries_as_the_host_does() {
        let world = world(Order::Canonical);
        assert_eq!(names(&world, None, None), ["n/a", "n/b"]);
        assert_eq!(names(&world, Some("elsewhere"), None), ["elsewhere/other"]);
        assert_eq!(names(&world, None, Some("app in (x,z)")), ["n/b"]);
    }

    #[test]
    fn answers_probes_by_subset_and_in_order() {
        let world = world(Order::Canonical);
        let ask = |request: Value| {
            let query =
                Query::Probe(ProbeQuery { provider: "p".into(), request: request.to_string() });
            world.answer(&query, &grants()).map(|reply| match reply {
                Reply::Probe(json) => json,
                Reply::Objects(_) => panic!(),
            })
        };
        assert_eq!(ask(json!({"host": "a", "deep": {"x": 1, "y": 2}})).unwrap(), "\"first\"");
        assert_eq!(ask(json!({"host": "a"})).unwrap(), "\"second\"");
        assert!(matches!(ask(json!({"host": "b"})), Err(ScenarioError::NoProbe { .. })));
    }

    #[test]
    fn refuses_queries_that_were_not_asked_for_in_the_descriptor() {
        let query = Query::Objects(ObjectQuery {
            kind: Kind::new("v1", "Secret"),
            namespace: None,
            name: None,
            label_selector: None,
        });
        let error = world(Order::Canonical).answer(&query, &grants()).unwrap_err().to_string();
        assert!(error.contains("v1/Secret"), "{error}");
    }

    #[test]
    fn fills_in_owner_and_namespace_of_children() {
        let snapshot = world(Order::Canonical).snapshot(&[]);
        let child = &snapshot.children[0].object;
        assert_eq!((&*child.key.namespace, &*child.key.name), ("n", "a"));
        assert_eq!(child.controller().map(|owner| &*owner.uid), Some("uid-of-the-parent"));
    }

    #[test]
    fn can_turn_every_list_round() {
        let snapshot = world(Order::Reversed).snapshot(&[]);
        assert_eq!(&*snapshot.children[0].object.key.name, "b");
    }
}
