//! What the names in a request stand for: the caller's answer, taken from the parent's namespace.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// One value in one Secret of the parent's namespace, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretKey {
    /// The Secret's name.
    pub name: String,
    /// The key in its data.
    pub key: String,
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} of Secret {}", self.key, self.name)
    }
}

/// The value of a Secret's key. Prints as `[secret]`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Vec<u8>);

impl SecretValue {
    /// The decoded bytes, exactly as in the Secret.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// What the names in a request stand for. Names that stand for nothing are left out;
/// the request then ends with `noSecret` or `noAddress`.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The pod's address, with the port of the request.
    pub address: SocketAddr,
    /// Of the Secrets that a request names, those that exist.
    pub secrets: BTreeMap<SecretKey, SecretValue>,
    /// Of the pods that a request names, those that have an address.
    pub pod_ips: BTreeMap<String, IpAddr>,
}

impl Resolved {
    /// For a request that names nothing but its pod.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, secrets: BTreeMap::new(), pod_ips: BTreeMap::new() }
    }

    /// Replaces every secret in a text that came from a server or a library.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets.values() {
            // What is not UTF-8 arrives replaced in the text, so it is looked for in the same form.
            let secret = String::from_utf8_lossy(secret.bytes());
            if !secret.is_empty() {
                text = text.replace(&*secret, "[secret]");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_in_debug_or_scrubbed_text() {
        let key = SecretKey { name: "auth".into(), key: "password".into() };
        let mut resolved = Resolved::at(([127, 0, 0, 1], 6379).into());
        resolved.secrets.insert(key, SecretValue::new("hunter2"));
        assert!(!format!("{resolved:?}").contains("hunter2"));
        assert_eq!(resolved.scrub("modifier '>hunter2': bad"), "modifier '>[secret]': bad");
    }
}
