//! One load: verify → compile → describe → grant. Then promote.

use std::sync::{Arc, Weak};
use std::time::Duration;

use host_core::grants::{Grants, RefusedDescriptor};
use host_core::ident::{Kind, PluginId};
use host_core::text;
use host_kube::{ApiError, Client, Scope};
use host_wasm::{CompileError, Plugin};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Rollout;
use super::source::Source;
use crate::plugins::{LoadedPlugin, TrackRecord};
use crate::registry::RegistryError;
use crate::run::Host;
use crate::signature::Unsigned;

/// How often a sweep that waits looks whether its version is still the active one.
const SYNC_LOOK: Duration = Duration::from_secs(5);

/// Parents of one plugin that run at once, unless its settings say otherwise.
const CONCURRENCY_DEFAULT: u16 = 4;

/// Why a version was not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The source has not what it needs.
    #[error("{what}")]
    Source { what: String },
    /// Other bytes than the pinned ones.
    #[error(
        "its bytes are {found}, but the Plugin's spec.digest is {pinned}: change one of the two"
    )]
    OtherDigest { found: String, pinned: String },
    /// Nothing has come from the registry yet.
    #[error("{reference} is being pulled")]
    Pulling { reference: String },
    /// The registry did not give it.
    #[error("pulling the plugin")]
    Pull(#[source] Box<RegistryError>),
    /// What the registry wants to know is not to be had.
    #[error(
        "reading spec.source.oci.pullSecretName, which the host's service account needs the right to get"
    )]
    PullSecret {
        #[source]
        source: Box<ApiError>,
    },
    /// It is signed by nobody whom the host trusts.
    #[error("{plugin}")]
    Unsigned {
        plugin: PluginId,
        #[source]
        source: Unsigned,
    },
    /// The API server does not give it.
    #[error("reading the plugin")]
    Unread {
        #[source]
        source: Box<ApiError>,
    },
    /// The settings do not parse.
    #[error("reading {}", text::KEY_SETTINGS)]
    Settings(#[source] serde_norway::Error),
    /// The bytes are no plugin that this host can run.
    #[error("loading {name}")]
    Plugin {
        name: String,
        #[source]
        source: Box<host_wasm::LoadError>,
    },
    /// The plugin is not what its source says, or asks for too much.
    #[error("{plugin}")]
    Refused {
        plugin: PluginId,
        #[source]
        source: RefusedDescriptor,
    },
    /// Its service account may not see what it would see.
    #[error("{plugin} is set up for service account {account}, which may not {}", missing.join(", "))]
    Denied { plugin: PluginId, account: String, missing: Vec<String> },
    /// It cannot be told what its service account may see.
    #[error(
        "{plugin} is set up for service account {account}, and it cannot be told what that may see"
    )]
    Unreviewed {
        plugin: PluginId,
        account: String,
        #[source]
        source: Box<ApiError>,
    },
    /// Two plugins for one kind.
    #[error("{plugin} reconciles {kind}, which {other} already does; a kind has one plugin")]
    KindTaken { plugin: PluginId, kind: Kind, other: String },
    /// The name is wrong.
    #[error(
        "{plugin} comes from a source labelled {}={label}; the two names have to be the same",
        text::LABEL_PLUGIN
    )]
    OtherName { plugin: PluginId, label: String },
}

impl LoadError {
    /// The reason of the event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Source { .. } | Self::Settings(_) => "PluginSourceInvalid",
            Self::OtherDigest { .. } => "PluginDigestMismatch",
            Self::Unread { .. } => "PluginUnread",
            Self::Pulling { .. } => "PluginPulling",
            Self::Pull(_) | Self::PullSecret { .. } => "PluginNotPulled",
            Self::Unsigned { .. } => "PluginNotSigned",
            Self::Plugin { source, .. } => source.reason(),
            Self::Refused { .. } => "PluginNotGranted",
            Self::Denied { .. } | Self::Unreviewed { .. } => "PluginAccessDenied",
            Self::KindTaken { .. } => "PluginKindTaken",
            Self::OtherName { .. } => "PluginNameMismatch",
        }
    }
}

impl LoadError {
    /// What is known when this stops a load: whether the revision is compiled, fits the contract, may do what it asks.
    pub(super) fn failed_at(&self) -> (Option<bool>, Option<bool>, Option<bool>) {
        use host_wasm::LoadError as Wasm;
        match self {
            Self::Pulling { .. } => (None, None, None),
            Self::Source { .. }
            | Self::OtherDigest { .. }
            | Self::Unread { .. }
            | Self::Pull(_)
            | Self::PullSecret { .. }
            | Self::Unsigned { .. }
            | Self::Settings(_) => (Some(false), None, None),
            Self::Plugin { source, .. } => match **source {
                Wasm::Verify { .. } | Wasm::Link { .. } => (Some(false), Some(false), None),
                Wasm::Capture { .. } | Wasm::Limits { .. } => (Some(false), None, None),
                Wasm::Compile { .. } | Wasm::Describe(_) => (Some(false), Some(true), None),
            },
            Self::Refused { .. }
            | Self::Denied { .. }
            | Self::Unreviewed { .. }
            | Self::KindTaken { .. }
            | Self::OtherName { .. } => (Some(true), Some(true), Some(false)),
        }
    }

