use host_core::ident::{Kind, ObjectKey};

use super::*;
use crate::fake::{self, Answer, Asked, Log};

fn id() -> ObjectId {
    ObjectId { kind: Kind::new("apps/v1", "StatefulSet"), key: ObjectKey::new("shop", "cart") }
}

const PATH: &str = "/apis/apps/v1/namespaces/shop/statefulsets/cart";

fn stored(extra: &str) -> StoredObject {
    StoredObject::parse(&id().kind, &text(extra)).unwrap()
}

fn text(extra: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"cart","namespace":"shop","uid":"u1","resourceVersion":"7"{extra}}}}}"#
    )
}

fn answering(code: u16, body: String) -> (Client, Log) {
    fake::client(move |_| Answer::Whole(code, body.clone()))
}

/// The one request after discovery.
fn only(log: &Log) -> Asked {
    let all = log.all();
    assert_eq!(all.len(), 2, "{all:?}");
    all[1].clone()
}

#[tokio::test]
async fn apply_is_one_forced_strict_patch() {
    let (client, log) = answering(200, text(""));
    let body =
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "cart"}});
    let object = client.apply(&id(), "operator-host/redis", &body).await.unwrap();
    assert_eq!(object.resource_version, 7);
    let asked = only(&log);
    assert_eq!(
        asked.line,
        format!(
            "PATCH {PATH}?fieldManager=operator-host%2Fredis&force=true&fieldValidation=Strict"
        )
    );
    assert_eq!(asked.content_type, "application/apply-patch+yaml");
    assert_eq!(asked.body, body.to_string());
}

#[tokio::test]
async fn a_status_goes_to_its_subresource() {
    let (client, log) = answering(200, text(""));
    client.patch_status(&id(), "m", &json!({"status": {}})).await.unwrap();
    assert_eq!(
        only(&log).line,
        format!("PATCH {PATH}/status?fieldManager=m&force=true&fieldValidation=Strict")
    );
}

#[tokio::test]
async fn a_cluster_scoped_object_has_no_namespace_in_its_path() {
    let (client, log) = answering(200, text(""));
    let node = ObjectId { kind: Kind::new("v1", "Node"), key: ObjectKey::new("", "n1") };
    client.get(&node).await.unwrap();
    assert_eq!(only(&log).line, "GET /api/v1/nodes/n1");
}

#[tokio::test]
async fn get_tells_absent_from_unknown() {
    let refusal = json!({"code": 404, "reason": "NotFound", "message": "not found"}).to_string();
    let (client, _) = answering(404, refusal);
    assert_eq!(client.get(&id()).await, Ok(None));
    let (client, _) = answering(500, "{}".into());
    assert_eq!(client.get(&id()).await.unwrap_err().kind(), ApiErrorKind::Unavailable);
}

