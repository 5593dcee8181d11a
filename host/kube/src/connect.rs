//! From a kubeconfig or a pod's service account to a client, with errors that say what to do.

use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde::Deserialize;

use crate::client::Client;
use crate::error::{ApiError, ApiErrorKind, chain};
use crate::purpose::Purpose;

/// How long the API server may take to accept a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// How long the API server may take to say its version: a connection, a TLS handshake, one request.
const PING_DEADLINE: Duration = Duration::from_secs(10);

/// Which cluster to talk to.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// A kubeconfig file. None: `KUBECONFIG`, then `~/.kube/config`, then the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig. None: its current one.
    pub context: Option<String>,
}

/// Why there is no connection, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file that was named cannot be read.
    #[error("the kubeconfig {path} cannot be read; give the path of an existing file")]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The context that was named does not exist.
    #[error("the kubeconfig has no context {context}; it has: {available}")]
    Context {
        /// The missing context.
        context: String,
        /// What could be chosen instead.
        available: String,
    },
    /// The kubeconfig makes no sense.
    #[error("the kubeconfig cannot be used: {problem}")]
    Unusable {
        /// What is wrong with it.
        problem: String,
    },
    /// Neither a kubeconfig nor a pod.
    #[error(
        "there is no cluster to talk to: no kubeconfig ({kubeconfig}) and no pod's service account ({in_cluster}); \
         set KUBECONFIG, name a kubeconfig, or run in a pod"
    )]
    Nowhere {
        /// Why there is no kubeconfig.
        kubeconfig: String,
        /// Why there is no service account.
        in_cluster: String,
    },
    /// Nobody answers.
    #[error(
        "the API server at {address} cannot be reached ({problem}); is it running, and is the address right?"
    )]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What happened instead.
        problem: String,
    },
    /// Somebody answers, but not as hoped.
    #[error(
        "the API server at {address} refuses to say its version ({problem}); are the credentials valid?"
    )]
    Refused {
        /// Where it is.
        address: String,
        /// What it said.
        problem: String,
    },
}

/// Sets up a client. Reads files, sends nothing: [`Client::ping`] does.
pub async fn connect(options: ConnectOptions) -> Result<Client, ConnectError> {
    let ConnectOptions { kubeconfig, context } = options;
    let mut config = match (kubeconfig, context) {
        (None, None) => infer().await?,
        (path, context) => from_file(path, context).await?,
    };
    config.connect_timeout = Some(CONNECT_DEADLINE);
    let address = config.cluster_url.to_string();
    let kube = kube::Client::try_from(config)
        .map_err(|error| ConnectError::Unusable { problem: chain(&error) })?;
    Ok(Client::from_kube(kube, address.trim_end_matches('/')))
}

async fn infer() -> Result<Config, ConnectError> {
    // An existing but broken kubeconfig must not silently become the pod's account.
    match Config::from_kubeconfig(&KubeConfigOptions::default()).await {
        Ok(config) => Ok(config),
        Err(
            absent @ (KubeconfigError::FindPath
            | KubeconfigError::ReadConfig(..)
            | KubeconfigError::CurrentContextNotSet),
        ) => Config::incluster().map_err(|error| ConnectError::Nowhere {
            kubeconfig: chain(&absent),
            in_cluster: chain(&error),
        }),
        Err(broken) => Err(ConnectError::Unusable { problem: chain(&broken) }),
    }
}

async fn from_file(path: Option<PathBuf>, context: Option<String>) -> Result<Config, ConnectError> {
    let unusable = |error: KubeconfigError| {
        if let KubeconfigError::ReadConfig(source, path) = error {
            return ConnectError::Kubeconfig { path, source };
        }
        ConnectError::Unusable { problem: chain(&error) }
    };
    let kubeconfig = match path {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    }
    .map_err(unusable)?;
    if let Some(context) = &context
        && !kubeconfig.contexts.iter().any(|known| known.name == *context)
    {
        let names: Vec<_> = kubeconfig.contexts.iter().map(|known| known.name.as_str()).collect();
        let available = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(ConnectError::Context { context: context.clone(), available });
    }
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "gitVersion")]
    git_version: String,
}

impl Client {
    /// Asks the API server for its version, `v1.36.3`; takes 10 s at most.
    pub async fn ping(&self) -> Result<String, ConnectError> {
        let purpose = Purpose::new("ask for the version");
        let address = self.address().to_owned();
        let asked: Result<Version, ApiError> = async {
            let request = Request::get("/version").body(Vec::new()).map_err(|error| {
                ApiError::new(&purpose, ApiErrorKind::Invalid, &error.to_string())
            })?;
            let text = self.text(&purpose, request, PING_DEADLINE).await?;
            serde_json::from_str(&text).map_err(|error| ApiError::malformed(&purpose, &error))
        }
        .await;
        asked.map(|version| version.git_version).map_err(|error| {
            let problem = error.message().to_owned();
            if error.kind() == ApiErrorKind::Unavailable {
                ConnectError::Unreachable { address, problem }
            } else {
                ConnectError::Refused { address, problem }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Answer};

    const KUBECONFIG: &str = r"
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:6443'}}]
users: [{name: u, user: {}}]
contexts:
- {name: one, context: {cluster: c, user: u}}
- {name: two, context: {cluster: absent, user: u}}
";

    async fn refusal(kubeconfig: &str, context: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, kubeconfig).unwrap();
        let options =
            ConnectOptions { kubeconfig: Some(path), context: context.map(ToOwned::to_owned) };
        connect(options).await.err().unwrap().to_string()
    }

    #[tokio::test]
    async fn uses_the_kubeconfig_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, KUBECONFIG).unwrap();
        let options = ConnectOptions { kubeconfig: Some(path), context: None };
        assert_eq!(connect(options).await.unwrap().address(), "http://127.0.0.1:6443");
    }

    #[tokio::test]
    async fn says_what_is_wrong_with_a_kubeconfig() {
        let path = PathBuf::from("/absent/config");
        let options = ConnectOptions { kubeconfig: Some(path), context: None };
        let absent = connect(options).await.err().unwrap().to_string();
        assert_eq!(
            absent,
            "the kubeconfig /absent/config cannot be read; give the path of an existing file"
        );
        let context = refusal(KUBECONFIG, Some("three")).await;
        assert_eq!(context, "the kubeconfig has no context three; it has: one, two");
        let dangling = refusal(KUBECONFIG, Some("two")).await;
        assert!(dangling.contains("absent"), "{dangling}");
        let broken = refusal("{", None).await;
        assert!(broken.starts_with("the kubeconfig cannot be used: "), "{broken}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_tells_silence_from_refusal() {
        let (client, _) = fake::client(|_| Answer::Silence);
        let silent = client.ping().await.unwrap_err().to_string();
        assert!(
            silent.contains("http://fake cannot be reached (no answer within 10 s)"),
            "{silent}"
        );
        let (client, _) = fake::client(|_| Answer::refusal(401, "Unauthorized"));
        let refused = client.ping().await.unwrap_err().to_string();
        assert!(refused.contains("are the credentials valid?"), "{refused}");
        let (client, log) =
            fake::client(|_| Answer::Whole(200, r#"{"gitVersion":"v1.36.3"}"#.into()));
        assert_eq!(client.ping().await.unwrap(), "v1.36.3");
        assert_eq!(log.lines(""), ["GET /version"]);
    }
}
