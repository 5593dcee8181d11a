//! What the API server's refusals mean to the host.
//!
//! **Invariant:** an error about a Secret never quotes the server's text, which may contain the refused value.
//! **Invariant:** `Immutable` means that recreating would help: a request that is invalid in other ways too is
//! `Invalid`, so that nothing is deleted only to be refused again.

use std::error::Error;
use std::time::Duration;

use host_core::limits::{CONDITION_MESSAGE_BYTES_MAX, cut};
use host_core::snapshot::Problem;
use kube::core::Status;
use kube::core::response::StatusCause;

use crate::purpose::Purpose;

/// Why a call failed, as far as it decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiErrorKind {
    /// The object, or the namespace it should be in, does not exist.
    NotFound,
    /// The server does not serve this kind, or not this subresource of it.
    KindMissing,
    /// The object is not what the caller took it for: other version, other uid, exists already.
    Conflict,
    /// Only fields that cannot change were refused: a recreated object would be accepted.
    Immutable,
    /// The request is wrong and stays so.
    Invalid,
    /// Not allowed: RBAC, quota or admission.
    Forbidden,
    /// The credentials are not accepted.
    Unauthorized,
    /// The namespace is being deleted; nothing can be created in it any more.
    NamespaceTerminating,
    /// The server asks for patience.
    TooManyRequests {
        /// How long, if it said so.
        retry_after: Option<Duration>,
    },
    /// The object is larger than etcd or the API server takes.
    TooLarge,
    /// The version asked for is no longer kept; list again.
    Expired,
    /// No answer, or the server failed.
    Unavailable,
    /// The server answered something that is not a Kubernetes object.
    Malformed,
    /// Not sent: this host does not lead, and must not write.
    NotLeader,
}

impl ApiErrorKind {
    /// `CamelCase`, for conditions, events and metric labels.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::KindMissing => "KindMissing",
            Self::Conflict => "Conflict",
            Self::Immutable => "Immutable",
            Self::Invalid => "Invalid",
            Self::Forbidden => "Forbidden",
            Self::Unauthorized => "Unauthorized",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::TooLarge => "TooLarge",
            Self::Expired => "Expired",
            Self::Unavailable => "Unavailable",
            Self::Malformed => "Malformed",
            Self::NotLeader => "NotLeader",
        }
    }
}

/// One failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not {doing}: {message}")]
pub struct ApiError {
    kind: ApiErrorKind,
    doing: String,
    message: String,
}

impl ApiError {
    pub(crate) fn new(purpose: &Purpose, kind: ApiErrorKind, message: &str) -> Self {
        let message = cut(message, CONDITION_MESSAGE_BYTES_MAX);
        Self { kind, doing: purpose.text.clone(), message }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ApiErrorKind {
        self.kind
    }

    /// [`ApiErrorKind::reason`] of its kind.
    pub fn reason(&self) -> &'static str {
        self.kind.reason()
    }

    /// For people, without what was being done; at most 1,024 bytes; never holds a secret.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn timed_out(purpose: &Purpose, deadline: Duration) -> Self {
        let message = format!("no answer within {} s", deadline.as_secs());
        Self::new(purpose, ApiErrorKind::Unavailable, &message)
    }

    pub(crate) fn from_kube(purpose: &Purpose, error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::from_status(purpose, status);
        }
        Self::new(purpose, ApiErrorKind::Unavailable, &chain(error))
    }

    pub(crate) fn from_status(purpose: &Purpose, status: &Status) -> Self {
        let kind = classify(status);
        // What refuses a value may quote it: validation, admission, a failing webhook.
        if purpose.confidential && matches!(status.code, 0 | 400 | 403 | 422 | 500..) {
            return Self::new(purpose, kind, &without_values(status));
        }
        let message = if status.message.is_empty() { &status.reason } else { &status.message };
        Self::new(purpose, kind, message)
    }

    pub(crate) fn malformed(purpose: &Purpose, error: &dyn Error) -> Self {
        let quoted =
            if purpose.confidential { String::new() } else { format!(": {}", chain(error)) };
        let message = format!("the answer is not what a Kubernetes API server sends{quoted}");
        Self::new(purpose, ApiErrorKind::Malformed, &message)
    }
}

impl From<&ApiError> for Problem {
    fn from(error: &ApiError) -> Self {
        Self { reason: error.reason().to_owned(), message: error.to_string() }
    }
}

/// An error with its causes, each said once: kube's messages repeat their sources.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let next = cause.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = cause.source();
    }
    text
}

