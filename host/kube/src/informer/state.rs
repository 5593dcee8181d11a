//! What one informer knows and what it tells.
//!
//! **Invariant:** changes are told after the store has them and outside its lock.

use std::sync::Arc;

use host_core::object::StoredObject;
use serde_json::value::RawValue;
use tokio::sync::{Notify, Semaphore};

use super::trouble::Trouble;
use crate::backoff::Backoff;
use crate::change::OnChange;
use crate::client::Client;
use crate::error::ApiError;
use crate::purpose::{Purpose, is_secret};
use crate::resource::Resource;
use crate::scope::{Form, Scope};
use crate::store::Store;

/// The state of one informer.
pub(crate) struct Informer {
    pub(super) client: Client,
    pub(super) scope: Scope,
    pub(super) form: Form,
    pub(super) store: Arc<Store>,
    pub(super) on_change: OnChange,
    pub(super) backoff: Backoff,
    pub(super) purpose: Purpose,
    /// Permits for lists at once.
    pub(super) turns: Arc<Semaphore>,
    /// Says that the kind may be served differently now.
    pub(super) nudge: Arc<Notify>,
    /// The version to watch from; None: list first.
    pub(super) resume: Option<String>,
    /// Watches in a row that ended without anything.
    pub(super) fruitless: u32,
}

impl Informer {
    pub(crate) fn new(
        client: Client,
        scope: Scope,
        form: Form,
        store: Arc<Store>,
        on_change: OnChange,
        turns: Arc<Semaphore>,
        seed: u64,
    ) -> Self {
        let kind = store.kind();
        let purpose = match &scope {
            Scope::All => Purpose::new(format!("watch {kind}")),
            Scope::Namespace(name) => Purpose::new(format!("watch {kind} in {name}")),
        };
        let purpose = Purpose { confidential: is_secret(kind), ..purpose };
        Self {
            client,
            scope,
            form,
            store,
            on_change,
            backoff: Backoff::new(seed),
            purpose,
            turns,
            nudge: Arc::default(),
            resume: None,
            fruitless: 0,
        }
    }

    /// Wakes it when the kind may be served differently: it looks at once.
    pub(crate) fn nudge(&self) -> Arc<Notify> {
        Arc::clone(&self.nudge)
    }

    /// Where its objects are.
    pub(super) fn path(&self, resource: &Resource) -> String {
        match &self.scope {
            Scope::All => resource.path(None),
            Scope::Namespace(name) => resource.path(Some(name)),
        }
    }

    /// Reads an object, and keeps what is wanted of it.
    pub(super) fn parse(&self, raw: &RawValue) -> Result<StoredObject, Trouble> {
        let object = StoredObject::parse(self.store.kind(), raw.get())
            .map_err(|error| ApiError::malformed(&self.purpose, &error))?;
        Ok(match self.form {
            Form::Whole => object,
            Form::Existence => StoredObject { json: Box::default(), ..object },
        })
    }

    /// An object is there, or has changed.
    pub(super) fn take_in(&self, object: StoredObject) {
        for change in self.store.upsert(object) {
            (self.on_change)(change);
        }
    }

    /// An object is gone.
    pub(super) fn take_out(&self, object: &StoredObject) {
        if let Some(change) = self.store.remove(&object.key) {
            (self.on_change)(change);
        }
    }
}
