//! A component that keeps every bound of the cheap checks and would take Cranelift minutes. `cargo bench-swap` has it from
//! here as well.

use wasm_encoder::{
    BlockType, CodeSection, Component, ComponentExportKind, ComponentExportSection,
    ComponentInstanceSection, Function, FunctionSection, InstanceSection, Module, ModuleSection,
    TypeSection, ValType,
};

/// Functions of the component, each of some 100 KB: together they fit a ConfigMap of 1 MiB.
const FUNCTIONS: u32 = 8;

/// Locals of a function: as many as may be.
const LOCALS: u32 = 1_000;

/// Nested loops of a function.
const LOOPS: u32 = 1_200;

/// One function: locals that meet in nested loops.
pub(super) fn body() -> Function {
    let mut body = Function::new([(LOCALS, ValType::I64)]);
    let mut code = body.instructions();
    for depth in 0..LOOPS {
        code.loop_(BlockType::Empty);
        for step in 0..8 {
            let (from, to) = ((depth * 7 + step) % LOCALS, (depth * 13 + step * 5) % LOCALS);
            code.local_get(from).local_get(to).i64_add().local_set(to);
        }
    }
    for depth in 0..LOOPS {
        code.local_get(depth % LOCALS).i32_wrap_i64().br_if(0).end();
    }
    code.end();
    body
}

/// A component that exports the contract's interface, without anything in it: what is missing there is found out after
/// compiling.
pub(super) fn component() -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([], []);
    let (mut functions, mut codes, body) = (FunctionSection::new(), CodeSection::new(), body());
    for _ in 0..FUNCTIONS {
        functions.function(0);
        codes.function(&body);
    }
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&codes);

    let mut core_instances = InstanceSection::new();
    core_instances.instantiate::<_, &str>(0, []);
    let mut instances = ComponentInstanceSection::new();
    instances.export_items(std::iter::empty::<(&str, ComponentExportKind, u32)>());
    let mut exports = ComponentExportSection::new();
    exports.export("operator-host:plugin/reconciler@1.0.0", ComponentExportKind::Instance, 0, None);
    let mut component = Component::new();
    component
        .section(&ModuleSection(&module))
        .section(&core_instances)
        .section(&instances)
        .section(&exports);
    component.finish()
}
