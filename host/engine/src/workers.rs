//! Runs whatever the queue gives out while this host leads, until it is told to stop.
//!
//! **Invariant:** a run that panics costs that run: it is counted, and its parent comes back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use host_core::queue::Done;
use host_kube::{Gate, Leadership};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::dispatch::{Record, Work};
use crate::outlook::Outlook;
use crate::reconcile::{self, Reconciler};

/// Why an engine has ended by itself. Another host may be acting already: the process should end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Another host may have the lease.
    #[error("the lease was lost; another host may be acting already")]
    Lease,
    /// There is nobody who stands for election.
    #[error("the election has ended by itself; this is a fault of the host")]
    Election,
}

/// Starts a run for every key the queue gives out while this host leads, until `stop`; gives those that still run.
pub(crate) async fn work(
    reconciler: &Arc<Reconciler>,
    gate: &Gate,
    mut leadership: watch::Receiver<Leadership>,
    stop: impl Future<Output = ()>,
) -> Result<JoinSet<()>, Lost> {
    let mut stop = std::pin::pin!(stop);
    let electing = gate.lease_end().is_some();
    let mut running = JoinSet::new();
    loop {
        let leading = match &*leadership.borrow_and_update() {
            Leadership::Lost => return Err(Lost::Lease),
            Leadership::Leading => true,
            Leadership::Standby { .. } => false,
        };
        tokio::select! {
            biased;
            () = &mut stop => break,
            changed = leadership.changed(), if electing => {
                changed.map_err(|_| Lost::Election)?;
            }
            Some(_) = running.join_next(), if !running.is_empty() => {}
            work = reconciler.outlook.dispatch.next(), if leading => {
                running.spawn(supervised(Arc::clone(reconciler), work));
            }
        }
    }
    tracing::info!(running = running.len(), "stopping; waiting for running reconciles");
    Ok(running)
}

/// Waits for runs to end, but not for ever.
pub(crate) async fn drain(mut running: JoinSet<()>, patience: Duration) {
    let all = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, all).await.is_err() {
        tracing::warn!(
            running = running.len(),
            "gave up waiting; the next start runs these parents again"
        );
    }
}

/// One run, whatever happens in it: a panic is counted and the key comes back.
async fn supervised(reconciler: Arc<Reconciler>, mut work: Work) {
    let Reconciler { outlook: Outlook { dispatch, .. }, revisions, voice, .. } = &*reconciler;
    let key = work.popped.key.clone();
    let Some(plugin) = revisions.of(&key) else {
        dispatch.done(&key, work.record, Done::Succeeded(None), None);
        return;
    };
    let name = plugin.name().to_owned();
    voice.meter.popped(&name, work.popped.waited);
    let started = Instant::now();
    let run = AssertUnwindSafe(reconcile::reconcile(&reconciler, &plugin, &mut work));
    let (record, done, last) = if let Ok((done, last)) = run.catch_unwind().await {
        (work.record, done, Some(last))
    } else {
        // What the run has left behind may be half made: it is not used again.
        voice.meter.panicked(&name);
        tracing::error!(plugin = name, parent = %key.key, "a run has panicked; this is a fault of the host");
        (Record::default(), Done::Failed, None)
    };
    voice.meter.finished(&name, started.elapsed());
    dispatch.done(&key, record, done, last);
}
