//! Builds the guests that the tests run, once each, and stands up what is around them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, OnceLock};

use host_core::grants::CallLimits;
use host_core::ident::Kind;
use host_core::object::StoredObject;
use host_core::snapshot::{Observed, Snapshot};
use host_wasm::{
    CapturedPlugin, CompiledPlugin, Compiler, CompilerLimits, Engine, EngineConfig, Plugin,
};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{ManglingAndAbi, Resolve};

/// The guest that misbehaves by its parent's name.
pub(crate) static HOSTILE: LazyLock<Vec<u8>> = LazyLock::new(|| component(&build("", "plain")));

/// The same, but it never returns from `describe`.
pub(crate) static DESCRIBE_SPINS: LazyLock<Vec<u8>> =
    LazyLock::new(|| component(&build("describe-spins", "describe-spins")));

fn build(features: &str, directory: &str) -> Vec<u8> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/hostile");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--release", "--target", "wasm32-unknown-unknown"])
        .args(["--features", features])
        .current_dir(guest)
        .env("CARGO_TARGET_DIR", &target)
        // Coverage or sanitizer flags of the host mean nothing to wasm.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .unwrap();
    assert!(status.success(), "building the hostile guest");
    std::fs::read(target.join("wasm32-unknown-unknown/release/hostile.wasm")).unwrap()
}

/// Makes a component of a core module.
pub(crate) fn component(module: &[u8]) -> Vec<u8> {
    ComponentEncoder::default().module(module).unwrap().validate(true).encode().unwrap()
}

/// A component of the first world in some WIT text, whose functions do nothing.
pub(crate) fn dummy(wit: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("test.wit", wit).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    let mut module = wit_component::dummy_module(&resolve, world, ManglingAndAbi::Standard32);
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
    component(&module)
}

pub(crate) fn child() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_compile-child"))
}

pub(crate) fn compiler() -> Compiler {
    Compiler::new(child(), None, CompilerLimits::default()).unwrap()
}

/// One engine for all tests, as in the host.
pub(crate) fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(EngineConfig { max_concurrent_calls: 2 }).unwrap())
}

pub(crate) fn compile(bytes: &[u8]) -> CompiledPlugin {
    compiler().compile(CapturedPlugin::new("test", bytes).unwrap().verify().unwrap()).unwrap()
}

/// The hostile plugin, loaded.
pub(crate) fn hostile() -> &'static Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        // Long enough for an honest call on a busy machine.
        let limits = CallLimits { call_deadline_ms: 2_000, memory_mib: 16 };
        engine().load(compile(&HOSTILE), &limits).unwrap()
    })
}

/// An object with the given name, its kind and body as simple as can be.
pub(crate) fn observed(kind: &str, name: &str) -> Observed {
    let kind = Kind::new("example.com/v1", kind);
    let json = format!(r#"{{"metadata":{{"namespace":"shop","name":"{name}"}}}}"#);
    let object = StoredObject::parse(&kind, &json).unwrap();
    Observed { kind: Arc::new(kind), object: Arc::new(object) }
}

/// A snapshot whose parent's name tells the hostile plugin what to do.
pub(crate) fn snapshot(behaviour: &str) -> Snapshot {
    Snapshot {
        now: "2026-01-31T08:00:00Z".to_owned(),
        parent: observed("Demo", behaviour),
        children: vec![],
        answers: vec![],
        previous: None,
        config: vec![],
    }
}

/// An error with everything behind it, as the host's reporter prints it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
