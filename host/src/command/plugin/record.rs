//! `plugin record`: what a parent's last runs saw and decided, from a running host (`/debug/recordings`).

use anyhow::Context as _;

use crate::command::ask::ask_about;
use crate::command::output::print;
use crate::flags::RecordArgs;

/// Takes a recording, as it is.
pub(crate) fn record(args: RecordArgs) -> anyhow::Result<()> {
    let RecordArgs { parent, output } = args;
    let text = ask_about(&parent, "/debug/recordings")?;
    match output {
        Some(file) => {
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
        }
        None => print(&text),
    }
}
