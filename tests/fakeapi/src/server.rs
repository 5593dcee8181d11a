//! The server as tests see it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::delete::delete;
use crate::kind::Kind;
use crate::object::with_field;
use crate::refusal::Refusal;
use crate::service::answer;
use crate::shared::{Fault, Shared};
use crate::state::State;
use crate::write::{Target, create, update};

/// How long [`Server::until`] waits, on tokio's clock: with paused time, an instant.
const PATIENCE: Duration = Duration::from_mins(10);

/// Who it is that calls [`Server::put`], among field managers.
const USER: &str = "user";

/// Requests that [`Server::until`] shows when it gives up.
const REQUESTS_SHOWN: usize = 40;

/// A Kubernetes API server in memory. Clones are the same server.
///
/// Methods that take an object or its name act as a user would, past the service: they are no requests, meet no
/// faults, and panic at what a server would refuse.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// A server that has no objects and the kinds `ConfigMap`, `Secret`, `Pod`, `Service`, `Event`
    /// (`events.k8s.io/v1`), `Lease`, `CustomResourceDefinition`, `APIService` and `Plugin`. While a CRD exists, it
    /// has the kinds of that too.
    pub fn new() -> Self {
        Self(Arc::new(Shared::new()))
    }

    /// The same server with one kind more, which it has for ever; `status` is whether that has a status subresource,
    /// and counts generations.
    #[must_use]
    pub fn kind(
        self,
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
        namespaced: bool,
        status: bool,
    ) -> Self {
        let kind = Kind::new(group, version, kind, plural, namespaced, status);
        self.0.change(|state| state.add_kind(kind));
        self
    }

    /// The same server, which does not stream lists, as those before Kubernetes 1.32.
    #[must_use]
    pub fn pages_only(self) -> Self {
        self.0.change(|state| state.pages_only = true);
        self
    }

    /// A client of it. Must be called within a tokio runtime.
    pub fn client(&self) -> kube::Client {
        let shared = Arc::clone(&self.0);
        let service = tower::service_fn(move |request| answer(Arc::clone(&shared), request));
        kube::Client::new(service, "default")
    }

    /// Creates an object, or replaces all of it but its finalizers and status, which stay unless the body names them.
    /// Its resourceVersion and uid are not looked at.
    pub fn put(&self, object: Value) -> Value {
        let id = format!("{} {}", object["kind"], object["metadata"]["name"]);
        refused_means_panic(&id, self.0.change(|state| put(state, object)))
    }

    /// An object as it is.
    pub fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = |state: &State| {
            let id = state.kind(api_version, kind)?.id(namespace, name);
            state.get(&id).map(|stored| (*stored.object).clone())
        };
        self.0.read(found)
    }

    /// The objects of a kind, by namespace and name.
    pub fn list(&self, api_version: &str, kind: &str) -> Vec<Value> {
        let objects = self.0.read(|state| state.list(api_version, kind, None));
        objects.iter().map(|object| (**object).clone()).collect()
    }

    /// Deletes an object, as `kubectl delete --wait=false` does. False: there is none.
    pub fn delete(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> bool {
        let deleted = self.0.change(|state| {
            let target = target(state, api_version, kind, namespace, name)?;
            state
                .get(&target.id)
                .is_some()
                .then(|| delete(state, &target, &Value::Null))
                .transpose()
        });
        refused_means_panic(name, deleted).is_some()
    }

    /// Every request so far, as `VERB /path`: verbs are `get` (also of discovery), `list`, `watch`, `create`,
    /// `update`, `apply`, `patch` and `delete`. A trial ends in `?dryRun=All`; nothing else of a query is told.
    pub fn requests(&self) -> Vec<String> {
        self.0.requests()
    }

    /// Those of them that were meant to change something, Leases and Events included, refused ones too.
    pub fn writes(&self) -> Vec<String> {
        let reads = |line: &String| {
            ["get ", "list ", "watch "].iter().any(|verb| line.starts_with(verb))
                || line.ends_with("?dryRun=All")
                || line.ends_with("/selfsubjectaccessreviews")
        };
        self.requests().into_iter().filter(|line| !reads(line)).collect()
    }

    /// From now on this decides what befalls each request, from its line as in [`Server::requests`].
    pub fn on_request(&self, hook: impl Fn(&str) -> Option<Fault> + Send + Sync + 'static) {
        self.0.set_hook(Some(Arc::new(hook)));
    }

    /// From now on nothing befalls a request.
    pub fn no_faults(&self) {
        self.0.set_hook(None);
    }

    /// Ends every open watch.
    pub fn cut_watches(&self) {
        self.0.change(|state| state.cuts += 1);
    }

    /// Forgets all that has happened: watches from before, and lists that are half read, get a 410.
    pub fn compact(&self) {
        self.0.change(State::compact);
    }

    /// Waits until something holds, looking after every change and every request. Panics after ten minutes of
    /// tokio's clock, with what there is.
    #[allow(clippy::panic, reason = "a test that waits in vain has failed")]
    pub async fn until(&self, mut holds: impl FnMut(&Self) -> bool) {
        let mut pulse = self.0.pulse();
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                pulse.mark_unchanged();
                if holds(self) || pulse.changed().await.is_err() {
                    return;
                }
            }
        });
        if waited.await.is_err() {
            let minutes = PATIENCE.as_secs() / 60;
            panic!("waited for {minutes} min in vain; {}", self.all_there_is());
        }
    }

    fn all_there_is(&self) -> String {
        let objects = self.0.read(|state| {
            let objects = state.all().map(|(_, stored)| stored.object.to_string());
            objects.collect::<Vec<_>>().join("\n")
        });
        let requests = self.requests();
        let (count, first) = (requests.len(), requests.len().saturating_sub(REQUESTS_SHOWN));
        let last = requests.get(first..).unwrap_or_default().join("\n");
        format!("objects:\n{objects}\n{count} requests, the last:\n{last}")
    }
}

#[allow(clippy::panic, reason = "a test that asks for what is refused is wrong")]
fn refused_means_panic<T>(what: &str, result: Result<T, Refusal>) -> T {
    result.unwrap_or_else(|refusal| panic!("{what}: {}", refusal.body()))
}

fn target(
    state: &State,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Target, Refusal> {
    let missing = || Refusal::bad(format!("there is no kind {api_version} {kind}"));
    let kind = state.kind(api_version, kind).ok_or_else(missing)?;
    if kind.namespaced == namespace.is_empty() || name.is_empty() {
        return Err(Refusal::bad("the name or the namespace is missing, or one too many"));
    }
    let id = kind.id(namespace, name);
    Ok(Target { kind, id, status: false, manager: USER.to_owned(), dry_run: false })
}

fn put(state: &mut State, mut object: Value) -> Result<Value, Refusal> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let target = target(state, &api_version, &kind, &namespace, &name)?;
    for field in ["uid", "resourceVersion"] {
        object["metadata"] = with_field(&object["metadata"], field, None);
    }
    let status = object.get("status").cloned();
    let mut put = match state.get(&target.id) {
        None => create(state, &target, object)?,
        Some(_) => update(state, &target, |old| {
            if object["metadata"]["finalizers"].is_null() {
                let finalizers = old["metadata"].get("finalizers");
                object["metadata"] = with_field(&object["metadata"], "finalizers", finalizers);
            }
            Ok(object)
        })?,
    };
    if let (Some(status), true) = (status, target.kind.status)
        && state.get(&target.id).is_some()
    {
        let target = Target { status: true, ..target };
        put = update(state, &target, |old| Ok(with_field(old, "status", Some(&status))))?;
    }
    Ok((*put).clone())
}
