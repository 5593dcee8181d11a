//! `plugin status|plan|approve|rollback|pause|resume|history`: how an operator takes part in a rollout.
//!
//! **Invariant:** a command changes the `Plugin`'s spec and nothing else; the host does the rest, and its status tells.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use host_core::divergence::PlanSummary;
use host_core::ident::{ObjectId, ObjectKey};
use host_core::plugin::{self, PluginSpec, PluginStatus, Revision, Stage};
use host_kube::{Client, ConnectOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::{ClusterArgs, PlanArgs, PluginArgs};
use crate::rollout::PlanReport;

/// Who has changed a spec, in its managed fields.
const MANAGER: &str = "operator-host-cli";

/// What `plan` exits with when something would be deleted or recreated.
const EXIT_DESTRUCTIVE: u8 = 2;

/// Differences that `plan` prints; all of them are in `--json` and `--output`.
const PRINTED: usize = 50;

/// How long the host may take to notice a change.
const SEEN_DEADLINE: Duration = Duration::from_secs(15);

/// How often it is looked whether it has.
const SEEN_POLL: Duration = Duration::from_millis(100);

/// A `Plugin` of the cluster.
struct Found {
    client: Client,
    id: ObjectId,
    object: Object,
}

/// Its spec and status; conditions are beside the status, as the host adds them when it writes.
struct Object {
    spec: PluginSpec,
    status: PluginStatus,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    #[serde(default)]
    message: String,
}

impl Object {
    fn read(json: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(default)]
            spec: PluginSpec,
            #[serde(default)]
            status: Value,
        }
        let Whole { spec, status } = serde_json::from_str(json)?;
        let conditions = status.get("conditions").cloned().unwrap_or_else(|| json!([]));
        let status = if status.is_null() { json!({}) } else { status };
        Ok(Self {
            spec,
            status: serde_json::from_value(status)?,
            conditions: serde_json::from_value(conditions)?,
        })
    }
}

impl Found {
    async fn find(args: PluginArgs) -> anyhow::Result<Self> {
        let PluginArgs { name, namespace, cluster: ClusterArgs { kubeconfig, context } } = args;
        let client = host_kube::connect(ConnectOptions { kubeconfig, context }).await?;
        let id = ObjectId { kind: plugin::kind(), key: ObjectKey::new(namespace, name) };
        let found = client.get(&id).await?;
        let found = found.with_context(|| {
            format!("{id} does not exist; `kubectl get plugins -A` lists those that do")
        })?;
        let object = Object::read(&found.json).with_context(|| format!("{id} cannot be read"))?;
        Ok(Self { client, id, object })
    }

    /// Sets some fields; gives the generation that has them.
    async fn set(&self, spec: Value) -> anyhow::Result<i64> {
        let changed = self.client.merge(&self.id, MANAGER, &json!({ "spec": spec })).await?;
        Ok(changed.generation)
    }

    /// Waits until the host has seen a generation.
    async fn seen(&self, generation: i64) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Whole {
            status: Seen,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Seen {
            observed_generation: i64,
        }
        let wait = async {
            loop {
                let object = self.client.get(&self.id).await?;
                let object = object.with_context(|| format!("{} is gone", self.id))?;
                let seen = serde_json::from_str::<Whole>(&object.json);
                if seen.is_ok_and(|seen| seen.status.observed_generation >= generation) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(SEEN_POLL).await;
            }
        };
        tokio::time::timeout(SEEN_DEADLINE, wait).await.unwrap_or_else(|_| {
            bail!("the host has not noticed a change within {SEEN_DEADLINE:?}; is it running?")
        })
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(work)
}

/// Prints lines to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end()).context("writing to standard output")
}

/// `plugin status`.
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
        for difference in lines(plan, PRINTED) {
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

/// One line for each difference, and one for those left out.
fn lines(plan: &PlanSummary, most: usize) -> Vec<String> {
    let line = |one: &host_core::divergence::ParentDifference| {
        let changes: Vec<_> = one.changes.iter().map(ToString::to_string).collect();
        let what = one.failure.clone().unwrap_or_else(|| changes.join(", "));
        format!("{}: {what}", one.parent)
    };
    let mut lines: Vec<String> = plan.differences.iter().take(most).map(line).collect();
    let all = usize::try_from(plan.changed + plan.failed).unwrap_or(usize::MAX);
    let left = all.saturating_sub(lines.len());
    if left > 0 {
        lines.push(format!("and {left} more"));
    }
    lines
}

/// `plugin plan`.
pub(crate) fn plan(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let PlanArgs { name, host, json, output } = args;
    let text = crate::ask::ask(host.host, "/debug/plan", &[("plugin", &name)])?;
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
        let lines = lines(plan, PRINTED);
        print(&lines.into_iter().fold(head, |text, line| format!("{text}\n  {line}")))?;
    }
    let destructive = report.plan.is_destructive();
    Ok(if destructive { ExitCode::from(EXIT_DESTRUCTIVE) } else { ExitCode::SUCCESS })
}

