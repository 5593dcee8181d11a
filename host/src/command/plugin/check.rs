//! `plugin check`: contract, imports, size, and determinism on recorded snapshots, without a cluster.

use std::process::ExitCode;

use host_core::grants::Grants;
use host_wasm::SoundnessCheck;

use crate::command::output::print;
use crate::command::recording::decide;
use crate::command::{file, recording};
use crate::flags::CheckArgs;

/// Exits with 1 if something is wrong.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs { file, recordings } = args;
    let plugin = file::load(file)?;
    let facts = plugin.facts();
    let mut lines = vec![
        format!("ok    contract     {}", facts.contract),
        format!("ok    imports      {}", facts.imports.join(", ")),
        format!("ok    size         {} bytes, {} functions", facts.size_bytes, facts.functions),
    ];
    let grants = Grants::as_asked(plugin.descriptor());
    let mut wrong = grants.is_err();
    lines.push(match grants {
        Ok(_) => format!(
            "ok    descriptor   {} {}",
            plugin.descriptor().name,
            plugin.descriptor().version
        ),
        Err(error) => format!("WRONG descriptor   {error}"),
    });
    for recording in recordings {
        let recording = recording::read(recording)?;
        for (number, run) in recording.runs.iter().enumerate() {
            let about = format!("{} run {}", recording.parent, number + 1);
            let verdict = match decide(&plugin, &run.snapshot) {
                Ok(decision) => match plugin.check_soundness(&run.snapshot, &decision) {
                    SoundnessCheck::Sound => Ok("deterministic, independent of order, content"),
                    SoundnessCheck::Unsound(why) => Err(why),
                },
                Err(why) => Err(why),
            };
            wrong |= verdict.is_err();
            lines.push(match verdict {
                Ok(said) => format!("ok    snapshot     {about}: {said}"),
                Err(why) => format!("WRONG snapshot     {about}: {why}"),
            });
        }
    }
    if recordings.is_empty() {
        lines.push("-     snapshot     none given: determinism was not checked; `plugin record` makes some".to_owned());
    }
    print(&lines.join("\n"))?;
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
