//! `completions`: what a shell needs to complete the command line.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::flags::Cli;

/// Prints the script of a shell.
pub(crate) fn completions(shell: Shell) {
    let mut command = Cli::command();
    clap_complete::generate(shell, &mut command, "operator-host", &mut std::io::stdout());
}
