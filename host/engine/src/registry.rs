//! OCI registries: plugins are pulled from them and pushed to them (ADR 0012).
//!
//! An artifact is what the CNCF's layout for Wasm artifacts says: a manifest with a config of
//! `application/vnd.wasm.config.v0+json` and one layer of `application/wasm`, the component.
//!
//! **Invariant:** HTTPS only, and each pull has a client of its own: no plugin gets at another's credentials.
//! **Invariant:** a pull Secret is data. Credential helpers, which are programs, run for `push` alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use anyhow::Context as _;
use docker_credential::{CredentialRetrievalError, DockerCredential};
use futures::TryStreamExt as _;
use host_core::ident::Digest;
use host_core::text;
use host_wasm::COMPONENT_BYTES_MAX;
use oci_client::client::{
    Certificate, CertificateEncoding, Client, ClientConfig, Config, ImageLayer,
};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{ParseError, Reference};
use serde_json::json;

use crate::signature::Signature;

const WASM: &str = "application/wasm";
const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// For finding a registry.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// For a whole pull or push: 8 MiB at 200 kB/s, and room.
const DEADLINE: Duration = Duration::from_mins(1);

/// How registries are reached.
#[derive(Clone, Debug, Default)]
pub struct Registries {
    /// Certificates that are trusted besides the system's, PEM.
    authorities: Vec<Certificate>,
}

/// A component as a registry has it.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// Digest of the manifest.
    pub manifest: String,
    /// The layer: the component, plain or packed.
    pub bytes: bytes::Bytes,
    /// As its layer is annotated.
    pub signature: Option<Signature>,
}

/// Why nothing was pulled or pushed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No reference.
    #[error("{reference:?} is no reference such as registry.example.com/team/plugin:1.0.0")]
    Reference {
        /// As it was given.
        reference: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// The credentials cannot be read.
    #[error("the credentials for {registry}: {why}")]
    Credentials {
        /// For which registry.
        registry: String,
        /// What is wrong with them; never what they are.
        why: String,
    },
    /// The registry said no, or nothing.
    #[error("{reference}")]
    Registry {
        /// What was asked for.
        reference: String,
        /// What was answered.
        #[source]
        source: Box<OciDistributionError>,
    },
    /// It took too long.
    #[error("{reference}: the registry took longer than {} s", DEADLINE.as_secs())]
    Slow {
        /// What was asked for.
        reference: String,
    },
    /// What is there is no plugin.
    #[error("{reference} {what}")]
    NoPlugin {
        /// Where.
        reference: String,
        /// What is there instead.
        what: String,
    },
}

