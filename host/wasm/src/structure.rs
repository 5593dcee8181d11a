//! Walks a component section by section: counts what Cranelift would suffer from and collects names.
//!
//! **Invariant:** linear in the bytes, allocates only names; no function is decoded beyond its locals.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "sections that are neither counted nor named are the compiler's to judge"
)]

use wasmparser::{
    BinaryReaderError, ComponentExternalKind, FunctionBody, MemorySectionReader, Parser, Payload,
    TableSectionReader,
};

use crate::error::VerifyError;
use crate::limits;

/// What the walk found.
#[derive(Debug, Default)]
pub(crate) struct Structure<'a> {
    /// Full names of the component's imports.
    pub(crate) imports: Vec<&'a str>,
    /// Full names of the component's exports, and whether each is an interface.
    pub(crate) exports: Vec<(&'a str, bool)>,
    /// Custom sections of the component itself, not those of its modules.
    pub(crate) sections: Vec<(&'a str, &'a [u8])>,
    /// Functions of all core modules.
    pub(crate) functions: usize,
    /// Core modules at any depth.
    pub(crate) core_modules: usize,
    nested_components: usize,
    memories: usize,
    tables: usize,
}

#[allow(clippy::needless_pass_by_value, reason = "made for map_err")]
fn malformed(error: BinaryReaderError) -> VerifyError {
    VerifyError::Malformed { offset: error.offset(), problem: error.message().to_owned() }
}

fn bounded(what: &'static str, found: u64, max: u64) -> Result<(), VerifyError> {
    if found > max { Err(VerifyError::Limit { what, found, max }) } else { Ok(()) }
}

/// Walks `bytes`, stopping at the first bound that is broken.
pub(crate) fn walk(bytes: &[u8]) -> Result<Structure<'_>, VerifyError> {
    let mut structure = Structure::default();
    // Modules and components within the component; their sections follow and end with an `End`.
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(malformed)?;
        match &payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 0 => structure.name(&payload)?,
            _ => {}
        }
        structure.count(&payload)?;
    }
    Ok(structure)
}

impl<'a> Structure<'a> {
    /// Takes the names that the outermost component shows to the world.
    fn name(&mut self, payload: &Payload<'a>) -> Result<(), VerifyError> {
        match payload {
            Payload::ComponentImportSection(reader) => {
                for import in reader.clone() {
                    self.imports.push(import.map_err(malformed)?.name.name);
                }
            }
            Payload::ComponentExportSection(reader) => {
                for export in reader.clone() {
                    let export = export.map_err(malformed)?;
                    let interface = export.kind == ComponentExternalKind::Instance;
                    self.exports.push((export.name.name, interface));
                }
            }
            Payload::CustomSection(section) => {
                self.sections.push((section.name(), section.data()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts what is bounded, at every depth.
    fn count(&mut self, payload: &Payload<'a>) -> Result<(), VerifyError> {
        match payload {
            Payload::ModuleSection { .. } => {
                self.core_modules += 1;
                bounded("core modules", self.core_modules as u64, limits::CORE_MODULES_MAX as u64)
            }
            Payload::ComponentSection { .. } => {
                self.nested_components += 1;
                let max = limits::NESTED_COMPONENTS_MAX as u64;
                bounded("nested components", self.nested_components as u64, max)
            }
            Payload::CodeSectionStart { count, .. } => {
                self.functions += *count as usize;
                bounded("functions", self.functions as u64, limits::FUNCTIONS_MAX as u64)
            }
            Payload::CodeSectionEntry(body) => check_body(body),
            Payload::MemorySection(reader) => self.check_memories(reader),
            Payload::TableSection(reader) => self.check_tables(reader),
            _ => Ok(()),
        }
    }

    fn check_memories(&mut self, reader: &MemorySectionReader<'a>) -> Result<(), VerifyError> {
        for memory in reader.clone() {
            let pages = memory.map_err(malformed)?.initial;
            self.memories += 1;
            bounded("memories", self.memories as u64, limits::MEMORIES_MAX.into())?;
            bounded("pages (64 KiB) of memory at the start", pages, limits::MEMORY_PAGES_MAX)?;
        }
        Ok(())
    }

    fn check_tables(&mut self, reader: &TableSectionReader<'a>) -> Result<(), VerifyError> {
        for table in reader.clone() {
            let elements = table.map_err(malformed)?.ty.initial;
            self.tables += 1;
            bounded("tables", self.tables as u64, limits::TABLES_MAX.into())?;
            bounded("elements in a table", elements, limits::TABLE_ELEMENTS_MAX.into())?;
        }
        Ok(())
    }
}

fn check_body(body: &FunctionBody<'_>) -> Result<(), VerifyError> {
    let bytes = body.as_bytes().len() as u64;
    bounded("bytes in a function", bytes, limits::BODY_BYTES_MAX as u64)?;
    let mut locals = 0_u64;
    for group in body.get_locals_reader().map_err(malformed)? {
        let (count, _) = group.map_err(malformed)?;
        locals += u64::from(count);
        bounded("locals in a function", locals, limits::LOCALS_MAX)?;
    }
    Ok(())
}
