//! One value of one Secret, for the adapters that need a password.
//!
//! **Invariant:** a value is never printed, and its bytes are overwritten when it is dropped.

use std::collections::BTreeMap;
use std::fmt;

use host_core::ident::{Kind, ObjectId, ObjectKey};
use http::Request;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{CALL_DEADLINE, Client};
use crate::error::{ApiError, ApiErrorKind};
use crate::purpose::Purpose;
use crate::uri::is_segment;

/// A secret value. Not `Clone`, not printable.
pub struct SecretValue(Vec<u8>);

impl SecretValue {
    /// The bytes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

impl Drop for SecretValue {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without a reader the compiler may leave the writes out.
        std::hint::black_box(&self.0);
    }
}

#[derive(Deserialize)]
struct Secret<'a> {
    #[serde(borrow, default)]
    data: BTreeMap<String, &'a RawValue>,
}

impl Client {
    /// Reads one key of one Secret, past the cache: one GET.
    pub async fn secret_value(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> Result<SecretValue, ApiError> {
        let id = ObjectId { kind: Kind::new("v1", "Secret"), key: ObjectKey::new(namespace, name) };
        let purpose = Purpose::on(format_args!("read key {key} of"), &id);
        let error = |kind, message: &str| ApiError::new(&purpose, kind, message);
        if !is_segment(namespace) || !is_segment(name) {
            return Err(error(ApiErrorKind::Invalid, "namespace and name must be names"));
        }
        let request = Request::get(format!("/api/v1/namespaces/{namespace}/secrets/{name}"))
            .body(Vec::new())
            .map_err(|problem| error(ApiErrorKind::Invalid, &problem.to_string()))?;
        let text = self.text(&purpose, request, CALL_DEADLINE).await?;
        let secret: Secret<'_> = serde_json::from_str(&text)
            .map_err(|problem| ApiError::malformed(&purpose, &problem))?;
        let Some(value) = secret.data.get(key) else {
            let keys: Vec<_> = secret.data.keys().map(String::as_str).collect();
            let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
            let message = format!("it has no such key; its keys: {keys}");
            return Err(error(ApiErrorKind::NotFound, &message));
        };
        let ByteString(bytes) = serde_json::from_str(value.get())
            .map_err(|problem| ApiError::malformed(&purpose, &problem))?;
        Ok(SecretValue(bytes))
    }
}
