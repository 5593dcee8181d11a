//! `plugin status`: which revision acts, how far the newest one is, and why.

use std::fmt::Write as _;

use host_core::ident::ObjectKey;

use crate::command::cluster::{Condition, Found, Object, block_on};
use crate::command::differences;
use crate::command::output::print;
use crate::flags::PluginArgs;

/// Prints it.
pub(crate) fn status(args: PluginArgs) -> anyhow::Result<()> {
    let found = block_on(Found::find(args))?;
    print(&described(&found.id.key, &found.object)?)
}

fn described(key: &ObjectKey, object: &Object) -> Result<String, std::fmt::Error> {
    let Object { spec, status, conditions } = object;
    let mut out = String::new();
    let mut line = |name: &str, text: &str| writeln!(out, "{name:<11}{text}");
    line("Plugin", &key.to_string())?;
    match &status.active {
        Some(active) => line(
            "Active",
            &format!(
                "{} {} since {}, {}",
                active.revision, active.version, active.since, active.digest
            ),
        )?,
        None => line("Active", "none")?,
    }
    line("Parents", &status.parents.to_string())?;
    line(
        "Policy",
        &format!("{:?}{}", spec.rollout.policy, if spec.paused { ", paused" } else { "" }),
    )?;
    if let Some(revision) = spec.revision {
        line(
            "Pinned",
            &format!("to revision {revision}, whatever the source holds; `resume` ends that"),
        )?;
    }
    if let Some(candidate) = &status.candidate {
        let revision = candidate.revision.map_or_else(|| "-".to_owned(), |one| one.to_string());
        line(
            "Candidate",
            &format!(
                "{revision} {}, {}: {}",
                candidate.version,
                candidate.stage.as_str(),
                candidate.reason
            ),
        )?;
        line("", &candidate.message)?;
    }
    if let Some(plan) = &status.plan {
        line("Plan", &plan.to_string())?;
        for difference in differences::lines(plan) {
            line("", &difference)?;
        }
    }
    for taken in &status.quarantined {
        line("Taken back", &format!("{}: {}", taken.revision, taken.reason))?;
    }
    for Condition { kind, status, reason, message } in conditions {
        line("Condition", format!("{kind}={status} {reason} {message}").trim_end())?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_host_writes() {
        let text = r#"{"spec":{"rollout":{"policy":"Manual"}},"status":{"parents":2,"observedGeneration":1,
            "conditions":[{"type":"Ready","status":"True","reason":"Active"}]}}"#;
        let object = Object::read(text).unwrap();
        let said = described(&ObjectKey::new("n", "p"), &object).unwrap();
        assert!(said.contains("Policy     Manual") && said.contains("Ready=True Active"), "{said}");
        assert!(Object::read("{}").is_ok(), "without a status");
    }
}
