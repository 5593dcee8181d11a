//! Opens the connection of one request: TCP, then TLS if asked for.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::capped::{Stream, from_io};
use crate::command::secret;
use crate::limits;
use crate::request::Tls;
use crate::resolved::{Resolved, SecretKey};
use crate::unreachable::{Class, Unreachable};

/// Connects to the resolved address.
pub(crate) async fn open(tls: Option<&Tls>, resolved: &Resolved) -> Result<Stream, Unreachable> {
    // What the request itself got wrong is found before a server is bothered.
    let tls =
        tls.map(|tls| Ok((connector(tls, resolved)?, server_name(tls, resolved)?))).transpose()?;
    let connecting =
        tokio::time::timeout(limits::CONNECT_TIMEOUT, TcpStream::connect(resolved.address));
    let tcp = connecting
        .await
        .map_err(|_| {
            let message =
                format!("no connection within {} ms", limits::CONNECT_TIMEOUT.as_millis());
            Unreachable::new(Class::Timeout, message)
        })?
        .and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp))
        .map_err(|error| from_io(&error))?;
    let Some((connector, name)) = tls else {
        return Ok(Box::new(tcp));
    };
    // Whatever ends a handshake, a closed connection included, is a matter of TLS: the port answered.
    let failed =
        |error: std::io::Error| Unreachable::new(Class::Tls, format!("TLS handshake: {error}"));
    let encrypted = connector.connect(name, tcp).await.map_err(failed)?;
    Ok(Box::new(encrypted))
}

fn tls_error(what: &SecretKey, problem: impl std::fmt::Display) -> Unreachable {
    Unreachable::new(Class::Tls, format!("{what} cannot be used: {problem}"))
}

fn certificates(
    key: &SecretKey,
    resolved: &Resolved,
) -> Result<Vec<CertificateDer<'static>>, Unreachable> {
    let parsed: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(secret(key, resolved)?).collect();
    match parsed {
        Ok(certificates) if certificates.is_empty() => {
            Err(tls_error(key, "it holds no PEM certificate"))
        }
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(tls_error(key, "it is not PEM")),
    }
}

fn connector(tls: &Tls, resolved: &Resolved) -> Result<TlsConnector, Unreachable> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.ca, resolved)? {
        roots.add(certificate).map_err(|error| tls_error(&tls.ca, error))?;
    }
    let unusable = |error: rustls::Error| Unreachable::new(Class::Tls, error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots);
    let config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            // The parser's own error is left out: it could quote the key.
            let private = PrivateKeyDer::from_pem_slice(secret(key, resolved)?)
                .map_err(|_| tls_error(key, "it is not a PEM private key"))?;
            let chain = certificates(certificate, resolved)?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| tls_error(certificate, error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn server_name(tls: &Tls, resolved: &Resolved) -> Result<ServerName<'static>, Unreachable> {
    let Some(name) = &tls.server_name else {
        return Ok(ServerName::from(resolved.address.ip()));
    };
    ServerName::try_from(name.clone()).map_err(|_| {
        Unreachable::new(Class::Tls, format!("{name:?} is not a name a certificate can have"))
    })
}
