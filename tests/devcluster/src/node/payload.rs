//! The files of ConfigMap, Secret, downward API and projected volumes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccount,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::fields::{self, Placement};

const MODE_DEFAULT: i32 = 0o644;
const TOKEN_SECONDS_DEFAULT: i64 = 3_600;

/// Content and mode of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileContent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
}

/// Relative path → content.
pub(crate) type Payload = BTreeMap<String, FileContent>;

/// Service-account tokens of a pod, renewed when four fifths of their life are over.
#[derive(Debug, Default)]
pub(crate) struct TokenCache {
    tokens: BTreeMap<String, (String, Instant)>,
}

/// Reads what volumes are made of.
pub(crate) struct Source<'a> {
    pub(crate) client: &'a Client,
    pub(crate) pod: &'a Pod,
    pub(crate) placement: &'a Placement,
    pub(crate) tokens: &'a mut TokenCache,
}

impl Source<'_> {
    /// The files of a volume, or `None` when it is of another kind.
    pub(crate) async fn payload(&mut self, volume: &Volume) -> Result<Option<Payload>> {
        let mut files = Payload::new();
        if let Some(map) = &volume.config_map {
            let mode = map.default_mode.unwrap_or(MODE_DEFAULT);
            let optional = map.optional == Some(true);
            self.config_map(&map.name, map.items.as_deref(), mode, optional, &mut files).await?;
        } else if let Some(secret) = &volume.secret {
            let mode = secret.default_mode.unwrap_or(MODE_DEFAULT);
            let name = secret.secret_name.as_deref().unwrap_or_default();
            let optional = secret.optional == Some(true);
            self.secret(name, secret.items.as_deref(), mode, optional, &mut files).await?;
        } else if let Some(downward) = &volume.downward_api {
            let mode = downward.default_mode.unwrap_or(MODE_DEFAULT);
            self.downward(downward.items.as_deref().unwrap_or_default(), mode, &mut files)?;
        } else if let Some(projected) = &volume.projected {
            let mode = projected.default_mode.unwrap_or(MODE_DEFAULT);
            for source in projected.sources.iter().flatten() {
                self.projection(source, mode, &mut files).await?;
            }
        } else {
            return Ok(None);
        }
        Ok(Some(files))
    }

    async fn projection(
        &mut self,
        source: &VolumeProjection,
        mode: i32,
        files: &mut Payload,
    ) -> Result<()> {
        if let Some(token) = &source.service_account_token {
            let bytes = self.token(token).await?.into_bytes();
            files.insert(token.path.clone(), FileContent { bytes, mode: unsigned(mode) });
        } else if let Some(map) = &source.config_map {
            let optional = map.optional == Some(true);
            self.config_map(&map.name, map.items.as_deref(), mode, optional, files).await?;
        } else if let Some(secret) = &source.secret {
            let optional = secret.optional == Some(true);
            self.secret(&secret.name, secret.items.as_deref(), mode, optional, files).await?;
        } else if let Some(downward) = &source.downward_api {
            self.downward(downward.items.as_deref().unwrap_or_default(), mode, files)?;
        } else {
            bail!("this kind of projected source is not supported");
        }
        Ok(())
    }

    async fn config_map(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        mode: i32,
        optional: bool,
        files: &mut Payload,
    ) -> Result<()> {
        match config_map(self.client, self.namespace(), name).await? {
            Some(data) => select(&data, items, mode, optional, files)
                .with_context(|| format!("configmap {name:?}")),
            None if optional => Ok(()),
            None => bail!("configmap {name:?} not found"),
        }
    }

    async fn secret(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        mode: i32,
        optional: bool,
        files: &mut Payload,
    ) -> Result<()> {
        match secret(self.client, self.namespace(), name).await? {
            Some(data) => select(&data, items, mode, optional, files)
                .with_context(|| format!("secret {name:?}")),
            None if optional => Ok(()),
            None => bail!("secret {name:?} not found"),
        }
    }

    fn downward(
        &self,
        items: &[DownwardAPIVolumeFile],
        mode: i32,
        files: &mut Payload,
    ) -> Result<()> {
        for item in items {
            let Some(field) = &item.field_ref else { bail!("resourceFieldRef is not supported") };
            let value = fields::resolve(self.pod, self.placement, &field.field_path)
                .map_err(anyhow::Error::msg)?;
            let mode = unsigned(item.mode.unwrap_or(mode));
            files.insert(item.path.clone(), FileContent { bytes: value.into_bytes(), mode });
        }
        Ok(())
    }

    async fn token(&mut self, wanted: &ServiceAccountTokenProjection) -> Result<String> {
        let audience = wanted.audience.clone().unwrap_or_default();
        if let Some((token, renew)) = self.tokens.tokens.get(&audience)
            && Instant::now() < *renew
        {
            return Ok(token.clone());
        }
        let seconds = wanted.expiration_seconds.unwrap_or(TOKEN_SECONDS_DEFAULT);
        let audiences: Vec<&str> = wanted.audience.as_deref().into_iter().collect();
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod",
                "name": self.pod.metadata.name, "uid": self.pod.metadata.uid,
            }},
        });
        let spec = self.pod.spec.as_ref();
        let account =
            spec.and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace());
        let answer: TokenRequest = accounts
            .create_subresource("token", account, &PostParams::default(), &request)
            .await
            .with_context(|| format!("asking for a token of service account {account:?}"))?;
        let token = answer.status.and_then(|status| status.token);
        let token = token.context("a token request without an answer")?;
        let life = Duration::from_secs(u64::try_from(seconds).unwrap_or(600)) * 4 / 5;
        self.tokens.tokens.insert(audience, (token.clone(), Instant::now() + life));
        Ok(token)
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// The data of a ConfigMap, `None` when there is none.
pub(crate) async fn config_map(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, Vec<u8>>>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = maps.get_opt(name).await.with_context(|| format!("reading configmap {name:?}"))?;
    Ok(found.map(|map| {
        let text = map.data.unwrap_or_default();
        let text = text.into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = map.binary_data.unwrap_or_default();
        text.chain(binary.into_iter().map(|(key, value)| (key, value.0))).collect()
    }))
}

/// The data of a Secret, `None` when there is none.
pub(crate) async fn secret(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, Vec<u8>>>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get_opt(name).await.with_context(|| format!("reading secret {name:?}"))?;
    Ok(found.map(|secret| {
        let data = secret.data.unwrap_or_default();
        data.into_iter().map(|(key, value)| (key, value.0)).collect()
    }))
}

fn select(
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
    files: &mut Payload,
) -> Result<()> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        for (key, bytes) in data {
            let content = FileContent { bytes: bytes.clone(), mode: unsigned(mode) };
            files.insert(key.clone(), content);
        }
        return Ok(());
    };
    for item in items {
        match data.get(&item.key) {
            Some(bytes) => {
                let mode = unsigned(item.mode.unwrap_or(mode));
                files.insert(item.path.clone(), FileContent { bytes: bytes.clone(), mode });
            }
            None if optional => {}
            None => bail!("references non-existent key {:?}", item.key),
        }
    }
    Ok(())
}

fn unsigned(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0o644) & 0o777
}
