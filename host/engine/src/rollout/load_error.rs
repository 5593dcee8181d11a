//! Why a revision was not loaded, and what is known of it then.

use host_core::grants::RefusedDescriptor;
use host_core::ident::{Kind, PluginId};
use host_core::text;
use host_kube::ApiError;
use host_wasm::CompileError;

use crate::registry::RegistryError;
use crate::signature::Unsigned;

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

    /// What is known when this stops a load: whether the revision is compiled, fits the contract, may do what it asks.
    pub(crate) fn failed_at(&self) -> (Option<bool>, Option<bool>, Option<bool>) {
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
    pub(crate) fn may_pass(&self) -> bool {
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
