//! The world as it would be if a decision had been carried out: what a plugin is shown to see whether it is content
//! with what it wanted.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::ident::{Kind, ObjectKey};
use crate::object::StoredObject;
use crate::raw_decision::{Ownership, RawDecision, RawObject};
use crate::snapshot::{Observed, Reply, Snapshot};

/// A snapshot in which the decision's objects exist as desired and the parent has its status. Probes answer as before.
/// None: the decision cannot even be read.
pub fn carried_out(snapshot: &Snapshot, decision: &RawDecision) -> Option<Snapshot> {
    let mut after = snapshot.clone();
    let namespace = &snapshot.parent.object.key.namespace;
    let mut children = Vec::new();
    for object in &decision.objects {
        let (kind, key, body) = read(object, namespace)?;
        match object.ownership {
            Ownership::Owned => {
                let live = find(&snapshot.children, &kind, &key);
                children.push(written(&kind, &key, live, body, &snapshot.parent)?);
            }
            Ownership::Partial => {
                for answer in &mut after.answers {
                    let Reply::Objects(found) = &mut answer.reply else { continue };
                    for one in found.iter_mut().filter(|one| is(one, &kind, &key)) {
                        *one = merged(&kind, one, body.clone())?;
                    }
                }
            }
        }
    }
    children.sort_by(|a, b| (&a.kind, &a.object.key).cmp(&(&b.kind, &b.object.key)));
    after.children = children;
    if let Some(status) = &decision.status {
        let status: Value = serde_json::from_str(status).ok()?;
        let parent = &snapshot.parent;
        let status = Map::from_iter([("status".to_owned(), status)]);
        after.parent = merged(&parent.kind, parent, status)?;
    }
    Some(after)
}

/// The same snapshot with every list turned around.
pub fn reversed(snapshot: &Snapshot) -> Snapshot {
    let mut turned = snapshot.clone();
    turned.children.reverse();
    for answer in &mut turned.answers {
        if let Reply::Objects(objects) = &mut answer.reply {
            objects.reverse();
        }
    }
    turned
}

fn read(object: &RawObject, namespace: &str) -> Option<(Kind, ObjectKey, Map<String, Value>)> {
    let body: Map<String, Value> = serde_json::from_str(&object.body).ok()?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let kind = Kind::new(text(body.get("apiVersion"))?, text(body.get("kind"))?);
    let metadata = body.get("metadata")?;
    let namespace = text(metadata.get("namespace")).unwrap_or_else(|| namespace.to_owned());
    let key = ObjectKey::new(namespace, text(metadata.get("name"))?);
    Some((kind, key, body))
}

fn is(observed: &Observed, kind: &Kind, key: &ObjectKey) -> bool {
    *observed.kind == *kind && observed.object.key == *key
}

fn find<'a>(all: &'a [Observed], kind: &Kind, key: &ObjectKey) -> Option<&'a Observed> {
    all.iter().find(|observed| is(observed, kind, key))
}

/// An owned object after it was written.
fn written(
    kind: &Kind,
    key: &ObjectKey,
    live: Option<&Observed>,
    body: Map<String, Value>,
    parent: &Observed,
) -> Option<Observed> {
    if let Some(live) = live {
        return merged(kind, live, body);
    }
    let created = json!({"metadata": {
        "name": &*key.name,
        "namespace": &*key.namespace,
        "uid": format!("shadow-{}-{}", kind.kind, key.name),
        "resourceVersion": "1",
        "generation": 1,
        "ownerReferences": [{
            "apiVersion": parent.kind.api_version,
            "kind": parent.kind.kind,
            "name": &*parent.object.key.name,
            "uid": &*parent.object.uid,
            "controller": true,
        }],
    }});
    let Value::Object(mut created) = created else { return None };
    merge(&mut created, body);
    stored(kind, created)
}

fn merged(kind: &Kind, live: &Observed, body: Map<String, Value>) -> Option<Observed> {
    let mut after: Map<String, Value> = serde_json::from_str(&live.object.json).ok()?;
    merge(&mut after, body);
    stored(kind, after)
}

fn stored(kind: &Kind, body: Map<String, Value>) -> Option<Observed> {
    let object = StoredObject::parse(kind, &Value::Object(body).to_string()).ok()?;
    Some(Observed { kind: Arc::new(kind.clone()), object: Arc::new(object) })
}

/// Maps are merged, everything else is replaced.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::OnImmutable;

    fn observed(kind: &Kind, text: &str) -> Observed {
        let object = Arc::new(StoredObject::parse(kind, text).unwrap());
        Observed { kind: Arc::new(kind.clone()), object }
    }

    fn snapshot(children: Vec<Observed>) -> Snapshot {
        let parent = r#"{"metadata":{"name":"p","namespace":"n","uid":"u"},"spec":{}}"#;
        Snapshot {
            now: String::new(),
            parent: observed(&Kind::new("example.com/v1", "Demo"), parent),
            children,
            answers: Vec::new(),
            previous: None,
            config: Vec::new(),
        }
    }

    fn decision(bodies: &[&str]) -> RawDecision {
        let object = |body: &&str| RawObject {
            ownership: Ownership::Owned,
            on_immutable: OnImmutable::Report,
            body: (*body).to_owned(),
        };
        RawDecision {
            objects: bodies.iter().map(object).collect(),
            status: Some(r#"{"size":1}"#.to_owned()),
            ..RawDecision::default()
        }
    }

    #[test]
    fn what_is_desired_is_there_and_what_is_not_is_gone() {
        let kind = Kind::new("v1", "ConfigMap");
        let a = r#"{"metadata":{"name":"a","namespace":"n","uid":"ua"},"data":{"x":"1","y":"1"}}"#;
        let gone = r#"{"metadata":{"name":"gone","namespace":"n","uid":"ug"}}"#;
        let before = snapshot(vec![observed(&kind, a), observed(&kind, gone)]);
        let wanted = [
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"2"}}"#,
        ];
        let after = carried_out(&before, &decision(&wanted)).unwrap();
        let names: Vec<_> = after.children.iter().map(|one| &*one.object.key.name).collect();
        assert_eq!(names, ["a", "b"]);
        let [a, b] = after.children.as_slice() else { panic!("two") };
        assert_eq!(&*a.object.uid, "ua");
        assert!(a.object.json.contains(r#""x":"2","y":"1""#), "{}", a.object.json);
        assert_eq!(b.object.controller().map(|owner| &*owner.uid), Some("u"));
        assert!(after.parent.object.json.contains(r#""status":{"size":1}"#));
    }
}
