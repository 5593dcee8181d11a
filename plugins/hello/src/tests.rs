use std::path::Path;

use operator_host_kit::{Mismatch, ScenarioFailures, check_golden, run_scenarios};
use operator_host_sdk::crd::{Column, CrdInfo, custom_resource_definition, to_yaml};
use operator_host_sdk::{Verdict, testing};
use serde_json::json;

use super::{GreetingSpec, GreetingStatus, Hello};

const DIRECTORY: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_built_component_decides_as_its_golden_files_say() -> Result<(), ScenarioFailures> {
    run_scenarios(DIRECTORY)
}

#[test]
fn the_crd_is_that_of_the_types() -> Result<(), Mismatch> {
    let definition = custom_resource_definition::<GreetingSpec, GreetingStatus>(&CrdInfo {
        group: "example.operator-host.dev",
        version: "v1alpha1",
        kind: "Greeting",
        plural: "greetings",
        description: "Somebody to be greeted.",
        columns: &[
            Column { name: "Text", type_: "string", json_path: ".status.text", priority: 0 },
            Column {
                name: "Ready",
                type_: "string",
                json_path: ".status.conditions[?(@.type==\"Ready\")].status",
                priority: 0,
            },
        ],
        ..CrdInfo::default()
    });
    let yaml = to_yaml(&definition.unwrap()).unwrap();
    check_golden(&Path::new(DIRECTORY).join("greetings.yaml"), &yaml)
}

#[test]
fn logic_is_testable_without_a_component() {
    let parent = json!({
        "apiVersion": "example.operator-host.dev/v1alpha1",
        "kind": "Greeting",
        "metadata": {"name": "a"},
        "spec": {"name": 7},
    });
    let failure = testing::call::<Hello>(testing::snapshot(&parent)).unwrap_err();
    assert_eq!(failure.reason, "InvalidParent");
    assert!(failure.message.starts_with("Greeting a: spec.name: "), "{}", failure.message);

    let mut valid = parent.clone();
    valid["spec"]["name"] = json!("you");
    let verdict = testing::call::<Hello>(testing::snapshot(&valid));
    assert!(matches!(verdict, Ok(Verdict::Decide(decision)) if decision.objects.len() == 1));
}

/// The tutorial shows these files in full; what it shows is what is built and run here.
#[test]
fn the_tutorial_shows_the_files_of_this_plugin() {
    let directory = Path::new(DIRECTORY);
    let tutorial = std::fs::read_to_string(directory.join("../../docs/first-plugin.md")).unwrap();
    for file in [
        "src/lib.rs",
        "scenarios/first-sight.yaml",
        "scenarios/first-sight.golden.yaml",
        "plugin.yaml",
        "sample.yaml",
    ] {
        let text = std::fs::read_to_string(directory.join(file)).unwrap();
        let fence = if file.starts_with("src/") { "rust" } else { "yaml" };
        let block = format!("```{fence}\n{text}```\n");
        assert!(tutorial.contains(&block), "docs/first-plugin.md does not show {file} as it is");
    }
}

#[test]
fn the_readme_shows_this_plugin() {
    let directory = Path::new(DIRECTORY);
    let readme = std::fs::read_to_string(directory.join("../../README.md")).unwrap();
    let text = std::fs::read_to_string(directory.join("src/lib.rs")).unwrap();
    assert!(
        readme.contains(&format!("```rust\n{text}```\n")),
        "README.md does not show src/lib.rs as it is"
    );
}

#[test]
fn the_plugin_is_as_short_as_the_tutorial_says() {
    let lines = include_str!("lib.rs").lines().count();
    assert!(lines < 60, "{lines}");
}

#[test]
fn the_grants_are_what_the_plugin_asks_for() {
    let text = std::fs::read_to_string(Path::new(DIRECTORY).join("plugin.yaml")).unwrap();
    let settings: host_core::grants::PluginSettings = serde_norway::from_str(&text).unwrap();
    let harness = operator_host_kit::Harness::load(Path::new(DIRECTORY)).unwrap();
    host_core::grants::Grants::intersect(harness.descriptor(), &settings.grants).unwrap();
}
