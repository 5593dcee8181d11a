//! The cluster for who may look and not touch.
//!
//! **Invariant:** no method changes anything: a shadow run has nothing else to hand.

use host_core::ident::ObjectId;
use host_core::object::StoredObject;
use host_kube::{ApiError, Client, SecretValue};
use serde::Serialize;

/// Reads in the name of the account that a plugin is set up for.
pub(crate) struct Reader(Client);

impl Reader {
    /// What a client can see.
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// One value of a Secret.
    pub(crate) async fn secret_value(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> Result<SecretValue, ApiError> {
        self.0.secret_value(namespace, name, key).await
    }

    /// What the server would answer to an apply: a dry run.
    pub(crate) async fn try_apply(
        &self,
        id: &ObjectId,
        manager: &str,
        body: &impl Serialize,
    ) -> Result<StoredObject, ApiError> {
        self.0.try_apply(id, manager, body).await
    }
}
