//! Runs a built component on scenarios, in the sandbox that the host uses.
//!
//! **Invariant:** what is tested is the component that would be shipped, and a decision that the host would
//! refuse fails the test.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use host_core::decision::RawDecision;
use host_core::grants::{CallLimits, Grants, RefusedDescriptor};
use host_core::limits;
use host_core::snapshot::{Answer, Descriptor, Failure, Query, Snapshot, Verdict};
use host_wasm::{
    CallFault, CapturedPlugin, CompiledPlugin, Engine, EngineConfig, EngineError, LoadError,
    LogLine,
};

use crate::build::{BuildError, BuildOptions, build};
use crate::golden::check_golden;
use crate::render;
use crate::scenario::{Scenario, ScenarioError};
use crate::world::{Order, World};

/// A loaded component.
#[derive(Debug)]
pub struct Harness {
    plugin: host_wasm::Plugin,
    grants: Grants,
}

/// A component could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// It could not be built.
    #[error("building the plugin")]
    Build(#[from] BuildError),
    /// It could not be read.
    #[error("reading {}", path.display())]
    Read {
        /// From where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The sandbox did not start.
    #[error("starting the engine")]
    Engine(#[from] EngineError),
    /// The host would not load it.
    #[error("loading the plugin")]
    Load(#[from] LoadError),
    /// The host would not grant it anything.
    #[error("checking the plugin's descriptor")]
    Descriptor(#[from] RefusedDescriptor),
}

/// One run: the rounds of questions, and what came at the end.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was asked, round by round.
    pub rounds: Vec<Vec<Query>>,
    /// The decision, or the plugin's failure.
    pub outcome: Result<RawDecision, Failure>,
    /// What the plugin logged.
    pub log: Vec<LogLine>,
}

impl Run {
    /// The run as YAML, without the log: the form of golden files.
    pub fn to_yaml(&self) -> Result<String, ScenarioError> {
        let mut value = render::outcome(&self.outcome);
        if let Some(map) = value.as_object_mut()
            && !self.rounds.is_empty()
        {
            map.insert("asked".to_owned(), render::rounds(&self.rounds));
        }
        Ok(render::to_yaml(&value)?)
    }
}

impl Harness {
    /// Builds the plugin in a directory and loads it.
    pub fn load(package_dir: &Path) -> Result<Self, HarnessError> {
        let built = build(package_dir, &BuildOptions::default())?;
        Self::from_bytes(&package_dir.display().to_string(), &built.bytes)
    }

    /// Loads a component from a file, plain or compressed with zstd or gzip.
    pub fn from_file(path: &Path) -> Result<Self, HarnessError> {
        let read = |source| HarnessError::Read { path: path.to_owned(), source };
        let bytes = std::fs::read(path).map_err(read)?;
        Self::from_bytes(&path.display().to_string(), &bytes)
    }

    fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, HarnessError> {
        let engine = Engine::new(EngineConfig { max_concurrent_calls: 1 })?;
        let verified = CapturedPlugin::new(name, bytes)?.verify()?;
        // The author's own plugin: no need for the child that protects the host from strangers'.
        let compiled = CompiledPlugin::in_process(verified)?;
        let plugin = engine.load(compiled, &CallLimits::default())?;
        let grants = Grants::as_asked(plugin.descriptor())?;
        Ok(Self { plugin, grants })
    }

    /// What the plugin says about itself.
    pub fn descriptor(&self) -> &Descriptor {
        self.plugin.descriptor()
    }

    /// One call, for tests that make their own snapshots.
    pub fn call(&self, snapshot: &Snapshot) -> Result<Result<Verdict, Failure>, CallFault> {
        self.plugin.reconcile(snapshot, &mut |_| ())
    }

    /// Runs a scenario to its end: answers what is asked and checks what is decided.
    /// Then does so again, and with every list in the opposite order: the outcome must be the same.
    pub fn run(&self, scenario: &Scenario) -> Result<Run, ScenarioError> {
        let run = self.run_once(scenario, Order::Canonical)?;
        let again = self.run_once(scenario, Order::Canonical)?;
        expect_same("when it is called again", &run, &again)?;
        let reversed = self.run_once(scenario, Order::Reversed)?;
        expect_same("when lists come in another order", &run, &reversed)?;
        Ok(run)
    }

    fn run_once(&self, scenario: &Scenario, order: Order) -> Result<Run, ScenarioError> {
        let world = World::new(scenario, order)?;
        let mut answers: Vec<Answer> = Vec::new();
        let mut log = Vec::new();
        let mut rounds = Vec::new();
        while rounds.len() <= limits::ROUNDS_MAX {
            let snapshot = world.snapshot(&answers);
            let queries = match self.plugin.reconcile(&snapshot, &mut |line| log.push(line))? {
                Ok(Verdict::Ask(queries)) => queries,
                Ok(Verdict::Decide(decision)) => {
                    decision.clone().validate(world.parent(), &self.grants)?;
                    return Ok(Run { rounds, outcome: Ok(decision), log });
                }
                Err(failure) => {
                    return Ok(Run { rounds, outcome: Err(failure), log });
                }
            };
            for query in &queries {
                if !answers.iter().any(|answer| answer.query == *query) {
                    let reply = world.answer(query, &self.grants)?;
                    answers.push(Answer { query: query.clone(), reply });
                }
            }
            rounds.push(queries);
        }
        Err(ScenarioError::Rounds(limits::ROUNDS_MAX))
    }
}

fn expect_same(when: &'static str, first: &Run, second: &Run) -> Result<(), ScenarioError> {
    let text = |run: &Run| render::to_yaml(&render::outcome(&run.outcome));
    let (first, second) = (text(first)?, text(second)?);
    if first == second {
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(&first, &second).unified_diff().to_string();
    Err(ScenarioError::Undetermined { when, diff })
}

/// What went wrong, in words for the terminal. Debug prints as Display does, for tests that return it.
pub struct ScenarioFailures(String);

impl fmt::Display for ScenarioFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ScenarioFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ScenarioFailures {}

/// Builds the plugin in `package_dir` and runs every `scenarios/*.yaml` of it.
/// What comes out is compared with the `*.golden.yaml` beside it; `UPDATE_GOLDEN=1` writes those.
///
/// Call it from a test: `run_scenarios(env!("CARGO_MANIFEST_DIR"))`.
pub fn run_scenarios(package_dir: impl AsRef<Path>) -> Result<(), ScenarioFailures> {
    let package_dir = package_dir.as_ref();
    let harness = Harness::load(package_dir).map_err(|error| ScenarioFailures(chain(&error)))?;
    let directory = package_dir.join("scenarios");
    let paths = scenario_files(&directory)
        .map_err(|error| ScenarioFailures(format!("reading {}: {error}", directory.display())))?;
    if paths.is_empty() {
        return Err(ScenarioFailures(format!("no *.yaml in {}", directory.display())));
    }
    let mut failures = String::new();
    for path in &paths {
        if let Err(error) = run_file(&harness, path) {
            // Writing to a String does not fail.
            let _ = writeln!(failures, "\n{}\n{error}", path.display());
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(ScenarioFailures(failures)) }
}

fn scenario_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
        let is_golden = path.file_stem().is_some_and(|stem| Path::new(stem).extension().is_some());
        if is_yaml && !is_golden {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn run_file(harness: &Harness, path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let run = Scenario::from_yaml(&text).and_then(|scenario| harness.run(&scenario));
    let yaml = run.and_then(|run| run.to_yaml()).map_err(|error| chain(&error))?;
    check_golden(&path.with_extension("golden.yaml"), &yaml).map_err(|error| error.to_string())
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let _ = write!(text, ": {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(requeue_after_ms: u32) -> Run {
        let decision =
            RawDecision { requeue_after_ms: Some(requeue_after_ms), ..RawDecision::default() };
        Run { rounds: vec![], outcome: Ok(decision), log: vec![] }
    }

    #[test]
    fn two_decisions_about_one_situation_are_an_error_that_shows_both() {
        expect_same("again", &run(1), &run(1)).unwrap();
        let error = expect_same("again", &run(1), &run(2)).unwrap_err().to_string();
        assert!(error.contains("-  requeueAfterMs: 1"), "{error}");
        assert!(error.contains("+  requeueAfterMs: 2"), "{error}");
    }

    #[test]
    fn golden_files_are_not_taken_for_scenarios() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yaml", "a.golden.yaml", "notes.md"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let files = scenario_files(directory.path()).unwrap();
        let names: Vec<_> = files.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["a.yaml", "b.yaml"]);
    }
}