impl Registries {
    /// Registries whose certificates are signed by the system's authorities, or by one of a PEM file.
    pub fn new(authorities: Option<&Path>) -> anyhow::Result<Self> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject as _;
        let Some(file) = authorities else { return Ok(Self::default()) };
        let read = || format!("reading the certificates of {}", file.display());
        let certificates = CertificateDer::pem_file_iter(file).with_context(read)?;
        let certificates = certificates
            .map(|one| Ok(Certificate { encoding: CertificateEncoding::Der, data: one?.to_vec() }));
        let authorities = certificates
            .collect::<Result<Vec<_>, rustls::pki_types::pem::Error>>()
            .with_context(read)?;
        anyhow::ensure!(
            !authorities.is_empty(),
            "there is no `-----BEGIN CERTIFICATE-----` in {}",
            file.display()
        );
        Ok(Self { authorities })
    }

    fn client(&self, reference: &str) -> Result<Client, RegistryError> {
        static PROVIDER: Once = Once::new();
        // The client's TLS takes the process's; an error means that there is one already.
        PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let config = ClientConfig {
            extra_root_certificates: self.authorities.clone(),
            // A plugin is the same on every platform.
            platform_resolver: None,
            connect_timeout: Some(CONNECT_DEADLINE),
            user_agent: concat!("operator-host/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        Client::try_from(config).map_err(failed(reference))
    }

    /// Pulls an artifact, unless it is the one that is `known` by its manifest: then None.
    pub async fn pull(
        &self,
        reference: &str,
        pull_secret: Option<&[u8]>,
        known: Option<&str>,
    ) -> Result<Option<Artifact>, RegistryError> {
        let image = parse(reference)?;
        let auth = match pull_secret {
            Some(config) => of_secret(config, image.resolve_registry())?,
            None => RegistryAuth::Anonymous,
        };
        let client = self.client(reference)?;
        let pull = async {
            let manifest = client.fetch_manifest_digest(&image, &auth).await;
            let manifest = manifest.map_err(failed(reference))?;
            if known == Some(&manifest) {
                return Ok(None);
            }
            // By digest from here on: a tag that moves meanwhile cannot mix two artifacts.
            let image = image.clone_with_digest(manifest.clone());
            let (layers, _) =
                client.pull_image_manifest(&image, &auth).await.map_err(failed(reference))?;
            let layer = layer(reference, layers)?;
            let bytes = blob(&client, reference, &image, &layer).await?;
            let signature = signature(reference, &layer)?;
            Ok(Some(Artifact { manifest, bytes, signature }))
        };
        in_time(reference, pull).await
    }

    /// Pushes a component with the credentials of the user's Docker configuration. Gives the reference by digest.
    ///
    /// The same component and annotations make the same manifest, whenever they are pushed.
    pub async fn push(
        &self,
        reference: &str,
        component: Vec<u8>,
        annotations: BTreeMap<String, String>,
        signature: Option<&Signature>,
    ) -> Result<String, RegistryError> {
        let image = parse(reference)?;
        let auth = of_user(image.resolve_registry())?;
        let client = self.client(reference)?;
        let on_layer = signature
            .map(|one| BTreeMap::from([(text::ANNOTATION_SIGNATURE.to_owned(), one.text())]));
        let layer_digest = Digest::of(&component).to_string();
        let config = json!({
            "architecture": "wasm", "os": "wasip2", "created": "1970-01-01T00:00:00Z",
            "layerDigests": [layer_digest],
        });
        let config = Config::new(config.to_string(), WASM_CONFIG.to_owned(), None);
        let layers = [ImageLayer::new(component, WASM.to_owned(), on_layer)];
        let mut manifest = OciImageManifest::build(&layers, &config, Some(annotations));
        manifest.media_type = Some(OCI_IMAGE_MEDIA_TYPE.to_owned());
        let push = async {
            let pushed = client.push(&image, &layers, config, &auth, Some(manifest));
            pushed.await.map_err(failed(reference))?;
            client.fetch_manifest_digest(&image, &auth).await.map_err(failed(reference))
        };
        let digest = in_time(reference, push).await?;
        Ok(format!("{}/{}@{digest}", image.registry(), image.repository()))
    }
}

async fn in_time<T>(
    reference: &str,
    work: impl Future<Output = Result<T, RegistryError>>,
) -> Result<T, RegistryError> {
    tokio::time::timeout(DEADLINE, work)
        .await
        .unwrap_or_else(|_| Err(RegistryError::Slow { reference: reference.to_owned() }))
}

/// Whether a reference names its artifact by digest, so that it cannot change.
pub fn is_fixed(reference: &str) -> bool {
    parse(reference).is_ok_and(|image| image.digest().is_some())
}

fn parse(reference: &str) -> Result<Reference, RegistryError> {
    reference
        .parse()
        .map_err(|source| RegistryError::Reference { reference: reference.to_owned(), source })
}

fn failed(reference: &str) -> impl Fn(OciDistributionError) -> RegistryError {
    move |source| RegistryError::Registry {
        reference: reference.to_owned(),
        source: Box::new(source),
    }
}

/// The one layer that is a component.
fn layer(reference: &str, manifest: OciImageManifest) -> Result<OciDescriptor, RegistryError> {
    let no_plugin =
        |what: String| RegistryError::NoPlugin { reference: reference.to_owned(), what };
    let mut types = Vec::new();
    let mut found = None;
    for layer in manifest.layers {
        if layer.media_type != WASM {
            types.push(layer.media_type);
        } else if found.replace(layer).is_some() {
            return Err(no_plugin(format!(
                "has more than one layer {WASM}; a plugin is one component"
            )));
        }
    }
    let layer = found.ok_or_else(|| {
        no_plugin(format!(
            "has no layer {WASM}, but [{}]; `operator-host plugin push` makes one",
            types.join(", ")
        ))
    })?;
    if usize::try_from(layer.size).is_ok_and(|size| size <= COMPONENT_BYTES_MAX) {
        // Places outside the registry that a manifest names are not asked.
        return Ok(OciDescriptor { urls: None, ..layer });
    }
    Err(no_plugin(format!("has {} bytes; a plugin may have {COMPONENT_BYTES_MAX}", layer.size)))
}

/// A layer, checked against its digest by the client; no more of it than its manifest says.
async fn blob(
    client: &Client,
    reference: &str,
    image: &Reference,
    layer: &OciDescriptor,
) -> Result<bytes::Bytes, RegistryError> {
    let mut stream = client.pull_blob_stream(image, layer).await.map_err(failed(reference))?.stream;
    let size = usize::try_from(layer.size).unwrap_or_default();
    let mut bytes = Vec::with_capacity(size);
    let broken = |error: std::io::Error| failed(reference)(OciDistributionError::IoError(error));
    while let Some(chunk) = stream.try_next().await.map_err(broken)? {
        if bytes.len() + chunk.len() > size {
            let what =
                format!("has a layer that is larger than the {size} bytes its manifest says");
            return Err(RegistryError::NoPlugin { reference: reference.to_owned(), what });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

fn signature(reference: &str, layer: &OciDescriptor) -> Result<Option<Signature>, RegistryError> {
    let text = layer.annotations.as_ref().and_then(|all| all.get(text::ANNOTATION_SIGNATURE));
    let read = text.map(|text| Signature::read(text.as_bytes())).transpose();
    read.map_err(|why| RegistryError::NoPlugin {
        reference: reference.to_owned(),
        what: format!(
            "has an annotation {} that is no signature: {why}",
            text::ANNOTATION_SIGNATURE
        ),
    })
}

/// As Docker's configuration calls a registry.
fn server(registry: &str) -> &str {
    if registry == "index.docker.io" { "https://index.docker.io/v1/" } else { registry }
}

/// From `.dockerconfigjson`.
fn of_secret(config: &[u8], registry: &str) -> Result<RegistryAuth, RegistryError> {
    #[derive(serde::Deserialize)]
    struct Auths {
        auths: serde_json::Value,
    }
    let credentials = |why: &str| RegistryError::Credentials {
        registry: registry.to_owned(),
        why: why.to_owned(),
    };
    // The parser's own words could quote a password.
    let Auths { auths } = serde_json::from_slice(config)
        .map_err(|_| credentials("the pull Secret's .dockerconfigjson has no `auths`"))?;
    let only_auths = json!({ "auths": auths }).to_string();
    docker_credential::get_credential_from_reader(only_auths.as_bytes(), server(registry))
        .map(auth)
        .map_err(|error| {
            if error == CredentialRetrievalError::NoCredentialConfigured {
                return credentials("the pull Secret has none for this registry");
            }
            credentials(&format!("the pull Secret: {error}"))
        })
}

/// From `~/.docker/config.json`, or where `DOCKER_CONFIG` says.
fn of_user(registry: &str) -> Result<RegistryAuth, RegistryError> {
    match docker_credential::get_credential(server(registry)) {
        Ok(credential) => Ok(auth(credential)),
        Err(
            CredentialRetrievalError::ConfigNotFound
            | CredentialRetrievalError::ConfigReadError
            | CredentialRetrievalError::NoCredentialConfigured,
        ) => Ok(RegistryAuth::Anonymous),
        // What a helper prints may be a secret.
        Err(CredentialRetrievalError::HelperFailure { helper, .. }) => {
            let why = format!("credential helper {helper} has failed; try `docker login` again");
            Err(RegistryError::Credentials { registry: registry.to_owned(), why })
        }
        Err(other) => Err(RegistryError::Credentials {
            registry: registry.to_owned(),
            why: format!("Docker's configuration: {other}"),
        }),
    }
}

fn auth(credential: DockerCredential) -> RegistryAuth {
    match credential {
        DockerCredential::IdentityToken(token) => RegistryAuth::Bearer(token),
        DockerCredential::UsernamePassword(user, password) => RegistryAuth::Basic(user, password),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(layers: &serde_json::Value) -> OciImageManifest {
        let config = json!({"mediaType": WASM_CONFIG, "digest": "sha256:0", "size": 2});
        serde_json::from_value(json!({"schemaVersion": 2, "config": config, "layers": layers}))
            .unwrap()
    }

    #[test]
    fn a_plugin_is_one_layer_of_bounded_size_and_nothing_outside_the_registry() {
        let wasm = |size: i64| json!({"mediaType": WASM, "digest": "sha256:1", "size": size, "urls": ["https://elsewhere/"]});
        let found = layer("r/p:1", manifest(&json!([wasm(7)]))).unwrap();
        assert_eq!((found.size, found.urls), (7, None));
        let refused = |layers| layer("r/p:1", manifest(&layers)).unwrap_err().to_string();
        assert!(refused(json!([])).contains("no layer application/wasm"));
        assert!(refused(json!([wasm(1), wasm(1)])).contains("more than one"));
        assert!(refused(json!([wasm(1 << 40)])).contains("may have 8388608"));
        assert!(refused(json!([wasm(-1)])).contains("-1 bytes"));
    }

    #[test]
    fn a_pull_secret_runs_no_program_and_is_not_quoted() {
        // Base64 of user:secret.
        let secret = br#"{"auths": {"registry.example.com": {"auth": "dXNlcjpzZWNyZXQ="}},
            "credHelpers": {"registry.example.com": "evil"}, "credsStore": "evil"}"#;
        let found = of_secret(secret, "registry.example.com").unwrap();
        assert_eq!(found, RegistryAuth::Basic("user".into(), "secret".into()));
        let other = of_secret(secret, "other.example.com").unwrap_err().to_string();
        assert!(other.contains("has none for this registry"), "{other}");
        let broken = of_secret(br#"{"auths": "s3cret"#, "r").unwrap_err().to_string();
        assert!(!broken.contains("s3cret"), "{broken}");
    }

    #[test]
    fn a_digest_is_fixed_and_a_tag_is_not() {
        let digest = format!("registry.example.com/p@sha256:{}", "0".repeat(64));
        assert!(is_fixed(&digest));
        assert!(!is_fixed("registry.example.com/p:1") && !is_fixed("no reference"));
    }
}
