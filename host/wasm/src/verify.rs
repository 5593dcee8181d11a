//! Stage *verify*: is this a plugin for this host, and is it safe to show it to a compiler?
//!
//! **Invariant:** everything a person can get wrong (file, world, version, imports) is said here,
//! before a compiler has spent any time.

use std::fmt;

use host_core::ident::PluginId;

use crate::capture::CapturedPlugin;
use crate::contract::{EXPORT, IMPORT, MAJOR};
use crate::error::{LoadError, VerifyError};
use crate::sniff;
use crate::structure::{Structure, walk};

/// Custom section: the CRDs a plugin brings, YAML.
const SECTION_CRDS: &str = "operator-host/crds";
/// Custom section: how the plugin was built, text.
const SECTION_BUILD: &str = "operator-host/build";

/// A version of the contract, read from the name of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContractVersion {
    /// Another major is another contract.
    pub major: u32,
    /// A higher minor adds imports.
    pub minor: u32,
    /// Changes texts only.
    pub patch: u32,
}

impl ContractVersion {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let version = Self { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for ContractVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What is known about a plugin without running it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The contract it was built for.
    pub contract: ContractVersion,
    /// Full names of its imports.
    pub imports: Vec<String>,
    /// Full names of its exports.
    pub exports: Vec<String>,
    /// Bytes of the component, unpacked.
    pub size_bytes: usize,
    /// Functions in all its core modules.
    pub functions: usize,
    /// Core modules in it.
    pub core_modules: usize,
    /// The CRDs it brings: YAML, not yet parsed.
    pub crds: Option<String>,
    /// How it was built, in its builder's words.
    pub build: Option<String>,
}

/// A plugin whose structure, contract and imports are known to be acceptable.
#[derive(Clone, Debug)]
pub struct VerifiedPlugin {
    captured: CapturedPlugin,
    facts: Facts,
}

impl CapturedPlugin {
    /// Checks structure, contract version and imports.
    pub fn verify(self) -> Result<VerifiedPlugin, LoadError> {
        match check(self.bytes()) {
            Ok(facts) => Ok(VerifiedPlugin { captured: self, facts }),
            Err(source) => Err(LoadError::Verify { plugin: self.id().clone(), source }),
        }
    }
}

impl VerifiedPlugin {
    /// The source's name and the component's digest.
    pub fn id(&self) -> &PluginId {
        self.captured.id()
    }

    /// The component.
    pub fn bytes(&self) -> &[u8] {
        self.captured.bytes()
    }

    /// What is known without running it.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Ends the stage.
    pub(crate) fn into_parts(self) -> (PluginId, Facts) {
        (self.captured.id().clone(), self.facts)
    }
}

fn check(bytes: &[u8]) -> Result<Facts, VerifyError> {
    sniff::expect_component(bytes)?;
    let structure = walk(bytes)?;
    let contract = contract(&structure)?;
    check_imports(&structure.imports)?;
    Ok(Facts {
        contract,
        crds: text_section(&structure, SECTION_CRDS)?,
        build: text_section(&structure, SECTION_BUILD)?,
        imports: structure.imports.iter().map(ToString::to_string).collect(),
        exports: structure.exports.iter().map(|(name, _)| (*name).to_owned()).collect(),
        size_bytes: bytes.len(),
        functions: structure.functions,
        core_modules: structure.core_modules,
    })
}

/// The version in `name` when it is `interface@version`.
fn version_of<'a>(name: &'a str, interface: &str) -> Option<&'a str> {
    name.strip_prefix(interface)?.strip_prefix('@')
}

fn is_supported(version: &str) -> Option<ContractVersion> {
    ContractVersion::parse(version).filter(|version| version.major == MAJOR)
}

fn contract(structure: &Structure<'_>) -> Result<ContractVersion, VerifyError> {
    let mut found = structure
        .exports
        .iter()
        .filter(|(_, interface)| *interface)
        .filter_map(|(name, _)| version_of(name, EXPORT).map(|version| (name, version)))
        .peekable();
    let first = found.peek().map(|(name, _)| (**name).to_owned());
    match (found.find_map(|(_, version)| is_supported(version)), first) {
        (Some(version), _) => Ok(version),
        (None, Some(found)) => Err(VerifyError::OtherContract { found }),
        (None, None) if structure.exports.is_empty() => {
            Err(VerifyError::WrongWorld { exports: "nothing".to_owned() })
        }
        (None, None) => {
            let names: Vec<&str> = structure.exports.iter().map(|(name, _)| *name).collect();
            Err(VerifyError::WrongWorld { exports: names.join(", ") })
        }
    }
}

fn check_imports(imports: &[&str]) -> Result<(), VerifyError> {
    let allowed = |name: &str| version_of(name, IMPORT).and_then(is_supported).is_some();
    let names: Vec<String> =
        imports.iter().filter(|name| !allowed(name)).map(ToString::to_string).collect();
    if names.is_empty() { Ok(()) } else { Err(VerifyError::Imports { names }) }
}

fn text_section(
    structure: &Structure<'_>,
    name: &'static str,
) -> Result<Option<String>, VerifyError> {
    let mut sections = structure.sections.iter().filter(|(found, _)| *found == name);
    let Some((_, data)) = sections.next() else {
        return Ok(None);
    };
    if sections.next().is_some() {
        return Err(VerifyError::Section { name, problem: "occurs twice" });
    }
    match std::str::from_utf8(data) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(VerifyError::Section { name, problem: "is not UTF-8" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_as_semver_has_them() {
        let version = ContractVersion::parse("1.20.3").unwrap();
        assert_eq!(version, ContractVersion { major: 1, minor: 20, patch: 3 });
        for wrong in ["", "1", "1.0", "1.0.0-rc.1", "1.0.0.0", "a.b.c"] {
            assert_eq!(ContractVersion::parse(wrong), None, "{wrong}");
        }
    }
}
