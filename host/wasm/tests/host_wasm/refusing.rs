//! What is not a plugin for this host is refused before a compiler sees it, in words that help.

use host_core::grants::CallLimits;
use host_wasm::{CapturedPlugin, LoadError};
use wasm_encoder::{
    CodeSection, Component, CustomSection, Function, FunctionSection, MemorySection, MemoryType,
    Module, ModuleSection, TypeSection, ValType,
};

use crate::guest::{HOSTILE, chain, compile, dummy, engine};

fn refused(bytes: &[u8]) -> LoadError {
    CapturedPlugin::new("test", bytes).and_then(CapturedPlugin::verify).unwrap_err()
}

fn refusal(bytes: &[u8]) -> String {
    let error = refused(bytes);
    let text = chain(&error);
    assert!(text.contains("plugin test") || text.contains("test@sha256:"), "{text}");
    text
}

#[test]
fn a_good_plugin_is_described_by_its_facts() {
    let plugin = CapturedPlugin::new("test", &HOSTILE).unwrap().verify().unwrap();
    let facts = plugin.facts();
    assert_eq!(facts.contract.to_string(), "1.0.0");
    assert_eq!(facts.imports, ["operator-host:plugin/log@1.0.0"]);
    assert_eq!(facts.exports, ["operator-host:plugin/reconciler@1.0.0"]);
    assert_eq!(facts.size_bytes, HOSTILE.len());
    assert!(facts.functions > 50 && facts.core_modules >= 1, "{facts:?}");
    assert_eq!((&facts.crds, &facts.build), (&None, &None));
}

#[test]
fn sections_of_the_component_are_read_and_checked() {
    let with = |sections: &[(&str, &[u8])]| {
        let mut bytes = HOSTILE.clone();
        for (name, data) in sections {
            let section = CustomSection { name: (*name).into(), data: (*data).into() };
            bytes.push(0);
            wasm_encoder::Encode::encode(&section, &mut bytes);
        }
        bytes
    };
    let bytes = with(&[("operator-host/crds", b"kind: CRD"), ("operator-host/build", b"sdk 1")]);
    let plugin = CapturedPlugin::new("test", &bytes).unwrap().verify().unwrap();
    assert_eq!(plugin.facts().crds.as_deref(), Some("kind: CRD"));
    assert_eq!(plugin.facts().build.as_deref(), Some("sdk 1"));

    let twice = refusal(&with(&[("operator-host/crds", b"a"), ("operator-host/crds", b"b")]));
    assert!(twice.contains("operator-host/crds occurs twice"), "{twice}");
    let binary = refusal(&with(&[("operator-host/build", b"\xff")]));
    assert!(binary.contains("operator-host/build is not UTF-8"), "{binary}");
}

#[test]
fn a_core_module_is_told_how_to_become_a_component() {
    let text = refusal(&Module::new().finish());
    assert!(text.contains("is a core module") && text.contains("cargo plugin build"), "{text}");
}

#[test]
fn another_world_is_named() {
    let text = refusal(&dummy(
        "package a:b; world w { export run: func(); export greet: interface { hi: func(); } }",
    ));
    assert!(text.contains("exports") && text.contains("run") && text.contains("greet"), "{text}");
    assert!(text.contains("operator-host:plugin/reconciler@1.x"), "{text}");
    let text = refusal(&Component::new().finish());
    assert!(text.contains("exports nothing"), "{text}");
}

#[test]
fn another_contract_version_names_both() {
    let wit = "package operator-host:plugin@2.1.0;
        interface reconciler { reconcile: func(); } world w { export reconciler; }";
    let error = refused(&dummy(wit));
    assert_eq!(error.reason(), "PluginContract");
    let text = chain(&error);
    for version in ["operator-host:plugin/reconciler@2.1.0", "operator-host:plugin/reconciler@1.x"]
    {
        assert!(text.contains(version), "{text}");
    }
}