#[tokio::test]
async fn delete_names_the_uid_and_what_becomes_of_dependents() {
    for (propagation, word) in [
        (Propagation::Foreground, "Foreground"),
        (Propagation::Background, "Background"),
        (Propagation::Orphan, "Orphan"),
    ] {
        let (client, log) =
            answering(200, r#"{"kind":"Status","metadata":{},"status":"Success"}"#.into());
        assert_eq!(client.delete(&id(), "u1", propagation).await, Ok(Deleted::Accepted));
        let asked = only(&log);
        assert_eq!(asked.line, format!("DELETE {PATH}"));
        let body: Value = serde_json::from_str(&asked.body).unwrap();
        assert_eq!(body, json!({"propagationPolicy": word, "preconditions": {"uid": "u1"}}));
    }
}

#[tokio::test]
async fn each_end_of_a_deletion_is_told_apart() {
    let marked = text(r#","deletionTimestamp":"2026-01-31T08:00:00Z","finalizers":["x"]"#);
    let (client, _) = answering(200, marked);
    let deleted = client.delete(&id(), "u1", Propagation::Background).await.unwrap();
    assert!(matches!(deleted, Deleted::Marked(object) if object.resource_version == 7));

    let gone = json!({"code": 404, "reason": "NotFound", "message": "not found"}).to_string();
    let (client, _) = answering(404, gone);
    assert_eq!(client.delete(&id(), "u1", Propagation::Orphan).await, Ok(Deleted::NotFound));

    let message = "Operation cannot be fulfilled: Precondition failed: UID in precondition: u1, UID in object meta: u2";
    let other = json!({"code": 409, "reason": "Conflict", "message": message}).to_string();
    let (client, _) = answering(409, other.clone());
    assert_eq!(client.delete(&id(), "u1", Propagation::Orphan).await, Ok(Deleted::Replaced));

    let secret = ObjectId { kind: Kind::new("v1", "Secret"), ..id() };
    let (client, _) = answering(409, other);
    assert_eq!(client.delete(&secret, "u1", Propagation::Orphan).await, Ok(Deleted::Replaced));

    let (client, _) =
        answering(409, json!({"code": 409, "reason": "Conflict", "message": "x"}).to_string());
    let error = client.delete(&id(), "u1", Propagation::Orphan).await.unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::Conflict);
}

#[tokio::test]
async fn the_first_finalizer_is_added_only_where_there_was_none() {
    let (client, log) = answering(200, text(r#","finalizers":["d/p"]"#));
    client.add_finalizer(&id(), &stored(""), "d/p").await.unwrap().unwrap();
    let asked = only(&log);
    assert_eq!(
        (asked.line, &*asked.content_type),
        (format!("PATCH {PATH}"), "application/json-patch+json")
    );
    let patch: Value = serde_json::from_str(&asked.body).unwrap();
    assert_eq!(
        patch,
        json!([
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["d/p"]},
        ])
    );
}

#[tokio::test]
async fn a_further_finalizer_keeps_the_others() {
    let (client, log) = answering(200, text(""));
    client.add_finalizer(&id(), &stored(r#","finalizers":["a"]"#), "d/p").await.unwrap();
    let patch: Value = serde_json::from_str(&only(&log).body).unwrap();
    assert_eq!(patch[1]["value"], json!(["a"]));
    assert_eq!(patch[2]["value"], json!(["a", "d/p"]));
}

#[tokio::test]
async fn a_finalizer_that_is_there_or_comes_too_late_is_not_sent() {
    let (client, log) = answering(200, text(""));
    let present = stored(r#","finalizers":["d/p"]"#);
    assert_eq!(client.add_finalizer(&id(), &present, "d/p").await, Ok(None));
    let deleting = stored(r#","deletionTimestamp":"2026-01-31T08:00:00Z""#);
    assert_eq!(client.add_finalizer(&id(), &deleting, "d/p").await, Ok(None));
    assert_eq!(client.remove_finalizer(&id(), &stored(""), "d/p").await, Ok(None));
    assert!(log.all().is_empty());
}

#[tokio::test]
async fn a_finalizer_is_removed_where_it_was_seen() {
    let (client, log) = answering(200, text(""));
    let seen = stored(r#","finalizers":["a","d/p"]"#);
    client.remove_finalizer(&id(), &seen, "d/p").await.unwrap().unwrap();
    let patch: Value = serde_json::from_str(&only(&log).body).unwrap();
    assert_eq!(
        patch,
        json!([
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/metadata/finalizers/1", "value": "d/p"},
            {"op": "remove", "path": "/metadata/finalizers/1"},
        ])
    );
}

#[tokio::test]
async fn a_failed_guard_is_a_conflict() {
    for message in [
        "the server rejected our request due to an error in our request",
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted",
    ] {
        let refusal = json!({"code": 422, "reason": "Invalid", "message": message}).to_string();
        let (client, _) = answering(422, refusal);
        let error = client.add_finalizer(&id(), &stored(""), "d/p").await.unwrap_err();
        assert_eq!(error.kind(), ApiErrorKind::Conflict, "{message}");
    }
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_is_refused_before_it_is_sent() {
    let (client, log) = answering(200, text(""));
    for (namespace, name) in
        [("shop", "../x"), ("shop", "a/b"), ("a/b", "x"), ("", "x"), ("shop", "")]
    {
        let id = ObjectId { key: ObjectKey::new(namespace, name), ..id() };
        let error = client.apply(&id, "m", &json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ApiErrorKind::Invalid, "{id}");
    }
    assert_eq!(log.all().len(), 1, "discovery alone");
}

#[tokio::test]
async fn an_error_says_what_was_being_done() {
    let refusal =
        json!({"code": 403, "reason": "Forbidden", "message": "statefulsets is forbidden"});
    let (client, _) = answering(403, refusal.to_string());
    let error = client.apply(&id(), "m", &json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not apply StatefulSet shop/cart: statefulsets is forbidden"
    );
    assert_eq!(error.reason(), "Forbidden");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_answer_ends_at_its_deadline() {
    let (client, _) = fake::client(|_| Answer::Silence);
    let error = client.apply(&id(), "m", &json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::Unavailable);
    assert_eq!(error.message(), "no answer within 30 s");
}

#[tokio::test]
async fn a_path_that_is_no_longer_served_is_looked_up_again() {
    let (client, log) = answering(404, "404 page not found".into());
    for _ in 0..2 {
        let error = client.apply(&id(), "m", &json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ApiErrorKind::KindMissing);
    }
    assert_eq!(log.lines("GET /apis/apps/v1").len(), 2);
}

#[tokio::test]
async fn a_secret_value_is_read_and_never_printed() {
    let (client, log) =
        answering(200, r#"{"data":{"password":"aHVudGVyMg==","user":"YQ=="}}"#.into());
    let value = client.secret_value("shop", "auth", "password").await.unwrap();
    assert_eq!(value.expose(), b"hunter2");
    assert_eq!(format!("{value:?}"), "SecretValue(…)");
    assert_eq!(log.lines(""), ["GET /api/v1/namespaces/shop/secrets/auth"]);
    let error = client.secret_value("shop", "auth", "token").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not read key token of Secret shop/auth: it has no such key; its keys: password, user"
    );
}

#[tokio::test]
async fn a_malformed_secret_is_not_quoted() {
    for body in [r#"{"data":{"password":"hunter2 hunter2"}}"#, r#"{"data":"hunter2"}"#] {
        let (client, _) = answering(200, body.into());
        let error = client.secret_value("shop", "auth", "password").await.unwrap_err();
        assert_eq!(error.kind(), ApiErrorKind::Malformed);
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}
