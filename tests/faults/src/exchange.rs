//! What passed between the host and the API server, and what may be asked about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

use http::Method;

/// A request, as the host made it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: String,
    /// Its query, without the question mark.
    pub query: String,
}

/// The parts of a path.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts<'a> {
    namespace: &'a str,
    resource: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl Asked {
    /// Whether it opens a watch.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|part| part == "watch=true")
    }

    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }

    /// The resource in the plural, as in `configmaps`; empty for a path that names none.
    pub fn resource(&self) -> &str {
        self.parts().resource
    }

    /// The object's namespace; empty for all namespaces and for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.parts().namespace
    }

    /// The object's name; empty for a collection.
    pub fn name(&self) -> &str {
        self.parts().name
    }

    /// Whether it writes an object's status only.
    pub fn is_status(&self) -> bool {
        self.parts().subresource == "status"
    }

    fn parts(&self) -> Parts<'_> {
        let mut segments: Vec<&str> = self.path.trim_matches('/').split('/').collect();
        let prefix = match segments.first() {
            Some(&"api") => 2,
            Some(&"apis") => 3,
            _ => return Parts::default(),
        };
        segments.drain(..prefix.min(segments.len()));
        let at = |index: usize| segments.get(index).copied().unwrap_or_default();
        if at(0) == "namespaces" && segments.len() > 2 {
            return Parts { namespace: at(1), resource: at(2), name: at(3), subresource: at(4) };
        }
        Parts { namespace: "", resource: at(0), name: at(1), subresource: at(2) }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}?{}", self.method, self.path, self.query)
    }
}

/// A request and what became of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request.
    pub asked: Asked,
    /// When it came.
    pub at: Instant,
    /// SHA-256 of the request's body, in hexadecimal.
    pub body_sha256: String,
    /// What the API server answered. None: it was not asked, or it did not answer.
    pub server: Option<u16>,
    /// What the host was told. None: its connection was closed instead.
    pub host: Option<u16>,
    /// For writes that went through: whether the object has another resourceVersion than just before. None: not known.
    pub changed: Option<bool>,
}

impl Exchange {
    /// Whether the API server has carried it out.
    pub fn went_through(&self) -> bool {
        self.server.is_some_and(|code| (200..300).contains(&code))
    }
}

/// Exchanges in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub struct Traffic(pub Vec<Exchange>);

impl Traffic {
    /// Those that match.
    #[must_use]
    pub fn of(&self, matches: impl Fn(&Asked) -> bool) -> Self {
        Self(self.0.iter().filter(|one| matches(&one.asked)).cloned().collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes that the API server has carried out.
    #[must_use]
    pub fn writes(&self) -> Self {
        Self(
            self.0
                .iter()
                .filter(|one| one.asked.is_write() && one.went_through())
                .cloned()
                .collect(),
        )
    }

    /// Applies that created an object.
    #[must_use]
    pub fn creations(&self) -> Self {
        Self(self.writes().0.into_iter().filter(|one| one.server == Some(201)).collect())
    }

    /// Deletions that the API server has accepted.
    #[must_use]
    pub fn deletions(&self) -> Self {
        self.writes().of(|asked| asked.method == Method::DELETE)
    }

    /// Writes that left everything as it was.
    #[must_use]
    pub fn idle_writes(&self) -> Self {
        Self(self.writes().0.into_iter().filter(|one| one.changed == Some(false)).collect())
    }

    /// Writes that put back what an earlier write of the same object had replaced: A, B, A.
    #[must_use]
    pub fn reversals(&self) -> Self {
        let mut seen: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
        let reverses = |one: &Exchange| {
            let (last, all) = seen.entry(one.asked.path.clone()).or_default();
            let again = !all.insert(one.body_sha256.clone()) && *last != one.body_sha256;
            last.clone_from(&one.body_sha256);
            again
        };
        let applies = self.writes().of(|asked| asked.method == Method::PATCH);
        Self(
            applies
                .0
                .into_iter()
                .filter({
                    let mut reverses = reverses;
                    move |one| reverses(one)
                })
                .collect(),
        )
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |code: Option<u16>| code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        for one in &self.0 {
            let digest = one.body_sha256.get(..8).unwrap_or_default();
            let (server, host) = (told(one.server), told(one.host));
            writeln!(
                f,
                "{} [{digest}] server {server}, host {host}, changed {:?}",
                one.asked, one.changed
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str) -> Asked {
        Asked { method: Method::PATCH, path: path.to_owned(), query: String::new() }
    }

    fn write(path: &str, content: &str) -> Exchange {
        Exchange {
            asked: asked(path),
            at: Instant::now(),
            body_sha256: content.to_owned(),
            server: Some(200),
            host: Some(200),
            changed: Some(true),
        }
    }

    #[test]
    fn a_path_names_its_object() {
        let status = asked("/apis/it.operator-host.dev/v1/namespaces/n/puppets/p/status");
        assert_eq!((status.namespace(), status.resource(), status.name()), ("n", "puppets", "p"));
        assert!(status.is_status());
        let namespace = asked("/api/v1/namespaces/n");
        assert_eq!((namespace.namespace(), namespace.resource()), ("", "namespaces"));
        assert_eq!(asked("/api/v1/pods").resource(), "pods");
        assert_eq!(asked("/version").resource(), "");
    }

    #[test]
    fn a_write_of_what_was_replaced_is_a_reversal_and_a_repeat_is_none() {
        let path = "/api/v1/namespaces/n/configmaps/a";
        let steps = |contents: &[&str]| {
            Traffic(contents.iter().map(|content| write(path, content)).collect()).reversals().len()
        };
        assert_eq!(steps(&["a", "b", "c"]), 0);
        assert_eq!(steps(&["a", "a", "b"]), 0);
        assert_eq!(steps(&["a", "b", "a"]), 1);
    }
}
