//! Who may talk to whom: a CA, the API server's certificate, the service-account key, tokens and
//! kubeconfigs. All of it is made anew for each cluster and lives in its state directory.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// First address of the service range; it is in the certificate, but nothing routes it.
const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// Files that the control plane and its clients read.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    pub(crate) ca_certificate: PathBuf,
    pub(crate) server_certificate: PathBuf,
    pub(crate) server_key: PathBuf,
    pub(crate) service_account_key: PathBuf,
    pub(crate) service_account_public: PathBuf,
    pub(crate) tokens: PathBuf,
    pub(crate) admin_kubeconfig: PathBuf,
    pub(crate) controller_kubeconfig: PathBuf,
    pub(crate) node_kubeconfig: PathBuf,
}

impl Pki {
    /// Writes everything for an API server at `https://127.0.0.1:<port>`.
    pub(crate) fn create(state: &Path, port: u16) -> Result<Self> {
        let dir = state.join("pki");
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let pki = Self {
            ca_certificate: dir.join("ca.crt"),
            server_certificate: dir.join("apiserver.crt"),
            server_key: dir.join("apiserver.key"),
            service_account_key: dir.join("sa.key"),
            service_account_public: dir.join("sa.pub"),
            tokens: dir.join("tokens.csv"),
            admin_kubeconfig: state.join("kubeconfig"),
            controller_kubeconfig: dir.join("controller-manager.kubeconfig"),
            node_kubeconfig: dir.join("node.kubeconfig"),
        };
        pki.write_certificates().context("making certificates")?;
        let mut lines = String::new();
        for (user, groups, kubeconfig) in [
            ("devcluster-admin", "system:masters", &pki.admin_kubeconfig),
            // The controllers and the process node also touch what their real counterparts may
            // not (volumes, other nodes' pods); telling them apart by name is what matters here.
            ("system:kube-controller-manager", "system:masters", &pki.controller_kubeconfig),
            ("devcluster-node", "system:masters", &pki.node_kubeconfig),
        ] {
            let token = random_token()?;
            lines.extend([token.as_str(), ",", user, ",", user, ",\"", groups, "\"\n"]);
            write_private(kubeconfig, &pki.kubeconfig(user, &token, port))?;
        }
        write_private(&pki.tokens, &lines)?;
        Ok(pki)
    }

    fn write_certificates(&self) -> Result<()> {
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "devcluster-ca");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

        let mut server = CertificateParams::new(
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
                .map(str::to_owned),
        )?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for address in [Ipv4Addr::LOCALHOST, SERVICE_ADDRESS] {
            server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(address)));
        }
        let server_key = KeyPair::generate()?;
        let certificate = server.signed_by(&server_key, &issuer)?;
        let service_account = KeyPair::generate()?;

        fs::write(&self.ca_certificate, issuer.pem())?;
        fs::write(&self.server_certificate, certificate.pem())?;
        write_private(&self.server_key, &server_key.serialize_pem())?;
        write_private(&self.service_account_key, &service_account.serialize_pem())?;
        fs::write(&self.service_account_public, service_account.public_key_pem())?;
        Ok(())
    }

    /// A kubeconfig, as JSON (which is YAML).
    fn kubeconfig(&self, user: &str, token: &str, port: u16) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "devcluster",
            "clusters": [{"name": "devcluster", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority": self.ca_certificate,
            }}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "devcluster", "context": {
                "cluster": "devcluster", "user": user, "namespace": "default",
            }}],
        });
        format!("{config:#}\n")
    }
}

/// 256 bits from the key generator's random source, as hex.
fn random_token() -> Result<String> {
    let digest = Sha256::digest(KeyPair::generate().context("making a token")?.serialized_der());
    Ok(crate::cache::hex(&digest))
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .with_context(|| format!("protecting {}", path.display()))
}
