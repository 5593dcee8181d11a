//! Whose plugins may run: a component is signed by one of the keys that the host was started with (ADR 0012).
//!
//! A signature is ECDSA P-256 over the SHA-256 of the unpacked component, in DER or base64 of DER: what
//! `openssl dgst -sha256 -sign KEY` and `cosign sign-blob --key KEY` write.
//!
//! **Invariant:** with keys, nothing runs that none of them has signed: neither from a source, nor what was kept of it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;

/// What DER puts before the 65 bytes of an uncompressed point to say that it is a P-256 key (RFC 5480).
const P256_PREFIX: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// An ECDSA P-256 signature in DER has at most 72 bytes, base64 makes 96 of them; a new line and room.
const SIGNATURE_BYTES_MAX: usize = 128;

/// A signature as it came with a component: DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(Arc<[u8]>);

impl Signature {
    /// From DER, or base64 of it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > SIGNATURE_BYTES_MAX {
            return Err(format!(
                "it has {} bytes, more than any ECDSA P-256 signature; is it a bundle? `cosign sign-blob` writes the signature itself with --output-signature",
                bytes.len()
            ));
        }
        // DER begins with the tag of a SEQUENCE, 0x30; base64 of that begins with an M.
        if bytes.first() == Some(&0x30) {
            return Ok(Self(bytes.into()));
        }
        let der = STANDARD.decode(bytes.trim_ascii());
        let der = der.map_err(|error| format!("it is neither DER nor base64: {error}"))?;
        Ok(Self(der.into()))
    }

    /// In base64, as text carries it.
    pub fn text(&self) -> String {
        STANDARD.encode(&self.0)
    }
}

/// The keys whose signatures count. None: unsigned plugins run.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<Box<[u8]>>);

impl Keys {
    /// Reads the public keys of a PEM file.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("reading the keys of {}", file.display()))
    }

    fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let keys = SubjectPublicKeyInfoDer::pem_slice_iter(text).map(|key| {
            let key = key.context("it is no PEM")?;
            let point = key.strip_prefix(P256_PREFIX).filter(|point| point.len() == 65);
            let point = point.context("a public key is not ECDSA P-256; `openssl ecparam -name prime256v1 -genkey` and `cosign generate-key-pair` make such keys")?;
            Ok(point.into())
        });
        let keys = keys.collect::<anyhow::Result<Vec<Box<[u8]>>>>()?;
        if keys.is_empty() {
            bail!("there is no `-----BEGIN PUBLIC KEY-----` in it");
        }
        Ok(Self(keys))
    }

    /// Whether a component may run.
    pub fn check(&self, component: &[u8], signature: Option<&Signature>) -> Result<(), Unsigned> {
        if self.0.is_empty() {
            return Ok(());
        }
        let signature = signature.ok_or(Unsigned::Missing)?;
        let signed = self.0.iter().any(|key| {
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
                .verify(component, &signature.0)
                .is_ok()
        });
        if signed { Ok(()) } else { Err(Unsigned::Foreign) }
    }
}

/// Why a component may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// Nobody has signed it.
    #[error(
        "this host runs signed plugins only, and it is not signed: give `--signature` to `operator-host plugin package` or `push`"
    )]
    Missing,
    /// Somebody else has, or it is another component's signature.
    #[error("its signature was made by none of the host's keys, or for other bytes")]
    Foreign,
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

    use super::*;

    fn pair() -> (EcdsaKeyPair, String) {
        let chance = SystemRandom::new();
        let how = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(how, &chance).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(how, pkcs8.as_ref(), &chance).unwrap();
        let spki = [P256_PREFIX, pair.public_key().as_ref()].concat();
        let pem = STANDARD.encode(spki);
        (pair, format!("-----BEGIN PUBLIC KEY-----\n{pem}\n-----END PUBLIC KEY-----\n"))
    }

    fn sign(pair: &EcdsaKeyPair, bytes: &[u8]) -> Vec<u8> {
        pair.sign(&SystemRandom::new(), bytes).unwrap().as_ref().to_vec()
    }

    #[test]
    fn one_of_several_keys_is_enough_and_der_is_as_good_as_base64() {
        let ((one, first), (other, second)) = (pair(), pair());
        let keys = Keys::parse(format!("{first}{second}").as_bytes()).unwrap();
        for pair in [one, other] {
            let der = sign(&pair, b"component");
            let text = format!("{}\n", STANDARD.encode(&der));
            for written in [der.as_slice(), text.as_bytes()] {
                let signature = Signature::read(written).unwrap();
                assert_eq!(keys.check(b"component", Some(&signature)), Ok(()));
                assert_eq!(keys.check(b"Component", Some(&signature)), Err(Unsigned::Foreign));
            }
        }
    }

    #[test]
    fn what_nobody_or_somebody_else_has_signed_does_not_run() {
        let ((_, ours), (stranger, _)) = (pair(), pair());
        let keys = Keys::parse(ours.as_bytes()).unwrap();
        let signature = Signature::read(&sign(&stranger, b"component")).unwrap();
        assert_eq!(keys.check(b"component", None), Err(Unsigned::Missing));
        assert_eq!(keys.check(b"component", Some(&signature)), Err(Unsigned::Foreign));
        assert_eq!(Keys::default().check(b"component", None), Ok(()));
    }

    #[test]
    fn what_is_no_key_and_what_is_no_signature_is_said() {
        let error = |text: &[u8]| format!("{:#}", Keys::parse(text).unwrap_err());
        assert!(error(b"").contains("BEGIN PUBLIC KEY"));
        let rsa = "-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n";
        assert!(error(rsa.as_bytes()).contains("P-256"));
        assert!(Signature::read(b"{}").unwrap_err().contains("base64"));
        assert!(Signature::read(&[b'a'; 4_000]).unwrap_err().contains("bundle"));
    }
}
