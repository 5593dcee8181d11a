//! One load: verify → compile → describe → grant.

use std::sync::Arc;

use host_core::grants::Grants;
use host_core::ident::PluginId;
use host_kube::{Client, Informers, Scope};
use host_wasm::{Engine, Plugin};
use tokio::sync::Semaphore;

use super::compilation::Compilation;
use super::load_error::LoadError;
use super::source::Source;
use crate::calls::Calls;
use crate::loaded_plugin::{LoadedPlugin, TrackRecord};
use crate::logic::Logic;
use crate::plugins::Plugins;
use crate::reader::Reader;
use crate::signature::Keys;

/// Compiled plugins loaded at once: a few milliseconds each, and some of a megabyte.
const LOADS_AT_ONCE: usize = 2;

/// What loading needs.
pub(crate) struct Loader {
    pub(crate) engine: Engine,
    pub(crate) compilation: Arc<dyn Compilation>,
    pub(crate) turns: Turns,
    /// Whose plugins may run.
    pub(crate) keys: Keys,
    /// Where the host looks.
    pub(crate) scopes: Vec<Scope>,
    /// The host's own namespace.
    pub(crate) namespace: String,
    pub(crate) informers: Informers,
    pub(crate) cluster: Client,
    pub(crate) plugins: Arc<Plugins>,
    pub(crate) calls: Calls,
}

/// Turns to compile, and turns to load what is compiled.
pub(crate) struct Turns {
    compiling: Arc<Semaphore>,
    loading: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        let turns = |count| Arc::new(Semaphore::new(count));
        Self { compiling: turns(1), loading: turns(LOADS_AT_ONCE) }
    }
}

/// Makes a revision ready to run; it does not act yet.
pub(super) async fn load(
    loader: &Arc<Loader>,
    source: &Arc<Source>,
) -> Result<Arc<LoadedPlugin>, LoadError> {
    let signed = loader.keys.check(source.captured.bytes(), source.signature.as_ref());
    signed.map_err(|unsigned| LoadError::Unsigned {
        plugin: source.captured.id().clone(),
        source: unsigned,
    })?;
    let plugin = ready(loader, source).await?;
    granted(loader, source, plugin).await
}

/// Verify, compile, describe.
async fn ready(loader: &Arc<Loader>, source: &Arc<Source>) -> Result<Plugin, LoadError> {
    let Turns { compiling, loading } = &loader.turns;
    let (with, of_source) = (Arc::clone(loader), Arc::clone(source));
    let found = work(source, loading, move || {
        let verified = of_source.captured.clone().verify()?;
        Ok(match with.compilation.cached(verified) {
            Ok(compiled) => Ok(with.engine.load(compiled, &of_source.settings.limits)?),
            Err(verified) => Err(verified),
        })
    });
    let verified = match found.await? {
        Ok(plugin) => return Ok(plugin),
        Err(verified) => verified,
    };
    // The compiler takes a processor and up to two gigabytes: one at a time, and nothing that is compiled waits for it.
    let (with, of_source) = (Arc::clone(loader), Arc::clone(source));
    work(source, compiling, move || {
        let compiled = with.compilation.compile(*verified)?;
        with.engine.load(compiled, &of_source.settings.limits)
    })
    .await
}

/// Does what takes time on a thread that nobody waits for, when it is its turn.
async fn work<T: Send + 'static>(
    source: &Source,
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, host_wasm::LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    let name = source.name.clone();
    let turn = Arc::clone(turns).acquire_owned().await;
    let worked = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    let worked = worked.await.map_err(|error| LoadError::Source {
        what: format!("loading {name} has panicked: {error}"),
    })?;
    worked.map_err(|source| LoadError::Plugin { name, source: Box::new(source) })
}

/// Grants, and subscribes to what the plugin may see.
async fn granted(
    loader: &Loader,
    source: &Source,
    plugin: Plugin,
) -> Result<Arc<LoadedPlugin>, LoadError> {
    let (id, descriptor) = (plugin.id().clone(), plugin.descriptor().clone());
    let refused = |source| LoadError::Refused { plugin: id.clone(), source };
    let grants = if source.grant_as_asked {
        Grants::as_asked(&descriptor).map_err(refused)?
    } else {
        Grants::intersect(&descriptor, &source.settings.grants).map_err(refused)?
    };
    if !source.grant_as_asked && source.name != descriptor.name {
        return Err(LoadError::OtherName { plugin: id, label: source.name.clone() });
    }
    let scopes = scopes(&loader.scopes, source)?;
    let cluster = match &source.settings.service_account_name {
        None => loader.cluster.clone(),
        Some(account) => reviewed(loader, &id, account, &grants, &scopes).await?,
    };
    let subscriptions = grants
        .reads()
        .flat_map(|kind| scopes.iter().map(move |scope| (kind, scope)))
        .map(|(kind, scope)| {
            (scope.clone(), loader.informers.subscribe(kind.clone(), scope.clone()))
        })
        .collect();
    let logic = Logic {
        lane: loader.plugins.lane(&descriptor.name),
        revision: source.revision,
        plugin,
        grants,
        settings: source.settings.clone(),
        calls: loader.calls.of_one_plugin(),
        subscriptions,
        reader: Reader::new(cluster.clone()),
    };
    let record = TrackRecord::default();
    Ok(Arc::new(LoadedPlugin { logic: Arc::new(logic), cluster, record }))
}

/// What the host watches, as far as a plugin is for it.
fn scopes(watched: &[Scope], source: &Source) -> Result<Vec<Scope>, LoadError> {
    let Some(namespaces) = &source.settings.namespaces else { return Ok(watched.to_vec()) };
    let covers = |name: &String| {
        watched.iter().any(|scope| match scope {
            Scope::All => true,
            Scope::Namespace(watched) => watched == name,
        })
    };
    if let Some(other) = namespaces.iter().find(|name| !covers(name)) {
        let what = format!(
            "it is for namespace {other}, which this host does not watch: add it to --watch-namespace, or take it from namespaces"
        );
        return Err(LoadError::Source { what });
    }
    if namespaces.is_empty() {
        let what = "namespaces is empty: name one, or leave it out for all".to_owned();
        return Err(LoadError::Source { what });
    }
    Ok(namespaces.iter().cloned().map(Scope::Namespace).collect())
}

/// A client for a service account, if that may see everything the plugin sees. The cache is filled with the host's own
/// rights, so nothing else would stop a plugin from reading what its account may not.
async fn reviewed(
    loader: &Loader,
    plugin: &PluginId,
    account: &str,
    grants: &Grants,
    scopes: &[Scope],
) -> Result<Client, LoadError> {
    let cluster = loader.cluster.clone().as_service_account(&loader.namespace, account);
    let cluster = cluster.map_err(|error| LoadError::Source { what: error.to_string() })?;
    let mut missing = Vec::new();
    for kind in grants.reads() {
        for scope in scopes {
            let (within, place) = match scope {
                Scope::All => (None, "all namespaces".to_owned()),
                Scope::Namespace(name) => (Some(name.as_str()), format!("namespace {name}")),
            };
            for verb in ["list", "watch"] {
                let may = cluster.may(verb, kind, within).await;
                let may = may.map_err(|source| LoadError::Unreviewed {
                    plugin: plugin.clone(),
                    account: account.to_owned(),
                    source: Box::new(source),
                })?;
                if !may {
                    missing.push(format!("{verb} {kind} in {place}"));
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok(cluster);
    }
    let account = account.to_owned();
    Err(LoadError::Denied { plugin: plugin.clone(), account, missing })
}
