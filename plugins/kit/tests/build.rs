//! Builds the tutorial's plugin for real, as `cargo plugin build` and the tests of plugins do.

use std::path::Path;

use operator_host_kit::{BuildOptions, build, facts};

fn hello() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hello")
}

#[test]
fn a_component_imports_the_log_alone_and_carries_its_crds() {
    let built = build(&hello(), &BuildOptions::default()).unwrap();
    let facts = facts(&built.bytes).unwrap();
    assert_eq!(facts.imports, ["operator-host:plugin/log@1.0.0"]);
    assert_eq!(facts.exports, ["operator-host:plugin/reconciler@1.0.0"]);
    let crds = facts.crds.unwrap();
    assert!(crds.starts_with("---\napiVersion: apiextensions.k8s.io/v1\n"), "{crds}");
    assert_eq!(std::fs::read(&built.path).unwrap(), built.bytes);
}

#[test]
fn a_build_id_changes_the_component_and_nothing_else_does() {
    let tagged = BuildOptions { build_id: Some("two".to_owned()), progress: false };
    let plain = build(&hello(), &BuildOptions::default()).unwrap();
    let two = build(&hello(), &tagged).unwrap();
    let again = build(&hello(), &BuildOptions::default()).unwrap();
    assert_eq!(plain.bytes, again.bytes);
    assert_ne!(plain.bytes, two.bytes);
    assert_ne!(plain.path, two.path);
    assert_eq!(facts(&two.bytes).unwrap().build_id.as_deref(), Some("two"));
}

#[test]
fn no_path_of_this_machine_is_in_a_component() {
    let built = build(&hello(), &BuildOptions::default()).unwrap();
    let text = String::from_utf8_lossy(&built.bytes);
    let home = std::env::home_dir().unwrap();
    for path in [Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap(), &home] {
        let path = path.display().to_string();
        assert!(!text.contains(&format!("{path}/")), "{path}");
    }
}
