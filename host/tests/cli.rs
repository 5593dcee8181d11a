//! The command as it is built. That this test exists also makes `cargo test` build the binary, which the tests on a
//! real control plane run.

use std::process::Command;

#[test]
fn help_names_every_command() {
    let output = Command::new(env!("CARGO_BIN_EXE_operator-host")).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for command in ["run", "crds", "explain", "plugin", "completions"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is missing in\n{help}");
    }
    assert!(!help.contains("compile"), "the host starts that one itself");
}

#[test]
fn every_setting_of_run_can_be_given_as_a_variable() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_operator-host")).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let options = help.matches("\n      --").count();
    assert!(options > 8, "{help}");
    // The collector's address has the name that OpenTelemetry gives it everywhere.
    let variables = ["[env: OPERATOR_HOST_", "[env: OTEL_"].map(|name| help.matches(name).count());
    assert_eq!(variables.iter().sum::<usize>(), options, "{help}");
}
