//! From a plugin's crate to a component, by one call of cargo.
//!
//! The crate may be a plain library: the crate type is set here. (With `crate-type = ["cdylib", "rlib"]` in its
//! manifest, cargo would leave out link-time optimisation, and the component would be half as large again.)
//!
//! **Invariant:** no path of the machine gets into the component, and no flag of the caller's environment changes it.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::component;
use crate::package::{Package, PackageError, cargo};

/// What plugins are compiled for. It has no system interface at all, so the component imports only the log.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// How to build.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Put into the component, and given to the crate as the environment variable `OPERATOR_HOST_BUILD`:
    /// another text gives another digest.
    pub build_id: Option<String>,
    /// Show cargo's progress on standard error. Otherwise its words are part of the error.
    pub progress: bool,
}

/// A built component.
#[derive(Clone, Debug)]
pub struct Built {
    /// The component.
    pub bytes: Vec<u8>,
    /// The file that holds it, in the target directory.
    pub path: PathBuf,
}

/// A plugin could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The directory holds no plugin.
    #[error("reading the plugin's package")]
    Package(#[from] PackageError),
    /// The compiler cannot produce wasm.
    #[error(
        "the standard library for {TARGET} is missing; install it with: rustup target add {TARGET}"
    )]
    MissingTarget,
    /// A program could not be started.
    #[error("starting {}", program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Cargo failed.
    #[error("cargo could not build {package}{said}")]
    Cargo {
        /// Which package.
        package: String,
        /// Cargo's words, unless they were shown.
        said: String,
    },
    /// A file could not be read or written.
    #[error("{doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The module is no plugin.
    #[error("making a component of {package}: {problem}; does it call operator_host_sdk::export!?")]
    Component {
        /// Which package.
        package: String,
        /// What is wrong.
        problem: String,
    },
}

/// Builds the plugin in a directory.
///
/// Its files are in a target directory of their own, `<target>/plugins`, so that a test which builds a plugin
/// neither waits for the cargo that runs it nor throws away its work.
pub fn build(package_dir: &Path, options: &BuildOptions) -> Result<Built, BuildError> {
    let package = Package::read(package_dir)?;
    check_target()?;
    let target = package.target_directory.join("plugins");
    // Two builds with different ids write the same module file: the second waits until the first has read it.
    let _lock = lock(&target)?;
    run_cargo(package_dir, &package, &target, options)?;
    let module_path = target.join(TARGET).join("plugin").join(format!("{}.wasm", package.library));
    let module = read(&module_path)?;
    let mut crds = Vec::new();
    for path in &package.crds {
        let file =
            |source| BuildError::File { doing: "reading the CRD", path: path.clone(), source };
        crds.push(std::fs::read_to_string(path).map_err(file)?);
    }
    let build_id = options.build_id.as_deref();
    let bytes = component::wrap(&module, &crds, build_id)
        .map_err(|problem| BuildError::Component { package: package.name.clone(), problem })?;
    let path = target.join(file_name(&package.name, build_id));
    write(&path, &bytes)?;
    Ok(Built { bytes, path })
}

fn file_name(package: &str, build_id: Option<&str>) -> String {
    let safe = |letter: char| {
        if letter.is_ascii_alphanumeric() { letter } else { '-' }
    };
    match build_id {
        Some(id) => format!("{package}-{}.wasm", id.chars().map(safe).collect::<String>()),
        None => format!("{package}.wasm"),
    }
}

/// Sees to it that wasm can be made. On a fresh machine rustup has to fetch the target first.
fn check_target() -> Result<(), BuildError> {
    if has_target()? {
        return Ok(());
    }
    // Without rustup, or without a network, the error says what is missing.
    let added =
        Command::new("rustup").args(["target", "add", TARGET]).stdout(std::io::stderr()).status();
    match added {
        Ok(status) if status.success() && has_target()? => Ok(()),
        Ok(_) | Err(_) => Err(BuildError::MissingTarget),
    }
}

/// Asks the compiler itself, whose error about a missing target comes late and in many words.
fn has_target() -> Result<bool, BuildError> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .map_err(|source| BuildError::Start { program: rustc.into(), source })?;
    let directory = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(std::fs::read_dir(directory).is_ok_and(|mut files| files.next().is_some()))
}

fn run_cargo(
    package_dir: &Path,
    package: &Package,
    target: &Path,
    options: &BuildOptions,
) -> Result<(), BuildError> {
    let program = cargo();
    let mut command = Command::new(&program);
    command
        .current_dir(package_dir)
        .args(["rustc", "--lib", "--crate-type", "cdylib", "--target", TARGET])
        .args(["--profile", "plugin", "--package", &package.name, "--target-dir"])
        .arg(target)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(package))
        // What clippy, coverage and the like set for the build that runs us is not for the component.
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("OPERATOR_HOST_BUILD")
        .stdin(Stdio::null());
    if let Some(build_id) = &options.build_id {
        command.env("OPERATOR_HOST_BUILD", build_id);
    }
    let start = |source| BuildError::Start { program: program.clone().into(), source };
    let failed = |said| Err(BuildError::Cargo { package: package.name.clone(), said });
    if options.progress {
        let status = command.stdout(Stdio::null()).status().map_err(start)?;
        return if status.success() { Ok(()) } else { failed(String::new()) };
    }
    let output = command.arg("--quiet").output().map_err(start)?;
    if output.status.success() {
        return Ok(());
    }
    failed(format!(":\n{}", String::from_utf8_lossy(&output.stderr).trim_end()))
}

/// Flags that take the machine's paths out of panic messages: the component's bytes depend on its sources alone.
/// Joined by 0x1f, as cargo takes them.
fn rustflags(package: &Package) -> OsString {
    let mut flags = remap(&package.workspace_root, "/plugin");
    for registry in registries() {
        flags.push("\u{1f}");
        flags.push(remap(&registry, "/crates"));
    }
    flags
}

fn remap(from: &Path, to: &str) -> OsString {
    let mut flag = OsString::from("--remap-path-prefix=");
    flag.push(from);
    flag.push("=");
    flag.push(to);
    flag
}

/// Where cargo unpacks the sources of dependencies: one directory for each registry it has used.
fn registries() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let Some(sources) = home.map(|home| home.join("registry").join("src")) else {
        return vec![];
    };
    let entries = std::fs::read_dir(sources).into_iter().flatten().flatten();
    let mut registries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    registries.sort();
    registries
}

/// Held until the file is dropped.
fn lock(target: &Path) -> Result<File, BuildError> {
    let path = target.join("kit.lock");
    let file = |source| BuildError::File { doing: "locking", path: path.clone(), source };
    std::fs::create_dir_all(target).map_err(file)?;
    let lock = File::create(&path).map_err(file)?;
    lock.lock().map_err(file)?;
    Ok(lock)
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    let file = |source| BuildError::File { doing: "reading", path: path.to_owned(), source };
    std::fs::read(path).map_err(file)
}

/// Replaces the file as a whole: somebody else may be reading it.
fn write(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let file = |source| BuildError::File { doing: "writing", path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(directory).map_err(file)?;
    temporary.write_all(bytes).map_err(file)?;
    temporary.persist(path).map_err(|error| file(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_cannot_leave_the_target_directory() {
        assert_eq!(file_name("hello-plugin", Some("../../v 2")), "hello-plugin-------v-2.wasm");
        assert_eq!(file_name("hello-plugin", None), "hello-plugin.wasm");
    }
}
