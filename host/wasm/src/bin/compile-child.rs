//! The compiling child alone, for this crate's tests; the host's own program does the same in `operator-host compile`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    host_wasm::compile_child_main(&arguments)
}
