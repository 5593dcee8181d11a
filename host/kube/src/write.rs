//! The verbs: each one call to the API server.
//!
//! Applies are forced, since nobody is there to settle a conflict, and their fields are validated strictly: a field
//! that the server does not know would be dropped silently, and the host would find the object different from what
//! is desired for ever. Server-side apply refuses such fields anyway, with a worse message.
//!
//! **Invariant:** no write without a guard on identity: deletions carry the uid, finalizer patches test the uid and the
//! list they were computed from; an apply may carry `metadata.uid` in its body.
//! **Invariant:** every write goes through the client's gate.

use host_core::ident::ObjectId;
use host_core::object::StoredObject;
use http::Request;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::{CALL_DEADLINE, Client};
use crate::error::{ApiError, ApiErrorKind};
use crate::purpose::Purpose;
use crate::uri::escape;

/// What becomes of an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go first.
    Foreground,
    /// They go later.
    Background,
    /// They stay.
    Orphan,
}

/// How a deletion went. None of these is a failure: the object with that uid is going or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone, or will be without a further word.
    Accepted,
    /// It waits for its finalizers, its dependents or its grace period; this is its last version.
    Marked(Box<StoredObject>),
    /// It was gone already.
    NotFound,
    /// Another object has its name now; that one was left alone.
    Replaced,
}

/// The path of an object that was located, and what for.
struct Located {
    purpose: Purpose,
    path: String,
}

impl Client {
    /// Server-side apply of a whole object, forced. `body` has apiVersion, kind and name. Creates what does not exist.
    pub async fn apply<B: Serialize>(
        &self,
        id: &ObjectId,
        manager: &str,
        body: &B,
    ) -> Result<StoredObject, ApiError> {
        let to = self.at("apply", id).await?;
        self.patch_apply(id, &to, &to.path, manager, body).await
    }

    /// Server-side apply of the status subresource, forced. `body` has apiVersion, kind, name and status.
    pub async fn patch_status<B: Serialize>(
        &self,
        id: &ObjectId,
        manager: &str,
        body: &B,
    ) -> Result<StoredObject, ApiError> {
        let to = self.at("write the status of", id).await?;
        let path = format!("{}/status", to.path);
        self.patch_apply(id, &to, &path, manager, body).await
    }

    /// What an apply would answer, without changing anything. Not gated: a host that may not write may ask.
    pub async fn try_apply<B: Serialize>(
        &self,
        id: &ObjectId,
        manager: &str,
        body: &B,
    ) -> Result<StoredObject, ApiError> {
        let to = self.at("try to apply", id).await?;
        let uri = format!("{}?dryRun=All&{}", to.path, apply_query(manager));
        let request = to.request(apply_request(uri, to.json(body)?))?;
        let answer = self.text(&to.purpose, request, CALL_DEADLINE).await;
        parse(id, &to.purpose, &self.heed(id, answer).await?)
    }

    /// Creates an object from a whole body; fails if it exists.
    pub async fn create<B: Serialize>(
        &self,
        id: &ObjectId,
        manager: &str,
        body: &B,
    ) -> Result<StoredObject, ApiError> {
        let to = self.at("create", id).await?;
        let (collection, _) = to.path.rsplit_once('/').unwrap_or_default();
        let request = Request::post(format!("{collection}?fieldManager={}", escape(manager)))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(to.json(body)?);
        let text = self.send(id, &to, request).await?;
        parse(id, &to.purpose, &text)
    }

    /// Sets some fields of an object that exists, and removes those that are null (RFC 7386).
    pub async fn merge<B: Serialize>(
        &self,
        id: &ObjectId,
        manager: &str,
        patch: &B,
    ) -> Result<StoredObject, ApiError> {
        let to = self.at("change", id).await?;
        let request = Request::patch(format!("{}?fieldManager={}", to.path, escape(manager)))
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(to.json(patch)?);
        let text = self.send(id, &to, request).await?;
        parse(id, &to.purpose, &text)
    }

