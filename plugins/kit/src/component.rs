//! From a core module to a component, and what a component's bytes say about it.

use wasm_encoder::{ComponentSection as _, CustomSection};
use wasmparser::{Parser, Payload};

/// Custom section: the CRDs a plugin brings, YAML documents.
const SECTION_CRDS: &str = "operator-host/crds";
/// Custom section: how the plugin was built, text.
const SECTION_BUILD: &str = "operator-host/build";

/// What makes a component a plugin.
const EXPORT: &str = "operator-host:plugin/reconciler@";

fn text_of(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Wraps a core module that carries its WIT into a component, and adds what the host reads without running it.
pub(crate) fn wrap(
    module: &[u8],
    crds: &[String],
    build_id: Option<&str>,
) -> Result<Vec<u8>, String> {
    // The whole chain of causes, in one line: the encoder's errors are only a text to us.
    let chain = |error: anyhow::Error| format!("{error:#}");
    let mut encoder = wit_component::ComponentEncoder::default();
    let mut component =
        encoder.module(module).map_err(chain)?.validate(true).encode().map_err(chain)?;
    // A library that exports nothing is also a valid component.
    let exports = facts(&component).map_err(|error| error.to_string())?.exports;
    if !exports.iter().any(|name| name.starts_with(EXPORT)) {
        return Err(format!("it exports {}, but not {EXPORT}", text_of(&exports)));
    }
    if !crds.is_empty() {
        append(&mut component, SECTION_CRDS, &documents(crds));
    }
    if let Some(build_id) = build_id {
        append(&mut component, SECTION_BUILD, build_id);
    }
    Ok(component)
}

fn append(component: &mut Vec<u8>, name: &str, text: &str) {
    let section = CustomSection { name: name.into(), data: text.as_bytes().into() };
    section.append_to_component(component);
}

/// Several YAML files as one stream.
fn documents(files: &[String]) -> String {
    let mut stream = String::new();
    for file in files {
        stream.push_str("---\n");
        stream.push_str(file.trim_start_matches("---\n").trim_end());
        stream.push('\n');
    }
    stream
}

/// What a component's bytes say about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Names of the imports, with versions.
    pub imports: Vec<String>,
    /// Names of the exports, with versions.
    pub exports: Vec<String>,
    /// The CRDs it brings, YAML documents.
    pub crds: Option<String>,
    /// How it was built.
    pub build_id: Option<String>,
}

impl Facts {
    fn add(&mut self, payload: &Payload<'_>) -> Result<(), wasmparser::BinaryReaderError> {
        if let Payload::ComponentImportSection(imports) = payload {
            for import in imports.clone() {
                self.imports.push(import?.name.name.to_owned());
            }
        } else if let Payload::ComponentExportSection(exports) = payload {
            for export in exports.clone() {
                self.exports.push(export?.name.name.to_owned());
            }
        } else if let Payload::CustomSection(section) = payload {
            let text = || Some(String::from_utf8_lossy(section.data()).into_owned());
            match section.name() {
                SECTION_CRDS => self.crds = text(),
                SECTION_BUILD => self.build_id = text(),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Reads a component without running it.
pub fn facts(component: &[u8]) -> Result<Facts, wasmparser::BinaryReaderError> {
    let mut facts = Facts::default();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload?;
        if matches!(payload, Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) {
            depth += 1;
        } else if matches!(payload, Payload::End(_)) {
            depth = depth.saturating_sub(1);
        } else if depth == 0 {
            facts.add(&payload)?;
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_files_into_one_yaml_stream() {
        let files = ["---\na: 1\n".to_owned(), "b: 2".to_owned()];
        assert_eq!(documents(&files), "---\na: 1\n---\nb: 2\n");
    }

    #[test]
    fn reads_only_sections_of_the_component_itself() {
        let mut component = wasm_encoder::Component::new();
        let mut module = wasm_encoder::Module::new();
        module.section(&CustomSection { name: SECTION_BUILD.into(), data: b"inner"[..].into() });
        component.section(&wasm_encoder::ModuleSection(&module));
        let mut bytes = component.finish();
        assert_eq!(facts(&bytes).unwrap(), Facts::default());
        append(&mut bytes, SECTION_BUILD, "outer");
        append(&mut bytes, SECTION_CRDS, "a: 1");
        let read = facts(&bytes).unwrap();
        assert_eq!((read.build_id.as_deref(), read.crds.as_deref()), (Some("outer"), Some("a: 1")));
    }

    #[test]
    fn refuses_a_module_without_a_world() {
        let error = wrap(&wasm_encoder::Module::new().finish(), &[], None).unwrap_err();
        assert_eq!(error, "it exports nothing, but not operator-host:plugin/reconciler@");
        assert!(wrap(b"not wasm", &[], None).is_err());
    }
}
