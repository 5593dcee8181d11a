//! Plugins from registries: pulled in the background, so that no rollout waits for one.
//!
//! **Invariant:** a registry that is away changes nothing: what was pulled last stays what is wanted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use host_core::decision::EventKind;
use host_core::plugin::{OciSource, PluginSpec};
use host_kube::SecretValue;
use tokio::task::AbortHandle;

use super::eye::Eye;
use super::load::LoadError;
use super::{lock, publish};
use crate::error::chain;
use crate::registry::{self, Artifact, RegistryError};

/// Key of a Secret of type `kubernetes.io/dockerconfigjson`.
const DOCKER_CONFIG: &str = ".dockerconfigjson";

/// When a pull that failed is tried again; doubled up to the interval of a tag.
const RETRY_MIN: Duration = Duration::from_secs(5);

/// What is pulled for a plugin. Its end ends the pulling.
#[derive(Clone, Debug, Default)]
pub(super) struct Pulls(Arc<Mutex<Option<Pull>>>);

#[derive(Debug)]
struct Pull {
    source: OciSource,
    last: Option<Result<Artifact, Arc<LoadError>>>,
    task: AbortHandle,
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pulls {
    /// What a Plugin's OCI source gave last; None while nothing has come yet. Starts to pull what is new, and stops
    /// what is no longer wanted.
    pub(super) fn latest(
        &self,
        eye: &Eye,
        spec: &PluginSpec,
    ) -> Option<Result<Artifact, Arc<LoadError>>> {
        let mut pull = lock(&self.0);
        let Some(wanted) = &spec.source.oci else {
            *pull = None;
            return None;
        };
        if let Some(pull) = pull.as_ref().filter(|pull| pull.source == *wanted) {
            return pull.last.clone();
        }
        let task = tokio::spawn(keep_pulling(eye.clone(), wanted.clone())).abort_handle();
        *pull = Some(Pull { source: wanted.clone(), last: None, task });
        None
    }

    /// Notes a result, unless something else is wanted by now; says whether it is news.
    fn note(&self, source: &OciSource, result: Result<Artifact, Arc<LoadError>>) -> bool {
        let mut pull = lock(&self.0);
        let Some(pull) = pull.as_mut().filter(|pull| pull.source == *source) else { return false };
        if result.is_err() && matches!(pull.last, Some(Ok(_))) {
            return false;
        }
        pull.last = Some(result);
        true
    }
}

/// Pulls, and looks whether the tag has moved, until it is aborted.
async fn keep_pulling(eye: Eye, source: OciSource) {
    let mut known: Option<String> = None;
    let mut retry = RETRY_MIN;
    let mut told = String::new();
    // A registry that is away is told once, and again when it says something else.
    loop {
        match pull(&eye, &source, known.as_deref()).await {
            Ok(artifact) => {
                retry = RETRY_MIN;
                told.clear();
                if let Some(artifact) = artifact {
                    tracing::info!(
                        plugin = &*eye.name,
                        manifest = artifact.manifest,
                        "pulled {}",
                        source.reference
                    );
                    known = Some(artifact.manifest.clone());
                    if eye.pulls.note(&source, Ok(artifact)) {
                        eye.wake.notify_one();
                    }
                }
                if registry::is_fixed(&source.reference) {
                    return;
                }
                tokio::time::sleep(source.interval()).await;
            }
            Err(error) => {
                let (reason, text) = (error.reason(), chain(&error));
                if eye.pulls.note(&source, Err(Arc::new(error))) {
                    eye.wake.notify_one();
                } else if text != told {
                    tracing::warn!(plugin = &*eye.name, "what was pulled last stays: {text}");
                    publish::event(&eye, &eye.look().await, EventKind::Warning, reason, &text);
                    told = text;
                }
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(source.interval());
            }
        }
    }
}

async fn pull(
    eye: &Eye,
    source: &OciSource,
    known: Option<&str>,
) -> Result<Option<Artifact>, LoadError> {
    let namespace = &eye.host.rollout.inbox.namespace;
    let secret = match &source.pull_secret_name {
        None => None,
        Some(name) => {
            let read = eye.host.cluster.secret_value(namespace, name, DOCKER_CONFIG).await;
            Some(read.map_err(|source| LoadError::PullSecret { source: Box::new(source) })?)
        }
    };
    let secret = secret.as_ref().map(SecretValue::expose);
    let pulled = eye.host.rollout.trust.registries.pull(&source.reference, secret, known).await;
    pulled.map_err(|source: RegistryError| LoadError::Pull(Box::new(source)))
}
