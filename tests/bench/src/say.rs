//! Progress, for a person at a terminal.

/// A new step.
#[expect(clippy::print_stderr, reason = "progress for a person at a terminal")]
pub(crate) fn step(text: &str) {
    eprintln!("\n==> {text}");
}

/// Something that was found out.
#[expect(clippy::print_stderr, reason = "progress for a person at a terminal")]
pub(crate) fn fact(text: &str) {
    for line in text.trim_end().lines() {
        eprintln!("    {line}");
    }
}
