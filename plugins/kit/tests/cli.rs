//! The command as it is built. That this test exists also makes `cargo test` build the binary, which the tests on a
//! real control plane run.

use std::process::Command;

#[test]
fn a_folder_without_a_plugin_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_operator-host-kit"))
        .args(["build", "/nonexistent"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/nonexistent"), "{said}");
}
