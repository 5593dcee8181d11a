//! `explain`: asks a running host why a parent last ran, and prints the answer.

use anyhow::Context as _;
use host_engine::explain::Explanation;

use crate::command::ask::ask_about;
use crate::command::output::print;
use crate::flags::ExplainArgs;

/// Asks, and prints.
pub(crate) fn explain(args: ExplainArgs) -> anyhow::Result<()> {
    let ExplainArgs { parent, json } = args;
    let text = ask_about(&parent, "/debug/explain")?;
    if json {
        return print(&text);
    }
    let explanation: Explanation =
        serde_json::from_str(&text).context("the host is another version than this program")?;
    print(&explanation.to_string())
}