    /// Whether another try of the same revision can end differently: the machine was short of time or memory, or a right
    /// was missing.
    pub(super) fn may_pass(&self) -> bool {
        // Nobody tells when a right is given, or when the server is back.
        if matches!(self, Self::Denied { .. } | Self::Unreviewed { .. } | Self::Unread { .. }) {
            return true;
        }
        let Self::Plugin { source, .. } = self else { return false };
        matches!(
            &**source,
            host_wasm::LoadError::Compile {
                source: CompileError::Killed
                    | CompileError::WallClock { .. }
                    | CompileError::Unavailable { .. },
                ..
            }
        )
    }
}

/// Makes a revision ready to run; it does not act yet.
pub(super) async fn load(
    host: &Arc<Host>,
    source: &Arc<Source>,
) -> Result<Arc<LoadedPlugin>, LoadError> {
    let signed = host.rollout.trust.keys.check(source.captured.bytes(), source.signature.as_ref());
    signed.map_err(|unsigned| LoadError::Unsigned {
        plugin: source.captured.id().clone(),
        source: unsigned,
    })?;
    let plugin = ready(host, source).await?;
    granted(host, source, plugin).await
}

/// Verify, compile, describe.
async fn ready(host: &Arc<Host>, source: &Arc<Source>) -> Result<Plugin, LoadError> {
    let Rollout { loading, compiling, .. } = &host.rollout;
    let (of_host, of_source) = (Arc::clone(host), Arc::clone(source));
    let found = work(source, loading, move || {
        let verified = of_source.captured.clone().verify()?;
        Ok(match of_host.rollout.compiler.cached(verified) {
            Ok(compiled) => {
                Ok(of_host.rollout.engine.load(compiled, &of_source.settings.limits)?)
            }
            Err(verified) => Err(verified),
        })
    });
    let verified = match found.await? {
        Ok(plugin) => return Ok(plugin),
        Err(verified) => verified,
    };
    // The compiler takes a processor and up to two gigabytes: one at a time, and nothing that is compiled waits for it.
    let (of_host, of_source) = (Arc::clone(host), Arc::clone(source));
    work(source, compiling, move || {
        let compiled = of_host.rollout.compiler.compile(*verified)?;
        of_host.rollout.engine.load(compiled, &of_source.settings.limits)
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

/// Runs every parent once, as soon as everything the plugin needs can be observed.
async fn sweep(host: Arc<Host>, plugin: Weak<LoadedPlugin>) {
    let stores: Vec<_> = match plugin.upgrade() {
        Some(plugin) => {
            plugin.subscriptions.iter().map(|(_, one)| Arc::clone(one.store())).collect()
        }
        None => return,
    };
    for store in stores {
        // As long as it takes, or until another version has taken over.
        while store.wait_synced(Instant::now() + SYNC_LOOK).await.is_err() {
            if plugin.strong_count() == 0 {
                return;
            }
        }
    }
    if let Some(plugin) = plugin.upgrade() {
        host.dispatch.sweep(plugin.lane, plugin.parents());
    }
}

/// Grants, and subscribes to what the plugin may see.
async fn granted(
    host: &Arc<Host>,
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
    let scopes = scopes(&host.rollout.scopes, source)?;
    let cluster = match &source.settings.service_account_name {
        None => host.cluster.clone(),
        Some(account) => reviewed(host, &id, account, &grants, &scopes).await?,
    };
    let subscriptions = grants
        .reads()
        .flat_map(|kind| scopes.iter().map(move |scope| (kind, scope)))
        .map(|(kind, scope)| (scope.clone(), host.informers.subscribe(kind.clone(), scope.clone())))
        .collect();
    Ok(Arc::new(LoadedPlugin {
        lane: host.rollout.lane(&descriptor.name),
        revision: source.revision,
        plugin,
        grants,
        settings: source.settings.clone(),
        calls: Arc::new(Semaphore::new(host.cores.saturating_sub(1).max(1))),
        subscriptions,
        cluster,
        record: TrackRecord::default(),
    }))
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
    host: &Host,
    plugin: &PluginId,
    account: &str,
    grants: &Grants,
    scopes: &[Scope],
) -> Result<Client, LoadError> {
    let namespace = &host.rollout.inbox.namespace;
    let cluster = host.cluster.clone().as_service_account(namespace, account);
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

/// The one step that makes a revision the active one.
pub(super) fn promote(
    host: &Arc<Host>,
    plugin: &Arc<LoadedPlugin>,
    probation: Duration,
    before: Option<Arc<LoadedPlugin>>,
) -> Result<(), LoadError> {
    // In this order: whatever changes from here on is seen by the new revision, and the sweep covers the rest.
    host.plugins.promote(plugin, probation, before).map_err(|other| LoadError::KindTaken {
        plugin: plugin.plugin.id().clone(),
        kind: plugin.plugin.descriptor().parent.clone(),
        other: other.label(),
    })?;
    open_lane(host, plugin);
    rerun(host, plugin);
    Ok(())
}

/// Gives a revision its share of the queue.
pub(super) fn open_lane(host: &Host, plugin: &LoadedPlugin) {
    let concurrency = plugin.settings.concurrency.unwrap_or(CONCURRENCY_DEFAULT);
    host.dispatch.open_lane(plugin.lane, &plugin.plugin.descriptor().parent, concurrency.into());
}

/// Runs every parent once, behind everything else.
pub(super) fn rerun(host: &Arc<Host>, plugin: &Arc<LoadedPlugin>) {
    tokio::spawn(sweep(Arc::clone(host), Arc::downgrade(plugin)));
}
