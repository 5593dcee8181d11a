//! `plugin plan`: what the newest revision would do to every parent.

use std::process::ExitCode;

use anyhow::Context as _;
use host_engine::plan_report::PlanReport;

use crate::command::ask::ask;
use crate::command::differences;
use crate::command::output::print;
use crate::flags::PlanArgs;

/// What `plan` exits with when something would be deleted or recreated.
const EXIT_DESTRUCTIVE: u8 = 2;

/// Asks a running host, and prints.
pub(crate) fn plan(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let PlanArgs { name, host, json, output } = args;
    let text = ask(host.host, "/debug/plan", &[("plugin", &name)])?;
    let report: PlanReport =
        serde_json::from_str(&text).context("the host is another version than this program")?;
    if let Some(file) = output {
        std::fs::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if json {
        print(&text)?;
    } else {
        let PlanReport { plugin, active, candidate, took_ms, plan } = &report;
        let head = format!(
            "Plugin     {plugin}\nActive     {active}\nCandidate  {candidate}\nPlan       {plan} (in {took_ms} ms)"
        );
        let lines = differences::lines(plan);
        print(&lines.into_iter().fold(head, |text, line| format!("{text}\n  {line}")))?;
    }
    let destructive = report.plan.is_destructive();
    Ok(if destructive { ExitCode::from(EXIT_DESTRUCTIVE) } else { ExitCode::SUCCESS })
}
