//! The differences of a plan, as people read them.

use host_core::divergence::{ParentDifference, PlanSummary};

/// Differences that are printed; all of them are in `plugin plan`'s `--json` and `--output`.
const PRINTED: usize = 50;

/// One line for each difference, and one for those left out.
pub(crate) fn lines(plan: &PlanSummary) -> Vec<String> {
    let line = |one: &ParentDifference| {
        let changes: Vec<_> = one.changes.iter().map(ToString::to_string).collect();
        let what = one.failure.clone().unwrap_or_else(|| changes.join(", "));
        format!("{}: {what}", one.parent)
    };
    let mut lines: Vec<String> = plan.differences.iter().take(PRINTED).map(line).collect();
    let all = usize::try_from(plan.changed + plan.failed).unwrap_or(usize::MAX);
    let left = all.saturating_sub(lines.len());
    if left > 0 {
        lines.push(format!("and {left} more"));
    }
    lines
}
