//! What a plugin's `Cargo.toml` says, as cargo understands it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// A plugin's package.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The file name of its library, without extension.
    pub library: String,
    /// The workspace it belongs to.
    pub workspace_root: PathBuf,
    /// Where cargo writes for this workspace.
    pub target_directory: PathBuf,
    /// The CRDs the component carries, from `[package.metadata.operator-host] crds = ["…"]`.
    pub crds: Vec<PathBuf>,
}

/// A directory is not a plugin's package.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// Cargo could not be started.
    #[error("starting {} to read {}", program.display(), manifest.display())]
    Start {
        /// What was started.
        program: PathBuf,
        /// For which manifest.
        manifest: PathBuf,
        /// Why it did not start.
        source: std::io::Error,
    },
    /// Cargo refused the manifest.
    #[error("cargo does not understand {}: {said}", manifest.display())]
    Manifest {
        /// Which manifest.
        manifest: PathBuf,
        /// Cargo's words.
        said: String,
    },
    /// Cargo's answer was not understood.
    #[error("reading what cargo says about {}", manifest.display())]
    Answer {
        /// Which manifest.
        manifest: PathBuf,
        /// What was wrong with it.
        source: serde_json::Error,
    },
    /// There is no library in it.
    #[error("{} is not the manifest of a package with a library; a plugin is one", manifest.display())]
    NoLibrary {
        /// Which manifest.
        manifest: PathBuf,
    },
}

#[derive(Deserialize)]
struct Answer {
    packages: Vec<AnswerPackage>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct AnswerPackage {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<AnswerTarget>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct AnswerTarget {
    name: String,
    kind: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    #[serde(default)]
    operator_host: PluginMetadata,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginMetadata {
    #[serde(default)]
    crds: Vec<PathBuf>,
}

/// The cargo that runs us, else the one on the path.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

impl Package {
    /// Reads the package in a directory.
    pub fn read(directory: &Path) -> Result<Self, PackageError> {
        let manifest = directory.join("Cargo.toml");
        let program = cargo();
        let output = Command::new(&program)
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(&manifest)
            .output()
            .map_err(|source| PackageError::Start {
                program: program.into(),
                manifest: manifest.clone(),
                source,
            })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(PackageError::Manifest { manifest, said });
        }
        let answer: Answer = serde_json::from_slice(&output.stdout)
            .map_err(|source| PackageError::Answer { manifest: manifest.clone(), source })?;
        let path = std::path::absolute(&manifest).unwrap_or_else(|_| manifest.clone());
        Self::from_answer(answer, &path).ok_or(PackageError::NoLibrary { manifest })
    }

    fn from_answer(answer: Answer, manifest: &Path) -> Option<Self> {
        let same = |path: &Path| path.canonicalize().ok() == manifest.canonicalize().ok();
        let package = answer.packages.into_iter().find(|package| same(&package.manifest_path))?;
        let library = package.targets.into_iter().find(|target| {
            target.kind.iter().any(|kind| ["lib", "rlib", "cdylib"].contains(&kind.as_str()))
        })?;
        let directory = package.manifest_path.parent()?.to_owned();
        let crds = package.metadata.unwrap_or_default().operator_host.crds;
        Some(Self {
            name: package.name,
            library: library.name.replace('-', "_"),
            workspace_root: answer.workspace_root,
            target_directory: answer.target_directory,
            crds: crds.into_iter().map(|path| directory.join(path)).collect(),
        })
    }
}
