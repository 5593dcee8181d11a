//! The provider that talks to Redis, and its format of a request.

use serde_json::{Value, json};

use crate::api::Spec;
use crate::current::PodView;
use crate::names;

/// Its name.
pub const PROVIDER: &str = "redis";

/// A request to one pod's Redis, in the provider's format.
pub(crate) fn request(pod: &PodView, spec: &Spec, commands: &Value) -> Value {
    let mut request = json!({
        "pod": pod.name,
        "podUid": pod.uid,
        "port": names::PORT,
        "commands": commands,
        "timeoutMs": 1_000,
    });
    if let (Some(auth), Some(request)) = (&spec.auth, request.as_object_mut()) {
        request.insert("auth".to_owned(), json!({"passwordSecret": auth.password_secret_ref}));
    }
    request
}
