//! Who the proxy is towards the API server.

use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Longer than any test.
const TOKEN_SECONDS: i64 = 6 * 3600;

/// A client with a service account's own token, made by an administrator whose kubeconfig this is.
pub(crate) async fn service_account(
    kubeconfig: &Path,
    namespace: &str,
    name: &str,
) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("reading the kubeconfig")?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let accounts: Api<ServiceAccount> =
        Api::namespaced(Client::try_from(config.clone())?, namespace);
    let wanted = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let made = accounts.create_token_request(name, &PostParams::default(), &wanted).await;
    let token = made.context("asking for a token")?.status.and_then(|status| status.token);
    let token = token.context("no token came back")?;
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    // What the host sends is sent once: its retries are its own.
    config.default_retry = false;
    Client::try_from(config).context("making the service account's client")
}
