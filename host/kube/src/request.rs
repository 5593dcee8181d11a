//! What is said about each request once it is over, for metrics.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, header};

/// One request that was sent and is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDone {
    /// `get`, `list`, `watch`, `apply`, `patch`, `delete`, `create` or `update`.
    pub verb: &'static str,
    /// The HTTP status: 200 for every success; 0 when no answer came, or none that could be read.
    pub code: u16,
    /// Until the answer was there whole; for a watch, until its head was.
    pub took: Duration,
}

/// Is told of every request, from the task that made it: must be quick.
pub type OnRequest = Arc<dyn Fn(&RequestDone) + Send + Sync>;

/// What Kubernetes calls a request.
pub(crate) fn verb(request: &Request<Vec<u8>>) -> &'static str {
    let asks = |text: &str| request.uri().query().is_some_and(|query| query.contains(text));
    match *request.method() {
        Method::POST => "create",
        Method::PUT => "update",
        Method::DELETE => "delete",
        Method::PATCH => {
            let content = request.headers().get(header::CONTENT_TYPE);
            let is_apply = content.is_some_and(|value| value == "application/apply-patch+yaml");
            if is_apply { "apply" } else { "patch" }
        }
        _ if asks("watch=true") => "watch",
        _ if asks("limit=") => "list",
        _ => "get",
    }
}

/// The HTTP status of an answer.
pub(crate) fn code<T>(answer: &kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use host_core::ident::{Kind, ObjectId, ObjectKey};
    use serde_json::json;

    use super::*;
    use crate::fake::{self, Answer};
    use crate::{Informers, Propagation, Scope};

    #[tokio::test(start_paused = true)]
    async fn every_request_is_told_once_with_its_verb_and_its_end() {
        let (client, _) = fake::client(|asked| match &asked.line {
            line if line.contains("watch=true") => Answer::watch().1,
            line if line.contains("limit=") => {
                Answer::json(&json!({"metadata": {"resourceVersion": "5"}, "items": []}))
            }
            line if line.starts_with("GET") => Answer::Silence,
            line if line.starts_with("DELETE") => Answer::refusal(403, "Forbidden"),
            _ => Answer::Late(
                Duration::from_millis(70),
                Box::new(Answer::json(&json!({"metadata": {"name": "a", "uid": "u"}}))),
            ),
        });
        let told = Arc::new(Mutex::new(Vec::new()));
        let book = Arc::clone(&told);
        let client = client.observed(Arc::new(move |done| book.lock().unwrap().push(*done)));
        let kind = Kind::new("apps/v1", "StatefulSet");
        let id = ObjectId { kind: kind.clone(), key: ObjectKey::new("shop", "a") };
        let seen = client.apply(&id, "m", &json!({})).await.unwrap();
        client.add_finalizer(&id, &seen, "x/y").await.unwrap();
        client.delete(&id, "u", Propagation::Background).await.unwrap_err();
        client.get(&id).await.unwrap_err();
        let informers = Informers::new(client, 1, Arc::new(|_| {}));
        let subscription = informers.subscribe(kind, Scope::All);
        subscription
            .store()
            .wait_synced(tokio::time::Instant::now() + Duration::from_secs(9))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let told: Vec<_> = told
            .lock()
            .unwrap()
            .iter()
            .map(|done| format!("{} {} {} ms", done.verb, done.code, done.took.as_millis()))
            .collect();
        let expected = [
            "get 200 0 ms",
            "apply 200 70 ms",
            "patch 200 70 ms",
            "delete 403 0 ms",
            "get 0 30000 ms",
            "list 200 0 ms",
            "watch 200 0 ms",
        ];
        assert_eq!(told.get(..7), Some(&expected.map(str::to_owned)[..]), "{told:?}");
    }

    #[test]
    fn names_what_the_lease_and_the_events_need() {
        let request =
            |method: &str| Request::builder().method(method).uri("/a").body(Vec::new()).unwrap();
        assert_eq!((verb(&request("POST")), verb(&request("PUT"))), ("create", "update"));
    }
}
