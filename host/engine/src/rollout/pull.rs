//! Plugins from registries: pulled in the background, so that no rollout waits for one.
//!
//! **Invariant:** a registry that is away changes nothing: what was pulled last stays what is wanted.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use host_core::decision::EventKind;
use host_core::plugin::{OciSource, PluginSpec};
use host_kube::SecretValue;
use tokio::task::AbortHandle;

use super::load_error::LoadError;
use super::subject::Subject;
use crate::error::chain;
use crate::lock::lock;
use crate::registry::{self, Artifact, Registries, RegistryError};

/// Key of a Secret of type `kubernetes.io/dockerconfigjson`.
const DOCKER_CONFIG: &str = ".dockerconfigjson";

/// When a pull that failed is tried again; doubled up to the interval of a tag.
const RETRY_MIN: Duration = Duration::from_secs(5);

/// What is pulled for a plugin. Its end ends the pulling.
#[derive(Debug)]
pub(super) struct Pulls {
    registries: Registries,
    last: Arc<Mutex<Option<Pull>>>,
}

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
    /// Pulls nothing yet.
    pub(super) fn from(registries: Registries) -> Self {
        Self { registries, last: Arc::default() }
    }

    /// What a Plugin's OCI source gave last; None while nothing has come yet. Starts to pull what is new, and stops
    /// what is no longer wanted.
    pub(super) fn latest(
        &self,
        subject: &Subject,
        spec: &PluginSpec,
    ) -> Option<Result<Artifact, Arc<LoadError>>> {
        let mut pull = lock(&self.last);
        let Some(wanted) = &spec.source.oci else {
            *pull = None;
            return None;
        };
        if let Some(pull) = pull.as_ref().filter(|pull| pull.source == *wanted) {
            return pull.last.clone();
        }
        // What is noted ends with the rollout, and its end ends the task: the task must not hold it.
        let last = Arc::downgrade(&self.last);
        let pulling = keep_pulling(self.registries.clone(), last, subject.clone(), wanted.clone());
        let task = tokio::spawn(pulling).abort_handle();
        *pull = Some(Pull { source: wanted.clone(), last: None, task });
        None
    }
}

/// Notes a result, unless something else is wanted by now; says whether it is news.
fn note(
    last: &Weak<Mutex<Option<Pull>>>,
    source: &OciSource,
    result: Result<Artifact, Arc<LoadError>>,
) -> bool {
    let Some(last) = last.upgrade() else { return false };
    let mut pull = lock(&last);
    let Some(pull) = pull.as_mut().filter(|pull| pull.source == *source) else { return false };
    if result.is_err() && matches!(pull.last, Some(Ok(_))) {
        return false;
    }
    pull.last = Some(result);
    true
}

/// Pulls, and looks whether the tag has moved, until it is aborted.
async fn keep_pulling(
    registries: Registries,
    last: Weak<Mutex<Option<Pull>>>,
    subject: Subject,
    source: OciSource,
) {
    let mut known: Option<String> = None;
    let mut retry = RETRY_MIN;
    let mut told = String::new();
    // A registry that is away is told once, and again when it says something else.
    loop {
        match pull(&registries, &subject, &source, known.as_deref()).await {
            Ok(artifact) => {
                retry = RETRY_MIN;
                told.clear();
                if let Some(artifact) = artifact {
                    tracing::info!(
                        plugin = &*subject.name,
                        manifest = artifact.manifest,
                        "pulled {}",
                        source.reference
                    );
                    known = Some(artifact.manifest.clone());
                    if note(&last, &source, Ok(artifact)) {
                        subject.wake.notify_one();
                    }
                }
                if registry::is_fixed(&source.reference) {
                    return;
                }
                tokio::time::sleep(source.interval()).await;
            }
            Err(error) => {
                let (reason, text) = (error.reason(), chain(&error));
                if note(&last, &source, Err(Arc::new(error))) {
                    subject.wake.notify_one();
                } else if text != told {
                    tracing::warn!(plugin = &*subject.name, "what was pulled last stays: {text}");
                    if subject.event(None, None, EventKind::Warning, reason, &text) {
                        told = text;
                    }
                }
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(source.interval());
            }
        }
    }
}

async fn pull(
    registries: &Registries,
    subject: &Subject,
    source: &OciSource,
    known: Option<&str>,
) -> Result<Option<Artifact>, LoadError> {
    let secret = match &source.pull_secret_name {
        None => None,
        Some(name) => {
            let read = subject.cluster.secret_value(&subject.namespace, name, DOCKER_CONFIG).await;
            Some(read.map_err(|source| LoadError::PullSecret { source: Box::new(source) })?)
        }
    };
    let secret = secret.as_ref().map(SecretValue::expose);
    let pulled = registries.pull(&source.reference, secret, known).await;
    pulled.map_err(|source: RegistryError| LoadError::Pull(Box::new(source)))
}
