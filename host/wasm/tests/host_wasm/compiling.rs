//! The compiling child: its limits, how its end is explained, and the cache.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use host_core::grants::CallLimits;
use host_wasm::{
    CapturedPlugin, Compiler, CompilerLimits, Engine, EngineConfig, LoadError, VerifiedPlugin,
};

use crate::bomb;
use crate::guest::{HOSTILE, chain, child, engine, snapshot};

fn verified(bytes: &[u8]) -> VerifiedPlugin {
    CapturedPlugin::new("test", bytes).unwrap().verify().unwrap()
}

fn refusal(limits: CompilerLimits) -> String {
    let compiler = Compiler::new(child(), None, limits).unwrap();
    let error = compiler.compile(verified(&bomb::component())).unwrap_err();
    assert_eq!(error.reason(), "PluginCompile");
    chain(&error)
}

const GENEROUS: CompilerLimits =
    CompilerLimits { cpu_seconds: 120, memory_mib: 4_096, wall_clock: Duration::from_mins(2) };

#[test]
fn a_compile_bomb_meets_each_limit() {
    let cpu = refusal(CompilerLimits { cpu_seconds: 1, ..GENEROUS });
    assert!(cpu.contains("needs more than 1 s of processor time"), "{cpu}");
    let memory = refusal(CompilerLimits { memory_mib: 96, ..GENEROUS });
    assert!(memory.contains("needs more than 96 MiB of memory"), "{memory}");
    let start = Instant::now();
    let wall = refusal(CompilerLimits { wall_clock: Duration::from_millis(300), ..GENEROUS });
    assert!(wall.contains("takes longer than 300 ms"), "{wall}");
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_bomb_is_tried_once() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("compiler");
    std::os::unix::fs::symlink(child(), &link).unwrap();
    let limits = CompilerLimits { cpu_seconds: 1, ..GENEROUS };
    let compiler = Compiler::new(link.clone(), None, limits).unwrap();
    let first = chain(&compiler.compile(verified(&bomb::component())).unwrap_err());
    // From here on a child cannot even be started.
    fs::remove_file(link).unwrap();
    let second = chain(&compiler.compile(verified(&bomb::component())).unwrap_err());
    assert_eq!(first, second);
    let other = chain(&compiler.compile(verified(&HOSTILE)).unwrap_err());
    assert!(other.contains("starting"), "{other}");
}

#[test]
fn what_is_not_valid_is_explained_by_the_compiler() {
    let mut bytes = bomb::component();
    // The instance's index in the export: there is no instance 9.
    let position = bytes.len() - 2;
    assert_eq!(bytes[position], 0);
    bytes[position] = 9;
    let compiler = Compiler::new(child(), None, GENEROUS).unwrap();
    let text = chain(&compiler.compile(verified(&bytes)).unwrap_err());
    assert!(text.contains("it is not valid") && text.contains("unknown instance 9"), "{text}");
}

#[test]
fn a_compiler_that_is_not_there_or_talks_nonsense_is_not_the_plugins_fault_alone() {
    let missing = Compiler::new("/nowhere/compiler".into(), None, GENEROUS).unwrap();
    let text = chain(&missing.compile(verified(&HOSTILE)).unwrap_err());
    assert!(text.contains("starting /nowhere/compiler"), "{text}");

    // Ends at once without reading or writing anything.
    let silent = Compiler::new("/bin/false".into(), None, GENEROUS).unwrap();
    let text = chain(&silent.compile(verified(&HOSTILE)).unwrap_err());
    assert!(text.contains("the compiler crashed (exit status: 1)"), "{text}");
}

fn cached_files(directory: &tempfile::TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.path()).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn runs(compiler: &Compiler) -> Result<(), LoadError> {
    let plugin = engine().load(compiler.compile(verified(&HOSTILE))?, &CallLimits::default())?;
    plugin.reconcile(&snapshot("plain"), &mut |_| ()).unwrap().unwrap();
    Ok(())
}

#[test]
fn a_corrupted_cache_is_compiled_again_and_never_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let cache = || Some(directory.path().to_owned());
    let compiler = Compiler::new(child(), cache(), CompilerLimits::default()).unwrap();
    runs(&compiler).unwrap();
    let [file] = cached_files(&directory).try_into().unwrap();
    let whole = fs::read(&file).unwrap();

    // With no compiler at all, only the cache can answer.
    let cache_only = || Compiler::new("/nowhere".into(), cache(), GENEROUS).unwrap();
    runs(&cache_only()).unwrap();

    let mut corrupted = whole.clone();
    let middle = corrupted.len() / 2;
    corrupted[middle] ^= 0xff;
    fs::write(&file, &corrupted).unwrap();
    runs(&cache_only()).unwrap_err();

    runs(&compiler).unwrap();
    assert!(fs::read(&file).unwrap() == whole, "the cache was not mended");
    assert_eq!(cached_files(&directory).len(), 1);
}

#[test]
fn a_cache_that_cannot_be_written_costs_nothing_but_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a file and not a directory");
    fs::write(&file, "").unwrap();
    let compiler = Compiler::new(child(), Some(file), CompilerLimits::default()).unwrap();
    runs(&compiler).unwrap();
}

#[test]
fn an_engine_without_room_says_what_to_do() {
    let error = Engine::new(EngineConfig { max_concurrent_calls: u16::MAX }).err();
    let text = error.expect("512 TiB of addresses cannot be had").to_string();
    assert!(text.contains("65535 plugin calls") && text.contains("ulimit -v"), "{text}");
}
