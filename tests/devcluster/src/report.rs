//! Progress lines on stderr: what is being done, for the person who waits.

/// Says what is going on, unless told to be quiet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    quiet: bool,
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    #[allow(clippy::print_stderr, reason = "progress for a person at a terminal or in a CI log")]
    pub(crate) fn say(self, text: &str) {
        if !self.quiet {
            eprintln!("devcluster: {text}");
        }
    }
}

/// A warning that is worth a line even when quiet: something will not be cleaned up or done.
#[allow(clippy::print_stderr, reason = "there is no logger in a test tool; stderr is the log")]
pub(crate) fn warn(text: &str) {
    eprintln!("devcluster: warning: {text}");
}