    /// Reads one object past the cache.
    pub async fn get(&self, id: &ObjectId) -> Result<Option<StoredObject>, ApiError> {
        let to = self.at("read", id).await?;
        let request = to.request(Request::get(&to.path).body(Vec::new()))?;
        let answer = self.text(&to.purpose, request, CALL_DEADLINE).await;
        match self.heed(id, answer).await {
            Ok(text) => parse(id, &to.purpose, &text).map(Some),
            Err(error) if error.kind() == ApiErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object with this uid and no other.
    pub async fn delete(
        &self,
        id: &ObjectId,
        uid: &str,
        propagation: Propagation,
    ) -> Result<Deleted, ApiError> {
        let to = self.at("delete", id).await?;
        let params = DeleteParams {
            propagation_policy: Some(match propagation {
                Propagation::Foreground => PropagationPolicy::Foreground,
                Propagation::Background => PropagationPolicy::Background,
                Propagation::Orphan => PropagationPolicy::Orphan,
            }),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let request = Request::delete(&to.path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(to.json(&params)?);
        match self.send(id, &to, request).await {
            Ok(text) => Ok(outcome(parse(id, &to.purpose, &text)?)),
            Err(error) if error.kind() == ApiErrorKind::NotFound => Ok(Deleted::NotFound),
            Err(error)
                if error.kind() == ApiErrorKind::Conflict
                    && error.message().contains("UID in precondition") =>
            {
                Ok(Deleted::Replaced)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts a finalizer on an object as it was seen. None: it has it, or it is being deleted and cannot get one.
    /// [`ApiErrorKind::Conflict`]: it was changed meanwhile; look again.
    pub async fn add_finalizer(
        &self,
        id: &ObjectId,
        seen: &StoredObject,
        finalizer: &str,
    ) -> Result<Option<StoredObject>, ApiError> {
        if seen.deleting || seen.finalizers.iter().any(|present| &**present == finalizer) {
            return Ok(None);
        }
        let list: Vec<_> = seen.finalizers.iter().map(|present| &**present).collect();
        // A test for null also passes for a field that is absent.
        let before = if list.is_empty() { Value::Null } else { json!(list) };
        let after: Vec<_> = list.iter().copied().chain([finalizer]).collect();
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": &*seen.uid},
            {"op": "test", "path": "/metadata/finalizers", "value": before},
            {"op": "add", "path": "/metadata/finalizers", "value": after},
        ]);
        let to = self.at(&format!("add finalizer {finalizer} to"), id).await?;
        self.patch_json(id, &to, &patch).await.map(Some)
    }

    /// Takes a finalizer off an object as it was seen. None: it does not have it, or it is gone.
    /// [`ApiErrorKind::Conflict`]: it was changed meanwhile; look again.
    pub async fn remove_finalizer(
        &self,
        id: &ObjectId,
        seen: &StoredObject,
        finalizer: &str,
    ) -> Result<Option<StoredObject>, ApiError> {
        let Some(index) = seen.finalizers.iter().position(|present| &**present == finalizer) else {
            return Ok(None);
        };
        let path = format!("/metadata/finalizers/{index}");
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": &*seen.uid},
            {"op": "test", "path": path, "value": finalizer},
            {"op": "remove", "path": path},
        ]);
        let to = self.at(&format!("remove finalizer {finalizer} from"), id).await?;
        match self.patch_json(id, &to, &patch).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind() == ApiErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn at(&self, verb: impl std::fmt::Display, id: &ObjectId) -> Result<Located, ApiError> {
        let purpose = Purpose::on(verb, id);
        let path = self.locate(&purpose, id).await?;
        Ok(Located { purpose, path })
    }

    async fn patch_apply<B: Serialize>(
        &self,
        id: &ObjectId,
        to: &Located,
        path: &str,
        manager: &str,
        body: &B,
    ) -> Result<StoredObject, ApiError> {
        let uri = format!("{path}?{}", apply_query(manager));
        let text = self.send(id, to, apply_request(uri, to.json(body)?)).await?;
        parse(id, &to.purpose, &text)
    }

    async fn patch_json(
        &self,
        id: &ObjectId,
        to: &Located,
        patch: &Value,
    ) -> Result<StoredObject, ApiError> {
        let request = Request::patch(&to.path)
            .header(http::header::CONTENT_TYPE, "application/json-patch+json")
            .body(to.json(patch)?);
        match self.send(id, to, request).await {
            Ok(text) => parse(id, &to.purpose, &text),
            Err(error) if is_failed_test(&error) => {
                Err(ApiError::new(&to.purpose, ApiErrorKind::Conflict, error.message()))
            }
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        id: &ObjectId,
        to: &Located,
        request: http::Result<Request<Vec<u8>>>,
    ) -> Result<String, ApiError> {
        let answer = self.change(&to.purpose, to.request(request)?, CALL_DEADLINE).await;
        self.heed(id, answer).await
    }

    /// Looks a kind up again next time if the server has said that it does not serve it.
    async fn heed(
        &self,
        id: &ObjectId,
        answer: Result<String, ApiError>,
    ) -> Result<String, ApiError> {
        if answer.as_ref().is_err_and(|error| error.kind() == ApiErrorKind::KindMissing) {
            self.forget(&id.kind).await;
        }
        answer
    }
}

fn apply_query(manager: &str) -> String {
    format!("fieldManager={}&force=true&fieldValidation=Strict", escape(manager))
}

fn apply_request(uri: String, body: Vec<u8>) -> http::Result<Request<Vec<u8>>> {
    Request::patch(uri)
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(body)
}

impl Located {
    fn request(
        &self,
        request: http::Result<Request<Vec<u8>>>,
    ) -> Result<Request<Vec<u8>>, ApiError> {
        request.map_err(|error| {
            ApiError::new(&self.purpose, ApiErrorKind::Invalid, &error.to_string())
        })
    }

    fn json<B: Serialize>(&self, body: &B) -> Result<Vec<u8>, ApiError> {
        serde_json::to_vec(body).map_err(|error| {
            ApiError::new(&self.purpose, ApiErrorKind::Invalid, &error.to_string())
        })
    }
}

fn parse(id: &ObjectId, purpose: &Purpose, text: &str) -> Result<StoredObject, ApiError> {
    StoredObject::parse(&id.kind, text).map_err(|error| ApiError::malformed(purpose, &error))
}

/// What the answer to a deletion says: a `Status` (which has no uid), or the object, marked or already gone.
fn outcome(answer: StoredObject) -> Deleted {
    if answer.deleting && !answer.uid.is_empty() {
        Deleted::Marked(Box::new(answer))
    } else {
        Deleted::Accepted
    }
}

/// Whether a JSON patch was refused because the object is not as it was seen. The first text is all that the API
/// server says about a failed test, the second comes when a deletion overtook a new finalizer.
fn is_failed_test(error: &ApiError) -> bool {
    error.kind() == ApiErrorKind::Invalid
        && (error.message().contains("rejected our request due to an error in our request")
            || error.message().contains("no new finalizers can be added"))
}

#[cfg(test)]
mod tests;
