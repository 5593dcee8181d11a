//! What makes one version of a plugin.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grants::PluginSettings;
use crate::ident::Digest;

/// One version of a plugin: its bytes and everything that is set up for them.
///
/// Written as the first 12 hexadecimal characters of a SHA-256 over both: what people read, type and compare.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "RevisionText")]
pub struct Revision([u8; 6]);

/// How a [`Revision`] is written.
#[derive(JsonSchema)]
struct RevisionText(
    #[expect(dead_code, reason = "for its schema")]
    #[schemars(regex(pattern = "^[0-9a-f]{12}$"))]
    String,
);

impl Revision {
    /// The revision of some bytes under some settings.
    pub fn of(digest: Digest, settings: &PluginSettings) -> Self {
        // The order of fields is fixed and that of maps sorted: equal settings give equal text.
        let settings = serde_json::to_string(settings).unwrap_or_default();
        Self(Digest::of(format!("{digest} {settings}").as_bytes()).head())
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::ident::hex(&self.0))
    }
}

impl From<Revision> for String {
    fn from(revision: Revision) -> Self {
        revision.to_string()
    }
}

impl TryFrom<String> for Revision {
    type Error = InvalidRevision;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl std::str::FromStr for Revision {
    type Err = InvalidRevision;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidRevision(text.to_owned());
        let lower = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if text.len() != 12 || !text.chars().all(lower) {
            return Err(invalid());
        }
        let number = u64::from_str_radix(text, 16).map_err(|_| invalid())?;
        let [_, _, bytes @ ..] = number.to_be_bytes();
        Ok(Self(bytes))
    }
}

/// A text that names no revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no revision: 12 characters of 0-9a-f, as `operator-host plugin history` shows them"
)]
pub struct InvalidRevision(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_reads_back_what_it_writes() {
        let revision = Revision::of(Digest::of(b"a"), &PluginSettings::default());
        assert_eq!(revision.to_string().parse(), Ok(revision));
        for wrong in ["", "0123456789a", "0123456789AB", "0123456789ab0", "+123456789ab"] {
            assert!(wrong.parse::<Revision>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_revision_is_of_bytes_and_settings() {
        let plain = PluginSettings::default();
        let set = PluginSettings { concurrency: Some(2), ..PluginSettings::default() };
        let of =
            |bytes: &[u8], settings: &PluginSettings| Revision::of(Digest::of(bytes), settings);
        assert_eq!(of(b"a", &plain), of(b"a", &plain.clone()));
        assert_ne!(of(b"a", &plain), of(b"b", &plain));
        assert_ne!(of(b"a", &plain), of(b"a", &set));
    }
}
