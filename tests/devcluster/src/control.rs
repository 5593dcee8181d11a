//! Talking to a running `devcluster up`: one JSON line each way on a Unix socket in its state
//! directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::DevCluster;

/// A request is a name or two.
const LINE_BYTES_MAX: u64 = 4_096;
const ANSWER_DEADLINE: Duration = Duration::from_mins(1);

/// What can be asked of a running cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Tear down.
    Down,
    /// Signal a pod's containers, or one of them.
    KillPod {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        pod: String,
        /// All containers without it.
        container: Option<String>,
        /// Signal number.
        signal: i32,
    },
    /// Kill a node.
    KillNode {
        /// Name of the node.
        name: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    error: Option<String>,
}

/// Where `devcluster up` keeps its state unless told otherwise.
pub fn default_state_dir() -> PathBuf {
    crate::state::temporary_root().join("up")
}

fn socket(state: &Path) -> PathBuf {
    state.join("control.sock")
}

/// Answers requests until one of them is [`Request::Down`].
pub async fn serve(cluster: &DevCluster) -> Result<()> {
    let path = socket(cluster.state_dir());
    let listener =
        UnixListener::bind(&path).with_context(|| format!("listening on {}", path.display()))?;
    loop {
        let (stream, _) = listener.accept().await.context("accepting a request")?;
        let exchange = answer(cluster, stream);
        if let Ok(Ok(Request::Down)) = tokio::time::timeout(ANSWER_DEADLINE, exchange).await {
            return Ok(());
        }
    }
}

async fn answer(cluster: &DevCluster, stream: UnixStream) -> Result<Request> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(LINE_BYTES_MAX)).read_line(&mut line).await.context("reading")?;
    let request: Result<Request> = serde_json::from_str(&line).context("not a request");
    let outcome = match &request {
        Ok(request) => carry_out(cluster, request).await,
        Err(error) => Err(anyhow::anyhow!("{error:#}")),
    };
    let answer = Answer { error: outcome.err().map(|error| format!("{error:#}")) };
    let mut text = serde_json::to_string(&answer).context("writing")?;
    text.push('\n');
    write.write_all(text.as_bytes()).await.context("answering")?;
    request
}

async fn carry_out(cluster: &DevCluster, request: &Request) -> Result<()> {
    match request {
        Request::Down => Ok(()),
        Request::KillPod { namespace, pod, container, signal } => {
            let signal = Signal::from_named_raw(*signal).context("not a signal")?;
            match container {
                Some(container) => cluster.kill_container(namespace, pod, container, signal),
                None => cluster.kill_pod(namespace, pod, signal),
            }
        }
        Request::KillNode { name } => cluster.kill_node(name).await,
    }
}

/// Asks the cluster that runs in `state`.
pub async fn ask(state: &Path, request: &Request) -> Result<()> {
    let stream = UnixStream::connect(socket(state))
        .await
        .with_context(|| format!("no cluster runs in {}", state.display()))?;
    let (read, mut write) = stream.into_split();
    let mut line = serde_json::to_string(request).context("writing the request")?;
    line.push('\n');
    write.write_all(line.as_bytes()).await.context("sending the request")?;
    let mut text = String::new();
    BufReader::new(read.take(LINE_BYTES_MAX)).read_line(&mut text).await.context("reading")?;
    let answer: Answer = serde_json::from_str(&text).context("no answer")?;
    match answer.error {
        Some(error) => bail!(error),
        None => Ok(()),
    }
}
