//! May this client's account do something? Asked of the API server, which decides.

use host_core::ident::Kind;
use http::Request;
use serde::Deserialize;
use serde_json::json;

use crate::client::{CALL_DEADLINE, Client};
use crate::error::{ApiError, ApiErrorKind};
use crate::purpose::Purpose;

impl Client {
    /// Whether the account may use a verb on a kind, in one namespace or, with None, in all of them.
    pub async fn may(
        &self,
        verb: &str,
        kind: &Kind,
        namespace: Option<&str>,
    ) -> Result<bool, ApiError> {
        #[derive(Deserialize)]
        struct Review {
            status: Status,
        }
        #[derive(Deserialize)]
        struct Status {
            allowed: bool,
        }
        let purpose = Purpose::new(format!("ask whether it may {verb} {kind}"));
        let invalid = |why: &str| ApiError::new(&purpose, ApiErrorKind::Invalid, why);
        let resource = self.resolve(kind).await.map_err(|error| error.during(&purpose))?;
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": kind.group(), "resource": resource.plural,
                "namespace": namespace.unwrap_or_default(),
            }},
        });
        let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| invalid(&error.to_string()))?;
        // It is a creation by name, and changes nothing.
        let text = self.text(&purpose, request, CALL_DEADLINE).await?;
        let review: Review =
            serde_json::from_str(&text).map_err(|error| ApiError::malformed(&purpose, &error))?;
        Ok(review.status.allowed)
    }
}
