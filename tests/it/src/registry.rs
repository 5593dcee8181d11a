//! A real OCI registry (Debian's `docker-registry`) with a certificate of a private authority and one user.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use devcluster::wait_for;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use serde_json::json;
use tempfile::TempDir;

use crate::PATIENCE;

/// Its user.
pub const USER: &str = "puller";
/// The user's password.
pub const PASSWORD: &str = "not-a-secret";
/// Both for the registry: `htpasswd -nbB puller not-a-secret`.
const HTPASSWD: &str = "puller:$2y$05$1uqrSNmHJhI6XqxEY4Zt.ukTAoTh94wwRI9HjYxRh3BfbkX7gsiRG";

/// A running registry, ended when dropped.
#[derive(Debug)]
pub struct Registry {
    process: Mutex<Child>,
    address: String,
    folder: TempDir,
}

impl Registry {
    /// Starts one.
    pub async fn start() -> Result<Self> {
        let needed = [("docker-registry", "docker-registry")];
        tokio::task::spawn_blocking(move || devcluster::ensure_programs(&needed, true)).await??;
        let folder = tempfile::tempdir().context("making a folder for the registry")?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        let address = free.local_addr()?.to_string();
        drop(free);
        let at = |name: &str| folder.path().join(name);
        certificates(&at("ca.crt"), &at("tls.crt"), &at("tls.key"))?;
        std::fs::write(at("htpasswd"), HTPASSWD)?;
        let config = json!({
            "version": 0.1, "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": at("data")}},
            "http": {"addr": address, "tls": {"certificate": at("tls.crt"), "key": at("tls.key")}},
            "auth": {"htpasswd": {"realm": "tests", "path": at("htpasswd")}},
        });
        std::fs::write(at("config.json"), config.to_string())?;
        let auths = json!({"auths": {&address: {"username": USER, "password": PASSWORD}}});
        std::fs::write(at("docker.json"), auths.to_string())?;
        std::fs::create_dir(at("docker"))?;
        std::fs::copy(at("docker.json"), at("docker").join("config.json"))?;
        // It dies with the test.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "docker-registry", "serve"])
            .arg(at("config.json"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting docker-registry")?;
        let registry = Self { process: Mutex::new(process), address, folder };
        wait_for("the registry to listen", PATIENCE, || async {
            Ok(tokio::net::TcpStream::connect(&registry.address).await.ok().map(drop))
        })
        .await?;
        Ok(registry)
    }

    /// Ends it; its files stay.
    pub fn stop(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have ended already.
        drop(process.kill());
        drop(process.wait());
    }

    /// Host and port, as references begin.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The certificate of its authority.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// A folder for `DOCKER_CONFIG` with the user's credentials.
    pub fn docker_config(&self) -> PathBuf {
        self.folder.path().join("docker")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

fn certificates(ca_file: &Path, certificate_file: &Path, key_file: &Path) -> Result<()> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
    let mut server = CertificateParams::default();
    server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &issuer)?;
    std::fs::write(ca_file, issuer.pem())?;
    std::fs::write(certificate_file, certificate.pem())?;
    std::fs::write(key_file, key.serialize_pem())?;
    Ok(())
}
