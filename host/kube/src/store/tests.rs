use host_core::selector::Selector;

use super::*;

fn store() -> Store {
    Store::new(Arc::new(Kind::new("v1", "Pod")))
}

fn object(namespace: &str, name: &str, metadata: &str) -> StoredObject {
    let text = format!(
        r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{namespace}-{name}","resourceVersion":"1"{metadata}}}}}"#
    );
    StoredObject::parse(&Kind::new("v1", "Pod"), &text).unwrap()
}

fn names(objects: &[Arc<StoredObject>]) -> Vec<String> {
    objects.iter().map(|object| object.key.to_string()).collect()
}

fn filled() -> Store {
    let store = store();
    store.begin();
    for (namespace, name, metadata) in [
        ("b", "two", r#","labels":{"app":"redis","tier":"a"}"#),
        ("a", "three", r#","labels":{"app":"redis","tier":"b"}"#),
        ("b", "one", r#","labels":{"app":"redis","tier":"b"}"#),
        ("aa", "four", r#","labels":{"app":"other"}"#),
        ("b", "owned", r#","ownerReferences":[{"uid":"p1","controller":true},{"uid":"p2"}]"#),
        ("b", "marked", r#","annotations":{"operator-host.dev/applied":"p1/h"}"#),
    ] {
        store.upsert(object(namespace, name, metadata));
    }
    store.complete(9);
    store
}

fn select(
    store: &Store,
    namespace: Option<&str>,
    name: Option<&str>,
    selector: &str,
) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    names(&store.view().unwrap().select(namespace, name, Some(&selector)))
}

#[test]
fn answers_in_canonical_order_with_and_without_the_index() {
    let store = filled();
    assert_eq!(select(&store, None, None, "app=redis"), ["a/three", "b/one", "b/two"]);
    assert_eq!(select(&store, Some("b"), None, "app=redis"), ["b/one", "b/two"]);
    assert_eq!(select(&store, Some("b"), None, "app=redis,tier=a"), ["b/two"]);
    assert_eq!(select(&store, Some("b"), None, "tier"), ["b/one", "b/two"]);
    assert_eq!(select(&store, Some("b"), Some("two"), "tier=b"), Vec::<String>::new());
    assert_eq!(select(&store, Some("aa"), None, ""), ["aa/four"]);
    assert_eq!(select(&store, None, Some("four"), ""), ["aa/four"]);
    assert_eq!(select(&store, Some("none"), None, "app=redis"), Vec::<String>::new());
    let all = names(&store.view().unwrap().select(None, None, None));
    assert_eq!(all, ["a/three", "aa/four", "b/marked", "b/one", "b/owned", "b/two"]);
}

#[test]
fn finds_children_by_controller_and_by_mark() {
    let store = filled();
    let view = store.view().unwrap();
    assert_eq!(names(&view.by_owner("p1")), ["b/owned"]);
    assert!(view.by_owner("p2").is_empty(), "an owner that is not the controller");
    assert_eq!(names(&view.by_applied("p1")), ["b/marked"]);
}

#[test]
fn an_index_forgets_what_an_object_no_longer_has() {
    let store = filled();
    store.upsert(object("b", "two", r#","generation":2"#));
    let mut changed = object("b", "two", r#","labels":{"app":"other"}"#);
    changed.resource_version = 2;
    store.upsert(changed);
    assert_eq!(select(&store, Some("b"), None, "app=redis"), ["b/one"]);
    assert_eq!(select(&store, None, None, "app=other"), ["aa/four", "b/two"]);
    store.remove(&ObjectKey::new("b", "owned"));
    assert!(store.view().unwrap().by_owner("p1").is_empty());
    let keys: Vec<_> =
        store.read().objects.keys().map(|ByKey(object)| object.key.clone()).collect();
    for key in &keys {
        store.remove(key);
    }
    assert!(store.read().index.is_empty());
}

#[test]
fn cannot_be_read_before_a_whole_list() {
    let store = store();
    store.begin();
    store.upsert(object("a", "one", ""));
    let refusal = store.view().err().unwrap();
    assert_eq!(refusal.to_string(), "v1/Pod is not synchronised: still being listed");
    store.complete(1);
    assert!(store.view().is_ok());
}

#[test]
fn an_open_watch_does_not_make_an_unlisted_store_readable() {
    let store = filled();
    store.troubled(Status::Missing);
    store.watching();
    assert!(store.view().is_err());
    assert_eq!(store.status(), Status::Missing);
}

#[test]
fn counts_the_bytes_it_holds_and_the_lists_it_took() {
    let store = store();
    let sum = |store: &Store| -> usize {
        store.read().objects.keys().map(|ByKey(object)| object.json.len()).sum()
    };
    store.begin();
    store.upsert(object("a", "one", ""));
    store.upsert(object("a", "two", ""));
    store.complete(1);
    assert_eq!((store.bytes(), store.relists()), (sum(&store), 0));
    let mut longer = object("a", "one", r#","labels":{"app":"redis"}"#);
    longer.resource_version = 2;
    store.begin();
    store.upsert(longer);
    store.complete(2);
    assert_eq!((store.len(), store.relists()), (1, 1));
    assert_eq!(store.bytes(), sum(&store));
    store.remove(&ObjectKey::new("a", "one"));
    assert_eq!(store.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn cannot_be_read_while_the_server_is_not_heard_of() {
    let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
    let store = filled();
    store.watching();
    pass(330).await;
    assert!(store.view().is_ok(), "a server without bookmarks");
    pass(1).await;
    let refusal = store.view().err().unwrap().to_string();
    assert_eq!(
        refusal,
        "v1/Pod is not synchronised: the API server has not been heard of for more than 330 s"
    );
    store.watching();
    assert!(store.view().is_ok());
    store.troubled(Status::Failing("could not watch v1/Pod: no answer".into()));
    pass(60).await;
    assert!(store.view().is_ok(), "a failing server is given a minute");
    pass(1).await;
    let stale = "could not watch v1/Pod: no answer; the API server has not been heard of for more than 60 s";
    assert_eq!(store.status().to_string(), stale);
    assert!(!store.is_synced());
    store.observed(10);
    assert!(store.view().is_ok());
}
