//! Where output goes: one file per container name, appended over restarts and re-creations.
//!
//! `kubectl logs` does not work: there is no kubelet to ask. Use `devcluster logs`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The log of a container.
pub(crate) fn container_log(state: &Path, namespace: &str, pod: &str, container: &str) -> PathBuf {
    state.join("logs").join(namespace).join(pod).join(format!("{container}.log"))
}

/// The names of the containers of a pod that have written a log.
pub fn containers(state: &Path, namespace: &str, pod: &str) -> Result<Vec<String>> {
    let dir = state.join("logs").join(namespace).join(pod);
    let entries =
        std::fs::read_dir(&dir).with_context(|| format!("no logs of {namespace}/{pod}"))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            entry.ok()?.file_name().to_str()?.strip_suffix(".log").map(str::to_owned)
        })
        .collect();
    names.sort();
    Ok(names)
}

/// Everything that a container of that name has written.
pub fn read(state: &Path, namespace: &str, pod: &str, container: &str) -> Result<String> {
    let path = container_log(state, namespace, pod, container);
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
