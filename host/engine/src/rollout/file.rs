//! One plugin from a file, for development: what can be loaded acts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::board::Board;
use super::cutover::Cutover;
use super::load::{self, Loader};
use super::source::Source;
use super::watch;
use crate::error::chain;
use crate::voice::Voice;

/// How often a development file is looked at.
const FILE_POLL: Duration = Duration::from_millis(500);

/// Loads a file, and again whenever it changes, for ever.
pub(super) async fn watch(
    loader: &Arc<Loader>,
    cutover: &Cutover,
    board: &Board,
    voice: &Voice,
    file: &Path,
    settings: Option<&Path>,
) {
    let (mut last, mut failed) = (None, false);
    loop {
        match Source::from_file(file, settings) {
            Ok(source) if last != Some(source.revision) => {
                last = Some(source.revision);
                reload(loader, cutover, voice, source).await;
            }
            Ok(_) => {}
            Err(error) if last.is_none() && !failed => {
                failed = true;
                tracing::error!(
                    reason = error.reason(),
                    "the plugin was not loaded: {}",
                    chain(&error)
                );
            }
            // A file in the middle of being written: the next look will see it whole.
            Err(error) => tracing::debug!("{}", chain(&error)),
        }
        board.has_read();
        tokio::time::sleep(FILE_POLL).await;
    }
}

/// For development: what can be loaded acts.
async fn reload(loader: &Arc<Loader>, cutover: &Cutover, voice: &Voice, source: Source) {
    let (name, started) = (source.name.clone(), tokio::time::Instant::now());
    let loaded = load::load(loader, &Arc::new(source)).await;
    match loaded.and_then(|plugin| cutover.promote(&plugin, Duration::ZERO, None).map(|()| plugin))
    {
        Ok(plugin) => {
            tracing::info!(plugin = name, digest = %plugin.plugin.id().digest, took = ?started.elapsed(), "{} is active", plugin.label());
            voice.meter.loaded(&name, "success");
            watch::start(&plugin.logic);
        }
        Err(error) => {
            tracing::error!(
                plugin = name,
                reason = error.reason(),
                "the plugin was not loaded: {}; what was active keeps running",
                chain(&error)
            );
            voice.meter.loaded(&name, "refused");
        }
    }
}
