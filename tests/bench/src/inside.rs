//! What the host says of itself: how often it ran, and how long its plugin took. It explains the figures taken from
//! outside; no ratio rests on it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// It answers from memory.
const DEADLINE: Duration = Duration::from_secs(10);

/// Counters of the host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Inside {
    /// Runs of parents.
    pub(crate) runs: f64,
    /// Calls into the plugin.
    pub(crate) calls: f64,
    /// What the calls took, the way to their thread and back included, seconds.
    pub(crate) calls_s: f64,
}

impl Inside {
    /// Since an earlier look.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            runs: self.runs - before.runs,
            calls: self.calls - before.calls,
            calls_s: self.calls_s - before.calls_s,
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let microseconds = if self.calls > 0.0 { self.calls_s / self.calls * 1e6 } else { 0.0 };
        write!(f, "{} runs, {} calls of {microseconds:.0} µs", self.runs, self.calls)
    }
}

/// Asks a host.
pub(crate) async fn of(address: SocketAddr) -> anyhow::Result<Inside> {
    Ok(read(&get(address, "/metrics").await?))
}

/// What a host answers, the head included.
pub(crate) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match tokio::time::timeout(DEADLINE, ask).await {
        Ok(answer) => answer.with_context(|| format!("the host does not serve {path}")),
        Err(_) => bail!("the host does not answer on {address}"),
    }
}

fn read(metrics: &str) -> Inside {
    let sum = |name: &str| -> f64 {
        let samples = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        samples.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    Inside {
        runs: sum("controller_runtime_reconcile_total"),
        calls: sum("operator_host_plugin_call_seconds_count"),
        calls_s: sum("operator_host_plugin_call_seconds_sum"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_what_belongs_together() {
        let metrics = "\
controller_runtime_reconcile_total{controller=\"a\",result=\"success\"} 3
controller_runtime_reconcile_total{controller=\"a\",result=\"gone\"} 1
controller_runtime_reconcile_total_of_others{controller=\"a\"} 50
operator_host_plugin_call_seconds_count{controller=\"a\"} 8
operator_host_plugin_call_seconds_sum{controller=\"a\"} 0.25
";
        let inside = read(metrics);
        assert_eq!(inside, Inside { runs: 4.0, calls: 8.0, calls_s: 0.25 });
        assert_eq!(inside.since(&inside), Inside { runs: 0.0, calls: 0.0, calls_s: 0.0 });
    }
}
