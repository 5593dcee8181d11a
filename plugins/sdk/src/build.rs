//! Constructors for the contract's types.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Action, Decision, Descriptor, Desired, Event, EventKind, Failure, FailureKind, Kind, KindRef,
    ObjectQuery, OnImmutable, Ownership, ProbeQuery, Query, Stop,
};

/// JSON with its keys sorted and its nulls left out: a null in an apply configuration would claim the field.
fn canonical(what: &str, body: &impl Serialize) -> Result<String, Stop> {
    let mut value = serde_json::to_value(body).map_err(|error| {
        Failure::terminal("InvalidJson", format!("{what} cannot be written as JSON: {error}"))
    })?;
    drop_nulls(&mut value);
    Ok(value.to_string())
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, inner| !inner.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn kinds(kinds: impl IntoIterator<Item = Kind>) -> Vec<KindRef> {
    kinds.into_iter().map(KindRef::from).collect()
}

impl Descriptor {
    /// A plugin that owns and reads nothing but its parents. `name` is a DNS label of at most 40 characters.
    pub fn new(name: impl Into<String>, version: impl Into<String>, parent: Kind) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            parent: parent.into(),
            owns: Vec::new(),
            reads: Vec::new(),
            patches: Vec::new(),
            providers: Vec::new(),
            finalizer: false,
            hints: Vec::new(),
        }
    }

    /// Kinds returned as owned objects; their live objects are [`Context::children`](crate::Context::children).
    #[must_use]
    pub fn owns(self, owns: impl IntoIterator<Item = Kind>) -> Self {
        Self { owns: kinds(owns), ..self }
    }

    /// Kinds that are queried.
    #[must_use]
    pub fn reads(self, reads: impl IntoIterator<Item = Kind>) -> Self {
        Self { reads: kinds(reads), ..self }
    }

    /// Kinds on which some fields are set, or of which single objects are deleted.
    #[must_use]
    pub fn patches(self, patches: impl IntoIterator<Item = Kind>) -> Self {
        Self { patches: kinds(patches), ..self }
    }

    /// Providers that are probed or acted through.
    #[must_use]
    pub fn providers<S: Into<String>>(self, providers: impl IntoIterator<Item = S>) -> Self {
        Self { providers: providers.into_iter().map(Into::into).collect(), ..self }
    }

    /// Deletion of a parent is reconciled too, until a decision is [`finished`](Decision::finished).
    #[must_use]
    pub fn finalizer(self) -> Self {
        Self { finalizer: true, ..self }
    }

    /// Adds a hint for tools.
    #[must_use]
    pub fn hint(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.hints.push((key.into(), value.into()));
        self
    }
}

impl Desired {
    /// An object of the parent's. `body` is an apply configuration: `apiVersion`, `kind`, `metadata.name` and
    /// the fields you have an opinion on. Nulls are left out.
    pub fn owned(body: &impl Serialize) -> Result<Self, Stop> {
        Self::new(Ownership::Owned, body)
    }

    /// Some fields of somebody else's object.
    pub fn partial(body: &impl Serialize) -> Result<Self, Stop> {
        Self::new(Ownership::Partial, body)
    }

    fn new(ownership: Ownership, body: &impl Serialize) -> Result<Self, Stop> {
        Ok(Self {
            ownership,
            on_immutable: OnImmutable::Report,
            body: canonical("a desired object", body)?,
        })
    }

    /// What to do when a changed field turns out to be immutable; by default it is reported.
    #[must_use]
    pub fn on_immutable(self, on_immutable: OnImmutable) -> Self {
        Self { on_immutable, ..self }
    }
}

impl Default for Decision {
    fn default() -> Self {
        Self::new()
    }
}

impl Decision {
    /// Nothing should exist, and the status is left alone.
    pub fn new() -> Self {
        Self {
            objects: Vec::new(),
            status: None,
            events: Vec::new(),
            actions: Vec::new(),
            requeue_after_ms: None,
            finished: false,
        }
    }