/// `plugin approve`.
pub(crate) fn approve(args: PluginArgs, revision: Option<Revision>) -> anyhow::Result<()> {
    block_on(async {
        let found = Found::find(args).await?;
        let candidate = found.object.status.candidate.as_ref();
        let held = candidate.filter(|candidate| {
            matches!(candidate.stage, Stage::Held | Stage::Shadowing | Stage::Canary)
        });
        let Some(revision) = revision.or_else(|| held?.revision) else {
            match candidate {
                Some(candidate) => bail!(
                    "no revision waits for approval: the newest one is {} ({}): {}",
                    candidate.stage.as_str(),
                    candidate.reason,
                    candidate.message
                ),
                None => bail!("no revision waits for approval: the newest one acts"),
            }
        };
        if found.object.spec.approved == Some(revision) {
            // It was taken back since: the host has to see that this is another approval.
            let generation = found.set(json!({ "approved": null })).await?;
            found.seen(generation).await?;
        }
        found.set(json!({ "approved": revision })).await?;
        print(&format!("revision {revision} of {} is approved", found.id))
    })
}

/// `plugin rollback`.
pub(crate) fn rollback(args: PluginArgs, to: Option<Revision>) -> anyhow::Result<()> {
    block_on(async {
        let found = Found::find(args).await?;
        let revision = to
            .or_else(|| before(&found.object.status))
            .context("no earlier revision is known; name one with --to, `history` lists them")?;
        found.set(json!({ "revision": revision })).await?;
        print(&format!(
            "{} goes back to revision {revision} and stays there; `operator-host plugin resume {}` follows the source again",
            found.id, found.id.key.name
        ))
    })
}

/// The revision that acted before the one that acts, and was not taken back.
fn before(status: &PluginStatus) -> Option<Revision> {
    let active = status.active.as_ref()?.revision;
    let bad = |revision: Revision| status.quarantined.iter().any(|one| one.revision == revision);
    let mut earlier = status.history.iter().map(|entry| entry.revision);
    earlier.find(|revision| *revision != active && !bad(*revision))
}

/// `plugin pause` and `plugin resume`.
pub(crate) fn pause(args: PluginArgs, paused: bool) -> anyhow::Result<()> {
    block_on(async {
        let found = Found::find(args).await?;
        let spec = if paused {
            json!({ "paused": true })
        } else {
            json!({ "paused": null, "revision": null })
        };
        found.set(spec).await?;
        let now = if paused { "is paused" } else { "follows its source" };
        print(&format!("{} {now}", found.id))
    })
}

/// `plugin history`.
pub(crate) fn history(args: PluginArgs) -> anyhow::Result<()> {
    let found = block_on(Found::find(args))?;
    let mut out =
        format!("{:<14}{:<10}{:<22}{:<22}{}", "REVISION", "VERSION", "DIGEST", "PROMOTED", "ENDED");
    for entry in &found.object.status.history {
        let digest: String = entry.digest.chars().take("sha256:".len() + 12).collect();
        let ended = if entry.ended.is_empty() { "acts" } else { &entry.ended };
        write!(
            out,
            "\n{:<14}{:<10}{digest:<22}{:<22}{ended}",
            entry.revision.to_string(),
            entry.version,
            entry.promoted
        )?;
    }
    print(&out)
}

#[cfg(test)]
mod tests {
    use host_core::plugin::{HistoryEntry, Quarantined, RevisionStatus};

    use super::*;

    fn entry(revision: &str) -> HistoryEntry {
        HistoryEntry {
            revision: revision.parse().unwrap(),
            digest: "sha256:0".into(),
            version: "1".into(),
            promoted: "t".into(),
            ended: String::new(),
        }
    }

    #[test]
    fn goes_back_to_what_acted_before_and_was_good() {
        let (now, bad, good) = ("00000000000a", "00000000000b", "00000000000c");
        let status = PluginStatus {
            active: Some(RevisionStatus {
                revision: now.parse().unwrap(),
                digest: String::new(),
                version: String::new(),
                since: String::new(),
                on_probation: false,
            }),
            history: [now, bad, now, good].map(entry).to_vec(),
            quarantined: vec![Quarantined {
                revision: bad.parse().unwrap(),
                reason: "trap".into(),
                approval_spent: false,
            }],
            ..PluginStatus::default()
        };
        assert_eq!(before(&status), good.parse().ok());
        assert_eq!(before(&PluginStatus::default()), None);
    }

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
