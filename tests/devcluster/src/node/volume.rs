//! A pod's volumes as directories of the host, and where its containers see them.
//!
//! Files of ConfigMaps and the like are replaced as the kubelet does it: a new directory, then one
//! atomic rename of the `..data` symlink, so a reader sees all of the old or all of the new.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube::Client;
use kube::api::Api;

use super::payload::{Payload, Source};
use super::sandbox::Bind;

const DATA: &str = "..data";

/// The volumes of one pod.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// Volume name → directory and whether it may only be read.
    places: BTreeMap<String, (PathBuf, bool)>,
    /// What was last written, to write only changes.
    written: BTreeMap<String, Payload>,
    generation: u64,
}

/// Names of the claims that a pod uses.
pub(crate) fn claims(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    volumes.iter().filter_map(|volume| claim(pod, volume)).collect()
}

fn claim(pod: &Pod, volume: &Volume) -> Option<String> {
    if volume.ephemeral.is_some() {
        return Some(format!("{}-{}", pod.metadata.name.as_deref()?, volume.name));
    }
    volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone())
}

impl Volumes {
    /// Makes every volume, or brings the files of existing ones up to date.
    pub(crate) async fn prepare(&mut self, root: &Path, source: &mut Source<'_>) -> Result<()> {
        let pod = source.pod;
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.clone()).unwrap_or_default();
        for volume in &volumes {
            let place = root.join(&volume.name);
            let context = || format!("volume {:?}", volume.name);
            if let Some(payload) = source.payload(volume).await.with_context(context)? {
                self.write(&volume.name, &place, payload).with_context(context)?;
                self.places.insert(volume.name.clone(), (place, true));
            } else if self.places.contains_key(&volume.name) {
                // Directories are made once and live as long as the pod.
            } else if volume.empty_dir.is_some() {
                fs::create_dir_all(&place).with_context(context)?;
                fs::set_permissions(&place, fs::Permissions::from_mode(0o777))
                    .with_context(context)?;
                self.places.insert(volume.name.clone(), (place, false));
            } else if let Some(claim) = claim(pod, volume) {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let place = directory_of_claim(source.client, namespace, &claim)
                    .await
                    .with_context(context)?;
                let used = volume.persistent_volume_claim.as_ref();
                let read_only = used.is_some_and(|used| used.read_only == Some(true));
                self.places.insert(volume.name.clone(), (place, read_only));
            } else {
                bail!("volume {:?} is of a kind the process node does not have", volume.name);
            }
        }
        Ok(())
    }

    fn write(&mut self, name: &str, place: &Path, payload: Payload) -> Result<()> {
        if self.written.get(name) == Some(&payload) {
            return Ok(());
        }
        self.generation += 1;
        write_atomically(place, &payload, self.generation)?;
        self.written.insert(name.to_owned(), payload);
        Ok(())
    }

    /// The bind mounts of a container, outer directories first.
    pub(crate) fn binds(
        &self,
        container: &Container,
        expand: impl Fn(&str) -> String,
    ) -> Result<Vec<Bind>> {
        let mut binds = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let (place, read_only) = self
                .places
                .get(&mount.name)
                .with_context(|| format!("volume mount {:?} has no volume", mount.name))?;
            let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
                (Some(path), _) => path.clone(),
                (None, Some(expression)) => expand(expression),
                (None, None) => String::new(),
            };
            binds.push(Bind {
                source: resolve(place, &sub_path)?,
                target: mount.mount_path.clone(),
                read_only: *read_only || mount.read_only == Some(true),
            });
        }
        binds.sort_by_key(|bind| Path::new(&bind.target).components().count());
        Ok(binds)
    }
}

fn resolve(place: &Path, sub_path: &str) -> Result<PathBuf> {
    if sub_path.is_empty() {
        return Ok(place.to_owned());
    }
    let plain = Path::new(sub_path).components().all(|part| matches!(part, Component::Normal(_)));
    if !plain {
        bail!("subPath {sub_path:?} must be relative and without `..`");
    }
    let path = place.join(sub_path);
    if !path.exists() {
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
    }
    path.canonicalize().with_context(|| format!("subPath {sub_path:?}"))
}

async fn directory_of_claim(client: &Client, namespace: &str, claim: &str) -> Result<PathBuf> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let found = claims.get(claim).await.with_context(|| format!("reading claim {claim:?}"))?;
    let volume = found
        .spec
        .and_then(|spec| spec.volume_name)
        .with_context(|| format!("claim {claim:?} is not bound"))?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume =
        volumes.get(&volume).await.with_context(|| format!("reading volume {volume:?}"))?;
    let path = volume
        .spec
        .and_then(|spec| spec.host_path)
        .with_context(|| format!("the volume of claim {claim:?} is not a directory"))?;
    let path = PathBuf::from(path.path);
    fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
    Ok(path)
}

fn write_atomically(place: &Path, payload: &Payload, generation: u64) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("creating {}", place.display()))?;
    let directory = format!("..{generation:08}");
    for (path, content) in payload {
        let file = place.join(&directory).join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        }
        fs::write(&file, &content.bytes).with_context(|| format!("writing {}", file.display()))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(content.mode))?;
    }
    fs::create_dir_all(place.join(&directory))?;
    let link = place.join(DATA);
    let previous = fs::read_link(&link).ok();
    let next = place.join("..data_next");
    symlink(&directory, &next).context("linking ..data")?;
    fs::rename(&next, &link).context("swapping ..data")?;
    link_files(place, payload)?;
    if let Some(previous) = previous {
        fs::remove_dir_all(place.join(previous)).context("removing the previous files")?;
    }
    Ok(())
}

/// One visible symlink per top-level name, into `..data`.
fn link_files(place: &Path, payload: &Payload) -> Result<()> {
    let names: BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).collect();
    for name in &names {
        let link = place.join(name);
        if link.symlink_metadata().is_err() {
            symlink(Path::new(DATA).join(name), &link)
                .with_context(|| format!("linking {}", link.display()))?;
        }
    }
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !names.contains(name.as_str()) {
            fs::remove_file(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::payload::FileContent;
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files
            .iter()
            .map(|(path, text)| {
                let content = FileContent { bytes: text.as_bytes().to_vec(), mode: 0o644 };
                ((*path).to_owned(), content)
            })
            .collect()
    }

    #[test]
    fn an_update_swaps_all_files_and_drops_old_ones() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("v");
        write_atomically(&place, &payload(&[("a", "1"), ("d/b", "1")]), 1).unwrap();
        assert_eq!(fs::read_to_string(place.join("d/b")).unwrap(), "1");
        write_atomically(&place, &payload(&[("a", "2"), ("c", "2")]), 2).unwrap();
        assert_eq!(fs::read_to_string(place.join("a")).unwrap(), "2");
        assert_eq!(fs::read_to_string(place.join("c")).unwrap(), "2");
        assert!(place.join("d").symlink_metadata().is_err());
        assert!(!place.join("..00000001").exists());
    }

    #[test]
    fn sub_paths_cannot_leave_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        assert!(resolve(dir.path(), "../x").is_err());
        assert!(resolve(dir.path(), "/x").is_err());
        assert!(resolve(dir.path(), "x/y").unwrap().ends_with("x/y"));
    }
}