    /// Adds one object; the order is the order of applying.
    #[must_use]
    pub fn object(mut self, object: Desired) -> Self {
        self.objects.push(object);
        self
    }

    /// Adds objects.
    #[must_use]
    pub fn objects(mut self, objects: impl IntoIterator<Item = Desired>) -> Self {
        self.objects.extend(objects);
        self
    }

    /// Sets the status, whole. Leave `observedGeneration` to the host. Nulls are left out.
    pub fn status(self, status: &impl Serialize) -> Result<Self, Stop> {
        Ok(Self { status: Some(canonical("the status", status)?), ..self })
    }

    /// Adds an event. Return one when something happened, not while it lasts.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Adds an action; actions run in order once every object is applied.
    #[must_use]
    pub fn action(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }

    /// Call again after this time even if nothing changed.
    #[must_use]
    pub fn requeue_after_secs(self, seconds: u32) -> Self {
        self.requeue_after_ms(seconds.saturating_mul(1_000))
    }

    /// Call again after this time even if nothing changed; the host's floor is 100 ms.
    #[must_use]
    pub fn requeue_after_ms(self, milliseconds: u32) -> Self {
        Self { requeue_after_ms: Some(milliseconds), ..self }
    }

    /// During deletion: nothing is left to do.
    #[must_use]
    pub fn finished(self) -> Self {
        Self { finished: true, ..self }
    }
}

impl Event {
    /// Something went as it should. `reason` and `action` are `CamelCase`.
    pub fn normal(
        reason: impl Into<String>,
        action: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        Self {
            kind: EventKind::Normal,
            reason: reason.into(),
            action: action.into(),
            note: note.into(),
        }
    }

    /// Somebody should look. `reason` and `action` are `CamelCase`.
    pub fn warning(
        reason: impl Into<String>,
        action: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        Self {
            kind: EventKind::Warning,
            reason: reason.into(),
            action: action.into(),
            note: note.into(),
        }
    }
}

impl Action {
    /// An action of a provider. `request` is in the provider's format.
    pub fn new(provider: impl Into<String>, request: &impl Serialize) -> Result<Self, Stop> {
        Ok(Self { provider: provider.into(), request: canonical("an action", request)? })
    }

    /// Deletes one object of a kind in `owns` or `patches`, in the parent's namespace. Nothing happens when the
    /// object has another uid by then.
    pub fn delete(kind: Kind, name: &str, uid: &str) -> Self {
        let Kind { api_version, kind } = kind;
        let object = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid});
        Self { provider: "kubernetes".to_owned(), request: json!({"delete": object}).to_string() }
    }
}

impl Failure {
    /// Another try can help. `reason` is `CamelCase`.
    pub fn transient(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Transient, reason: reason.into(), message: message.into() }
    }

    /// Nothing helps until something changes. `reason` is `CamelCase`.
    pub fn terminal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Terminal, reason: reason.into(), message: message.into() }
    }
}

impl ObjectQuery {
    /// All objects of a kind in the parent's namespace (all namespaces, for a cluster-scoped parent).
    pub fn of(kind: Kind) -> Self {
        Self { kind: kind.into(), namespace: None, name: None, label_selector: None }
    }

    /// Only those in this namespace.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Only the one of this name.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Only those with these labels, as kubectl takes them: `app=redis,tier in (a,b)`.
    #[must_use]
    pub fn labels(self, selector: impl Into<String>) -> Self {
        Self { label_selector: Some(selector.into()), ..self }
    }
}

impl ProbeQuery {
    /// A question to a provider. `request` is in the provider's format.
    pub fn new(provider: impl Into<String>, request: &impl Serialize) -> Result<Self, Stop> {
        Ok(Self { provider: provider.into(), request: canonical("a probe", request)? })
    }
}

impl From<ObjectQuery> for Query {
    fn from(query: ObjectQuery) -> Self {
        Self::Objects(query)
    }
}

impl From<ProbeQuery> for Query {
    fn from(query: ProbeQuery) -> Self {
        Self::Probe(query)
    }
}
