//! Who acts: this host alone, or the replica that holds the Lease. The others stand by warm: their caches and
//! plugins are ready, their queues fill, and nothing is taken from them (ADR 0008).

use host_kube::{Client, Elector, Gate, Leadership};
use tokio::sync::{oneshot, watch};

/// The Lease, in the host's namespace.
const LEASE: &str = "operator-host";

/// One host's part in an election, or in none.
pub(crate) struct Election {
    /// Open while this host may write.
    pub(crate) gate: Gate,
    /// Whether it leads.
    pub(crate) leadership: watch::Receiver<Leadership>,
    elector: Option<Elector>,
}

impl Election {
    /// `elect`: whether there may be other hosts. Without, this one leads from the start.
    pub(crate) fn new(
        elect: bool,
        client: &Client,
        namespace: &str,
        instance: &str,
        seed: u64,
    ) -> Self {
        if !elect {
            let (_, leadership) = watch::channel(Leadership::Leading);
            return Self { gate: Gate::open(), leadership, elector: None };
        }
        // Two processes of one machine are two candidates.
        let identity = format!("{instance}_{seed:016x}");
        let (elector, leadership) = Elector::new(client.clone(), namespace, LEASE, identity, seed);
        Self { gate: elector.gate(), leadership, elector: Some(elector) }
    }

    /// Stands for election. The future it gives releases the Lease: to be awaited when everything is written.
    pub(crate) fn start(self) -> impl Future<Output = ()> {
        let campaign = self.elector.map(|elector| {
            let (stop, stopped) = oneshot::channel::<()>();
            let running = tokio::spawn(elector.run(async {
                // Dropped or sent, it is over either way.
                let _ = stopped.await;
            }));
            (stop, running)
        });
        async {
            if let Some((stop, running)) = campaign {
                drop(stop);
                let _ = running.await;
            }
        }
    }
}
