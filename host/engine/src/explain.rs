//! Why did a parent last run, what did it read and write, what is it waiting for?
//!
//! **Invariant:** names and outcomes only: no field of an object, no configuration, no Secret.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use host_core::ident::ObjectKey;
use host_core::queue::{Done, ParentKey};
use host_core::snapshot::ObjectResult;
use serde::{Deserialize, Serialize};

use crate::dispatch::ParentReport;
use crate::last_run::LastRun;
use crate::loaded_plugin::LoadedPlugin;
use crate::logic::Logic;
use crate::monitor::Monitor;
use crate::plugins::Plugins;
use crate::recording_file::RecordingFile;

/// Which parent is asked about.
#[derive(Debug, Deserialize)]
pub struct Question {
    /// Its kind, in any case.
    kind: String,
    /// Its namespace; empty for a cluster-scoped parent.
    #[serde(default)]
    namespace: String,
    /// Its name.
    name: String,
}

/// The answer, as JSON and as text.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    parent: String,
    plugin: String,
    /// Whether this host is the one that acts.
    leading: bool,
    last_run: Option<Run>,
    /// What the last run has read besides the parent and its children: a change to any of it wakes the parent.
    reads: Vec<String>,
    waiting: Waiting,
    /// Kinds the plugin needs that cannot be read now, and why.
    unobserved: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    at: String,
    took_ms: u128,
    because: String,
    by: String,
    result: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What was written or failed; what was kept is only counted.
    wrote: Vec<String>,
    kept: usize,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    /// What for.
    until: String,
    /// For how long, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_in_ms: Option<u128>,
    failures_in_a_row: u32,
    /// Whether the hot-loop breaker slows it down.
    hot: bool,
    /// Writes that the cache does not show yet.
    unseen_writes: Vec<String>,
}

/// Why there is nothing to explain.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// Nobody reconciles this kind.
    #[error("no plugin of this host reconciles {kind:?}; it has plugins for: {kinds}")]
    Kind {
        /// As it was asked for.
        kind: String,
        /// Those that are reconciled.
        kinds: String,
    },
    /// No such parent.
    #[error("{kind} {key} does not exist (wrong --namespace?)")]
    Parent {
        /// Its kind.
        kind: String,
        /// Namespace and name.
        key: ObjectKey,
    },
}

/// Which plugin runs a parent, and the parent's key.
fn find(plugins: &Plugins, question: &Question) -> Result<(Arc<LoadedPlugin>, ParentKey), Unknown> {
    let all = plugins.all();
    let of = |plugin: &LoadedPlugin| plugin.plugin.descriptor().parent.kind.clone();
    let plugin = all.iter().find(|plugin| of(plugin).eq_ignore_ascii_case(&question.kind));
    let plugin = plugin.ok_or_else(|| {
        let kinds: Vec<_> = all.iter().map(|plugin| of(plugin)).collect();
        Unknown::Kind { kind: question.kind.clone(), kinds: kinds.join(", ") }
    })?;
    let kind = &plugin.plugin.descriptor().parent;
    let key = ObjectKey::new(question.namespace.as_str(), question.name.as_str());
    // A cache that cannot be read knows nothing about the parent either way.
    if plugin.store(kind, &key.namespace).is_ok_and(|view| view.get(&key).is_none()) {
        return Err(Unknown::Parent { kind: kind.kind.clone(), key });
    }
    let key = ParentKey { lane: plugin.lane, key };
    // A canary may run it.
    let runs = plugins.get(key.lane, &key.key);
    Ok((runs.unwrap_or_else(|| Arc::clone(plugin)), key))
}

impl Monitor {
    /// What a parent's last runs saw and decided: whole objects.
    pub fn recorded(&self, question: &Question) -> Result<RecordingFile, Unknown> {
        let (plugin, key) = find(&self.plugins, question)?;
        let parent = format!("{} {}", plugin.plugin.descriptor().parent.kind, key.key);
        Ok(RecordingFile::new(parent, &self.recordings.of(&key)))
    }

    /// Why a parent last ran, what it read and wrote, what it waits for.
    pub fn explain(&self, question: &Question) -> Result<Explanation, Unknown> {
        let (plugin, key) = find(&self.plugins, question)?;
        let kind = &plugin.plugin.descriptor().parent;
        let report = self.dispatch.report_parent(&key);
        Ok(Explanation {
            parent: format!("{} {}", kind.kind, key.key),
            plugin: plugin.label(),
            leading: self.gate.is_open(),
            reads: report.reads.iter().map(ToString::to_string).collect(),
            waiting: waiting(&report),
            last_run: report.last.as_deref().map(run),
            unobserved: unobserved(&plugin),
        })
    }
}