#[test]
fn every_foreign_import_is_named() {
    let wit = "package operator-host:plugin@1.0.0;
        interface reconciler { reconcile: func(); }
        interface log { write: func(); }
        world w { import wasi:clocks/wall-clock@0.2.6; import wasi:random/seed@0.2.6; import log; export reconciler; }
        package wasi:clocks@0.2.6 { interface wall-clock { now: func() -> u32; } }
        package wasi:random@0.2.6 { interface seed { seed: func() -> u32; } }";
    let error = refused(&dummy(wit));
    assert_eq!(error.reason(), "PluginImports");
    let text = chain(&error);
    for part in ["wasi:clocks/wall-clock@0.2.6, ", "wasi:random/seed@0.2.6", "unknown-unknown"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("imports operator-host:plugin/log"), "{text}");
}

#[test]
fn other_types_under_the_right_name_fail_to_link() {
    let wit = "package operator-host:plugin@1.0.0;
        interface reconciler { describe: func() -> u32; reconcile: func(snapshot: string) -> string; }
        world w { export reconciler; }";
    let error = engine().load(compile(&dummy(wit)), &CallLimits::default()).unwrap_err();
    assert_eq!(error.reason(), "PluginLink");
    assert!(error.to_string().contains("expected `record` found `u32`"), "{error}");
}

#[test]
fn a_plugin_cut_off_anywhere_is_refused() {
    for length in (0..HOSTILE.len()).step_by(997) {
        let text = refusal(&HOSTILE[..length]);
        assert!(
            text.contains("cut off") || text.contains("but not operator-host:plugin/reconciler"),
            "{length}: {text}"
        );
    }
}

#[test]
fn changed_bytes_never_bring_the_verifier_down() {
    // A small generator of its own, so that a failure can be repeated.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 1).unwrap()
    };
    for round in 0..2_000 {
        let mut bytes = HOSTILE.clone();
        for _ in 0..=round % 4 {
            let position = next() % bytes.len();
            bytes[position] = next().to_le_bytes()[0];
        }
        if let Ok(captured) = CapturedPlugin::new("test", &bytes) {
            let _ = captured.verify();
        }
        let noise: Vec<u8> = (0..round % 64).map(|_| next().to_le_bytes()[0]).collect();
        assert!(CapturedPlugin::new("test", &noise).and_then(CapturedPlugin::verify).is_err());
    }
}

/// A component of one module with these functions' bodies.
fn with_bodies(bodies: &[Function]) -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([], []);
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    for body in bodies {
        functions.function(0);
        code.function(body);
    }
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&code);
    let mut component = Component::new();
    component.section(&ModuleSection(&module));
    component.finish()
}

#[test]
fn what_a_compiler_would_suffer_from_is_refused() {
    let empty = || {
        let mut body = Function::new([]);
        body.instructions().end();
        body
    };
    let mut many_locals = Function::new([(600, ValType::I32), (401, ValType::I64)]);
    many_locals.instructions().end();
    let mut long = Function::new([]);
    for _ in 0..140_000 {
        long.instructions().nop();
    }
    long.instructions().end();
    let mut large_memory = Module::new();
    let mut memories = MemorySection::new();
    let (minimum, maximum) = (1_025, None);
    memories.memory(MemoryType {
        minimum,
        maximum,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    large_memory.section(&memories);
    let mut memory = Component::new();
    memory.section(&ModuleSection(&large_memory));
    let mut modules = Component::new();
    for _ in 0..65 {
        modules.section(&ModuleSection(&Module::new()));
    }

    for (bytes, text) in [
        (with_bodies(&vec![empty(); 20_001]), "20001 functions, at most 20000"),
        (with_bodies(&[many_locals]), "1001 locals in a function, at most 1000"),
        (with_bodies(&[long]), "bytes in a function, at most 131072"),
        (memory.finish(), "1025 pages (64 KiB) of memory at the start, at most 1024"),
        (modules.finish(), "65 core modules, at most 64"),
        (vec![0; 8 << 20 | 1], "has 8388609 bytes, at most 8388608"),
    ] {
        let message = refusal(&bytes);
        assert!(message.contains(text), "{message}");
    }
}
