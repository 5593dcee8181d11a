//! Applies, patches and deletions through the host's own client.

#![cfg(test)]

#[path = "support/objects.rs"]
mod support;

use fakeapi::Server;
use host_kube::{ApiErrorKind, Deleted, Propagation};
use serde_json::{Value, json};
use support::{client, config, config_id, owned, plugin, plugin_id, stored_config, stored_plugin};

#[tokio::test(start_paused = true)]
async fn a_second_apply_of_the_same_changes_nothing() {
    let server = Server::new();
    let client = client(&server);
    let body = config("a", &json!({"x": "1"}));
    let first = client.apply(&config_id("a"), "host", &body).await.unwrap();
    let second = client.apply(&config_id("a"), "host", &body).await.unwrap();
    assert_eq!(first.resource_version, second.resource_version);
    assert_eq!(server.writes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_not_applied_any_more_goes_unless_somebody_else_wants_it() {
    let server = Server::new();
    let client = client(&server);
    let id = config_id("a");
    let all = config("a", &json!({"mine": "1", "ours": "1", "yours": "1"}));
    client.apply(&id, "host", &all).await.unwrap();
    client.apply(&id, "other", &config("a", &json!({"ours": "1"}))).await.unwrap();
    let mut users = stored_config(&server, "a").unwrap();
    users["data"]["yours"] = "2".into();
    users["data"]["added"] = "3".into();
    server.put(users);
    client.apply(&id, "host", &config("a", &json!({}))).await.unwrap();
    let data = stored_config(&server, "a").unwrap()["data"].clone();
    assert_eq!(data, json!({"ours": "1", "yours": "2", "added": "3"}));
}

#[tokio::test(start_paused = true)]
async fn a_map_that_is_left_empty_goes_with_its_last_field() {
    let server = Server::new();
    let client = client(&server);
    let id = plugin_id("a");
    let deep = plugin("a", &json!({"a": {"b": {"c": 1}}, "list": [1, {"x": 2}]}));
    client.apply(&id, "host", &deep).await.unwrap();
    client.apply(&id, "host", &plugin("a", &json!({"list": [1]}))).await.unwrap();
    assert_eq!(stored_plugin(&server, "a").unwrap()["spec"], json!({"list": [1]}));
}

#[tokio::test(start_paused = true)]
async fn a_forced_apply_takes_a_field_back_from_a_user() {
    let server = Server::new();
    let client = client(&server);
    let (id, body) = (config_id("a"), config("a", &json!({"x": "1"})));
    client.apply(&id, "host", &body).await.unwrap();
    server.put(config("a", &json!({"x": "2"})));
    client.apply(&id, "host", &body).await.unwrap();
    assert_eq!(stored_config(&server, "a").unwrap()["data"]["x"], "1");
    client.apply(&id, "host", &config("a", &json!({}))).await.unwrap();
    assert_eq!(stored_config(&server, "a").unwrap()["data"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn an_apply_meant_for_another_object_is_a_conflict() {
    let server = Server::new();
    let client = client(&server);
    let mut body = config("a", &json!({}));
    body["metadata"]["uid"] = "other".into();
    let absent = client.apply(&config_id("a"), "host", &body).await.unwrap_err();
    server.put(config("a", &json!({})));
    let present = client.apply(&config_id("a"), "host", &body).await.unwrap_err();
    assert_eq!((absent.kind(), present.kind()), (ApiErrorKind::Conflict, ApiErrorKind::Conflict));
}

#[tokio::test(start_paused = true)]
async fn a_trial_tells_the_outcome_and_changes_nothing() {
    let server = Server::new();
    let client = client(&server);
    let before = server.put(config("a", &json!({"x": "1"})));
    let body = config("a", &json!({"y": "2"}));
    let tried = client.try_apply(&config_id("a"), "host", &body).await.unwrap();
    assert!(tried.json.contains(r#""x":"1","y":"2""#), "{}", tried.json);
    client.try_apply(&config_id("b"), "host", &config("b", &json!({}))).await.unwrap();
    assert_eq!(server.list("v1", "ConfigMap"), [before]);
    assert_eq!(server.writes(), Vec::<String>::new());
    let last = server.requests().pop().unwrap();
    assert_eq!(last, "apply /api/v1/namespaces/shop/configmaps/b?dryRun=All");
}

#[tokio::test(start_paused = true)]
async fn a_status_apply_writes_the_status_and_nothing_else() {
    let server = Server::new();
    let client = client(&server);
    let id = plugin_id("a");
    let body = |status: Value| {
        let mut body = plugin("a", &json!({"ignored": true}));
        body["status"] = status;
        body
    };
    let missing = client.patch_status(&id, "host", &body(json!({}))).await.unwrap_err();
    assert_eq!(missing.kind(), ApiErrorKind::NotFound);
    server.put(plugin("a", &json!({"x": 1})));
    client.patch_status(&id, "host", &body(json!({"one": 1, "two": 2}))).await.unwrap();
    client.apply(&id, "host", &body(json!({"three": 3}))).await.unwrap();
    let stored = stored_plugin(&server, "a").unwrap();
    assert_eq!(stored["status"], json!({"one": 1, "two": 2}));
    assert_eq!(stored["metadata"]["generation"], 2, "the apply has changed the spec");
    let after = client.patch_status(&id, "host", &body(json!({"one": 1}))).await.unwrap();
    assert_eq!(after.generation, 2);
    assert_eq!(stored_plugin(&server, "a").unwrap()["status"], json!({"one": 1}));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_holds_a_deleted_object_until_it_is_taken_off() {
    let server = Server::new();
    let client = client(&server);
    let id = plugin_id("a");
    server.put(plugin("a", &json!({})));
    let seen = client.get(&id).await.unwrap().unwrap();
    let held = client.add_finalizer(&id, &seen, "host/x").await.unwrap().unwrap();
    server.put(plugin("a", &json!({"a_user": "changes it"})));
    server.delete(support::PLUGIN, "Plugin", "shop", "a");
    let late = client.add_finalizer(&id, &held, "host/late").await.unwrap_err();
    assert_eq!(late.kind(), ApiErrorKind::Conflict, "{late}");
    let marked = client.get(&id).await.unwrap().unwrap();
    assert!(marked.deleting && marked.generation == 3, "{marked:?}");
    client.remove_finalizer(&id, &marked, "host/x").await.unwrap().unwrap();
    assert_eq!(client.get(&id).await.unwrap(), None);
    assert_eq!(client.remove_finalizer(&id, &marked, "host/x").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_not_put_on_what_has_changed_since() {
    let server = Server::new();
    let client = client(&server);
    let id = plugin_id("a");
    server.put(plugin("a", &json!({})));
    let seen = client.get(&id).await.unwrap().unwrap();
    client.add_finalizer(&id, &seen, "other/x").await.unwrap();
    let error = client.add_finalizer(&id, &seen, "host/x").await.unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::Conflict);
    server.put({
        let mut none = plugin("a", &json!({}));
        none["metadata"]["finalizers"] = json!([]);
        none
    });
    client.add_finalizer(&id, &seen, "host/x").await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_of_one_uid_only() {
    let server = Server::new();
    let client = client(&server);
    let id = config_id("a");
    let delete = async |uid: &str| client.delete(&id, uid, Propagation::Background).await.unwrap();
    assert_eq!(delete("u").await, Deleted::NotFound);
    let object = server.put(config("a", &json!({})));
    assert_eq!(delete("u").await, Deleted::Replaced);
    assert_eq!(delete(object["metadata"]["uid"].as_str().unwrap()).await, Deleted::Accepted);
    assert_eq!(server.list("v1", "ConfigMap"), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn what_an_object_owns_goes_with_it() {
    let server = Server::new();
    let parent = server.put(plugin("p", &json!({})));
    let child = server.put(owned("child", &parent));
    server.put(owned("grandchild", &child));
    server.put(config("other", &json!({})));
    server.delete(support::PLUGIN, "Plugin", "shop", "p");
    let left: Vec<_> = server.list("v1", "ConfigMap");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["name"], "other");
    server.put(owned("late", &parent));
    assert!(stored_config(&server, "late").is_none(), "its owner was gone before");
}

#[tokio::test(start_paused = true)]
async fn an_orphan_stays_and_belongs_to_nobody() {
    let server = Server::new();
    let client = client(&server);
    let parent = server.put(plugin("p", &json!({})));
    server.put(owned("child", &parent));
    let uid = parent["metadata"]["uid"].as_str().unwrap();
    client.delete(&plugin_id("p"), uid, Propagation::Orphan).await.unwrap();
    assert!(stored_plugin(&server, "p").is_none());
    let child = stored_config(&server, "child").unwrap();
    assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_deleted_in_the_foreground_goes_last() {
    let server = Server::new();
    let client = client(&server);
    let parent = server.put(plugin("p", &json!({})));
    let mut child = owned("child", &parent);
    child["metadata"]["finalizers"] = json!(["x/y"]);
    server.put(child);
    let uid = parent["metadata"]["uid"].as_str().unwrap();
    let deleted = client.delete(&plugin_id("p"), uid, Propagation::Foreground).await.unwrap();
    assert!(matches!(deleted, Deleted::Marked(_)), "{deleted:?}");
    let mut child = stored_config(&server, "child").unwrap();
    assert!(child["metadata"]["deletionTimestamp"].is_string());
    assert!(stored_plugin(&server, "p").is_some(), "it waits");
    child["metadata"]["finalizers"] = json!([]);
    server.put(child);
    assert!(stored_config(&server, "child").is_none() && stored_plugin(&server, "p").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_is_not_forced_says_whose_fields_it_would_take() {
    let server = Server::new();
    server.put(config("a", &json!({"x": "1", "y": "1"})));
    let apply = async |query: &str, data: Value| {
        let uri = format!("/api/v1/namespaces/shop/configmaps/a?{query}");
        let request = http::Request::patch(uri)
            .header("content-type", "application/apply-patch+yaml")
            .body(config("a", &data).to_string().into_bytes())
            .unwrap();
        server.client().request_text(request).await.map_err(|error| error.to_string())
    };
    let error = apply("fieldManager=m", json!({"x": "2", "y": "1"})).await.unwrap_err();
    assert!(error.contains("1 conflict(s): conflict with \"user\": .data.x"), "{error}");
    apply("fieldManager=m", json!({"y": "1"})).await.unwrap();
    let error = apply("fieldManager=m&pretty=true", json!({})).await.unwrap_err();
    assert!(error.contains("fakeapi has no parameter pretty"), "{error}");
}