fn causes(status: &Status) -> &[StatusCause] {
    status.details.as_ref().map_or(&[], |details| &details.causes)
}

/// Which fields were refused and how, without the refused values.
fn without_values(status: &Status) -> String {
    let fields: Vec<_> =
        causes(status).iter().map(|cause| format!("{} ({})", cause.field, cause.reason)).collect();
    if fields.is_empty() {
        format!("{} ({})", status.reason, status.code)
    } else {
        format!("{}: {}", status.reason, fields.join(", "))
    }
}

fn classify(status: &Status) -> ApiErrorKind {
    let says = |text: &str| status.message.contains(text);
    if causes(status).iter().any(|cause| cause.reason == "NamespaceTerminating") {
        return ApiErrorKind::NamespaceTerminating;
    }
    // etcd's refusal of a large request arrives as a 500.
    if says("request is too large") || says("Request entity too large") {
        return ApiErrorKind::TooLarge;
    }
    // So does structured-merge-diff's refusal of an unknown field.
    if says("field not declared in schema") {
        return ApiErrorKind::Invalid;
    }
    match status.code {
        400 | 405 | 406 | 415 => ApiErrorKind::Invalid,
        401 => ApiErrorKind::Unauthorized,
        403 => ApiErrorKind::Forbidden,
        // A path that is not served is answered in plain text, or with these words.
        404 if status.reason != "NotFound" || says("could not find the requested resource") => {
            ApiErrorKind::KindMissing
        }
        404 => ApiErrorKind::NotFound,
        409 => ApiErrorKind::Conflict,
        410 => ApiErrorKind::Expired,
        413 => ApiErrorKind::TooLarge,
        422 => invalid(status),
        429 => ApiErrorKind::TooManyRequests { retry_after: retry_after(status) },
        _ => ApiErrorKind::Unavailable,
    }
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// Fields of metadata that say which object is meant: a difference there is a mistaken identity.
const IDENTITY: [&str; 3] = ["metadata.uid", "metadata.name", "metadata.namespace"];

fn invalid(status: &Status) -> ApiErrorKind {
    let causes = causes(status);
    if causes.iter().any(|cause| {
        IDENTITY.contains(&cause.field.as_str()) && is_about_immutability(&cause.message)
    }) {
        return ApiErrorKind::Conflict;
    }
    let all = if causes.is_empty() {
        is_about_immutability(&status.message)
    } else {
        causes.iter().all(|cause| is_about_immutability(&cause.message))
    };
    if all { ApiErrorKind::Immutable } else { ApiErrorKind::Invalid }
}

/// How the API server's validations say that a field cannot change; there is no code for it.
/// From the validation packages of Kubernetes 1.36, and what CRD authors write in transition rules.
const IMMUTABLE: [&str; 9] = [
    "immutable",
    "may not change once set",
    "may not be changed",
    "cannot be changed",
    "can not be changed",
    "cannot change roleref",
    "spec for fields other than",
    "updates may not change fields other than",
    "oldself",
];

fn is_about_immutability(message: &str) -> bool {
    let message = message.to_lowercase();
    IMMUTABLE.iter().any(|phrase| message.contains(phrase))
        || (message.contains("updates to ") && message.contains(" are forbidden"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(value: serde_json::Value) -> Status {
        serde_json::from_value(value).unwrap()
    }

    fn kind_of(value: serde_json::Value) -> ApiErrorKind {
        ApiError::from_status(&Purpose::new("apply it"), &status(value)).kind()
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn each_answer_has_its_kind() {
        use ApiErrorKind::*;
        let table = [
            (
                json!({"code":404,"reason":"NotFound","message":"pods \"a\" not found","details":{"name":"a"}}),
                NotFound,
            ),
            (
                json!({"code":404,"reason":"NotFound","message":"namespaces \"a\" not found"}),
                NotFound,
            ),
            (
                json!({"code":404,"reason":"NotFound","message":"the server could not find the requested resource"}),
                KindMissing,
            ),
            (
                json!({"code":404,"reason":"Failed to parse error data","message":"404 page not found"}),
                KindMissing,
            ),
            (json!({"code":409,"reason":"AlreadyExists","message":"exists"}), Conflict),
            (json!({"code":409,"reason":"Conflict","message":"uid mismatch"}), Conflict),
            (json!({"code":403,"reason":"Forbidden","message":"cannot list"}), Forbidden),
            (
                json!({"code":403,"reason":"Forbidden","message":"unable to create new content in namespace a because it is being terminated",
                "details":{"causes":[{"reason":"NamespaceTerminating","field":"metadata.namespace"}]}}),
                NamespaceTerminating,
            ),
            (json!({"code":401,"reason":"Unauthorized","message":"Unauthorized"}), Unauthorized),
            (
                json!({"code":429,"reason":"TooManyRequests","details":{"retryAfterSeconds":3}}),
                TooManyRequests { retry_after: Some(Duration::from_secs(3)) },
            ),
            (json!({"code":429,"reason":"TooManyRequests"}), TooManyRequests { retry_after: None }),
            (
                json!({"code":413,"reason":"RequestEntityTooLarge","message":"limit is 3145728"}),
                TooLarge,
            ),
            (json!({"code":500,"message":"etcdserver: request is too large"}), TooLarge),
            (json!({"code":410,"reason":"Expired"}), Expired),
            (
                json!({"code":400,"reason":"BadRequest","message":"strict decoding error: unknown field \"spec.a\""}),
                Invalid,
            ),
            (
                json!({"code":500,"message":"failed to create typed patch object: .spec.a: field not declared in schema"}),
                Invalid,
            ),
            (
                json!({"code":500,"reason":"InternalError","message":"failed calling webhook"}),
                Unavailable,
            ),
            (json!({"code":503,"reason":"ServiceUnavailable"}), Unavailable),
        ];
        for (value, expected) in table {
            assert_eq!(kind_of(value.clone()), expected, "{value}");
        }
    }

    fn refused(causes: &serde_json::Value) -> ApiErrorKind {
        kind_of(
            json!({"code":422,"reason":"Invalid","message":"x is invalid","details":{"causes":causes}}),
        )
    }

    #[test]
    fn knows_immutable_fields_by_their_words() {
        let table = [
            ("spec.selector", "Invalid value: {}: field is immutable"),
            (
                "spec",
                "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template' are forbidden",
            ),
            (
                "spec",
                "Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
            ),
            ("spec", "Forbidden: spec is immutable after creation except resources.requests"),
            ("spec.clusterIPs[0]", "Invalid value: \"10.0.0.1\": may not change once set"),
            ("roleRef", "Invalid value: {}: cannot change roleRef"),
            ("parameters", "Forbidden: updates to parameters are forbidden"),
            ("value", "Forbidden: may not be changed in an update"),
            ("spec.clusterMode", "Invalid value: false: failed rule: self == oldSelf"),
            ("spec.storage", "Invalid value: \"1Gi\": storage is Immutable"),
        ];
        for (field, message) in table {
            let causes = json!([{"reason":"FieldValueInvalid","field":field,"message":message}]);
            assert_eq!(refused(&causes), ApiErrorKind::Immutable, "{message}");
        }
        assert_eq!(
            kind_of(
                json!({"code":422,"reason":"Invalid","message":"spec.selector: field is immutable"})
            ),
            ApiErrorKind::Immutable
        );
    }

    #[test]
    fn does_not_recreate_what_would_be_refused_again() {
        let immutable = json!({"reason":"FieldValueInvalid","field":"spec.selector","message":"field is immutable"});
        let wrong = json!({"reason":"FieldValueInvalid","field":"spec.replicas","message":"must be greater than 0"});
        assert_eq!(refused(&json!([immutable, wrong])), ApiErrorKind::Invalid);
        assert_eq!(refused(&json!([immutable])), ApiErrorKind::Immutable);
    }

    #[test]
    fn another_objects_uid_is_a_conflict_and_not_a_reason_to_recreate() {
        let causes = json!([{"reason":"FieldValueInvalid","field":"metadata.uid","message":"field is immutable"}]);
        assert_eq!(refused(&causes), ApiErrorKind::Conflict);
    }

    #[test]
    fn an_error_about_a_secret_quotes_nothing() {
        let id = host_core::ident::ObjectId {
            kind: host_core::ident::Kind::new("v1", "Secret"),
            key: host_core::ident::ObjectKey::new("shop", "auth"),
        };
        let refused = status(
            json!({"code":422,"reason":"Invalid","message":"data[password]: Invalid value: \"hunter2\"",
            "details":{"causes":[{"reason":"FieldValueInvalid","field":"data[password]","message":"Invalid value: \"hunter2\""}]}}),
        );
        let error = ApiError::from_status(&Purpose::on("apply", &id), &refused);
        assert_eq!(
            error.to_string(),
            "could not apply Secret shop/auth: Invalid: data[password] (FieldValueInvalid)"
        );
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}