fn run(last: &LastRun) -> Run {
    let objects = || last.outcome.iter().flat_map(|outcome| &outcome.objects);
    let wrote = objects().filter_map(|object| match &object.result {
        ObjectResult::Unchanged => None,
        ObjectResult::Applied => Some(format!("applied {}", object.id)),
        ObjectResult::Deleted => Some(format!("deleted {}", object.id)),
        ObjectResult::Failed(problem) => Some(format!("{}: {}", object.id, problem.message)),
    });
    let acted = last.outcome.iter().flat_map(|outcome| &outcome.actions).map(|action| {
        let provider = &action.action.provider;
        match &action.result {
            Ok(_) => format!("acted through {provider}"),
            Err(problem) => format!("{provider} action failed: {}", problem.message),
        }
    });
    let (reason, message) = last.failure.clone().unzip();
    Run {
        at: last.at.clone(),
        took_ms: last.took.as_millis(),
        because: last.cause.to_string(),
        by: last.plugin.clone(),
        result: last.result.to_owned(),
        reason,
        message,
        wrote: wrote.chain(acted).collect(),
        kept: objects().filter(|object| object.result == ObjectResult::Unchanged).count(),
    }
}

fn waiting(report: &ParentReport) -> Waiting {
    let queue = &report.queue;
    let until = if queue.running {
        "its run in progress to end".to_owned()
    } else if let Some(priority) = queue.ready {
        let why = report.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
        format!("a free worker, with priority {}{why}", priority.as_str())
    } else if queue.due.is_none() {
        "a change: nothing else is planned".to_owned()
    } else if queue.hot {
        "its hot-loop breaker; it runs once a second at most".to_owned()
    } else if queue.failures > 0 {
        "its back-off, or a change of its spec".to_owned()
    } else if let Some(cause) = &report.cause {
        format!("the cache to show what it needs; it runs because {cause}")
    } else if matches!(report.last.as_ref().map(|last| last.done), Some(Done::Stopped(_))) {
        "a change, or its slow heartbeat".to_owned()
    } else {
        "a change, or the time that the plugin has asked for".to_owned()
    };
    Waiting {
        until,
        due_in_ms: report.due_in.map(|due| due.as_millis()),
        failures_in_a_row: queue.failures,
        hot: queue.hot,
        unseen_writes: report.unseen.iter().map(ToString::to_string).collect(),
    }
}

fn unobserved(plugin: &Logic) -> Vec<String> {
    let stores = plugin.subscriptions.iter().map(|(_, subscription)| subscription.store());
    let trouble = stores.filter_map(|store| store.view().err());
    trouble.map(|error| error.to_string()).collect()
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        let mut line = |name: &str, text: &str| writeln!(out, "{name:<12}{text}");
        line("Parent", &self.parent)?;
        line("Plugin", &self.plugin)?;
        if !self.leading {
            line("Host", "standby: another replica acts; ask the leader")?;
        }
        if let Some(run) = &self.last_run {
            line("Last run", &format!("{}, {} ms, by {}", run.at, run.took_ms, run.by))?;
            line("  because", &run.because)?;
            let why = [&run.reason, &run.message].into_iter().flatten();
            let why = why.fold(run.result.clone(), |text, part| format!("{text}: {part}"));
            line("  result", &why)?;
            for wrote in &run.wrote {
                line("  wrote", wrote)?;
            }
            line("  kept", &format!("{} as they were", run.kept))?;
        } else {
            line("Last run", "none by this process")?;
        }
        for read in &self.reads {
            line("Woken by", read)?;
        }
        let Waiting { until, due_in_ms, failures_in_a_row, hot: _, unseen_writes } = &self.waiting;
        line("Waits for", until)?;
        if let Some(due) = due_in_ms {
            line(
                "  due in",
                &format!(
                    "{:.1} s",
                    Duration::from_millis(u64::try_from(*due).unwrap_or(u64::MAX)).as_secs_f64()
                ),
            )?;
        }
        if *failures_in_a_row > 0 {
            line("  failures", &format!("{failures_in_a_row} in a row"))?;
        }
        for write in unseen_writes {
            line("  not seen", write)?;
        }
        for kind in &self.unobserved {
            line("Unobserved", kind)?;
        }
        f.write_str(&out)
    }
}

#[cfg(test)]
mod tests {
    use host_core::queue::{KeyReport, Priority};

    use super::*;

    fn report(queue: KeyReport) -> ParentReport {
        ParentReport { queue, due_in: None, cause: None, reads: vec![], unseen: vec![], last: None }
    }

    #[test]
    fn says_what_a_parent_waits_for() {
        let due = Some(Duration::from_secs(9));
        let table = [
            (KeyReport::default(), "a change: nothing else"),
            (KeyReport { running: true, ..KeyReport::default() }, "its run in progress"),
            (KeyReport { ready: Some(Priority::User), ..KeyReport::default() }, "a free worker"),
            (KeyReport { due, failures: 3, ..KeyReport::default() }, "its back-off"),
            (KeyReport { due, hot: true, ..KeyReport::default() }, "its hot-loop breaker"),
            (KeyReport { due, ..KeyReport::default() }, "the time that the plugin"),
        ];
        for (queue, expected) in table {
            let said = waiting(&report(queue)).until;
            assert!(said.contains(expected), "{said:?} for {queue:?}");
        }
    }
}
