//! One command of a request: parsed, and judged against the table and the granted groups.
//!
//! **Invariant:** a Secret is only ever placed where no reply can show it: a password setting, a password rule of
//! a user, the credentials of `MIGRATE`.
//!
//! **Invariant:** a server is only ever told to talk to the address of a pod that the caller resolved.

use serde::Deserialize;
use serde_json::Value;

use crate::groups::{Group, Groups};
use crate::limits;
use crate::name::{is_object_name, is_secret_key};
use crate::purpose::Purpose;
use crate::refused::{RefusedRequest, field};
use crate::resolved::{Resolved, SecretKey, SecretValue};
use crate::table::{self, FIXED_SETTINGS, HIDDEN_SETTINGS, SECRET_SETTINGS, Shape};
use crate::unreachable::{Class, Unreachable};

/// One word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Sent as it is.
    Text(String),
    /// Sent as `prefix` followed by the Secret's value.
    Secret { key: SecretKey, prefix: Option<String> },
    /// Sent as the pod's address.
    PodIp(String),
}

/// A placeholder as it is written in a request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Placeholder {
    Secret { name: String, key: String, prefix: Option<String> },
    PodIp(String),
}

/// A command that may be sent.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    words: Vec<Word>,
    name: String,
}

impl Command {
    /// Parses and judges one command; `path` is where it stands in the request.
    pub(crate) fn parse(
        path: &str,
        words: Vec<Value>,
        purpose: Purpose,
        groups: &Groups,
    ) -> Result<Self, RefusedRequest> {
        if words.len() > limits::WORDS_MAX {
            let problem =
                format!("has {} words, at most {} are allowed", words.len(), limits::WORDS_MAX);
            return Err(field(path, problem));
        }
        let parse = |(index, word)| parse_word(&format!("{path}[{index}]"), word);
        let words = words.into_iter().enumerate().map(parse).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = literal(words.first()) else {
            return Err(field(path, "must start with the name of a command, a string"));
        };
        let row = table::find(first, literal(words.get(1)));
        let name = match (row.words, literal(words.get(1))) {
            ([name], _) => (*name).to_owned(),
            ([name, sub], _) => format!("{name} {sub}"),
            (_, Some(second)) => format!("{} {}", shown(first), shown(second)),
            (_, None) => shown(first),
        };
        if purpose == Purpose::Probe && row.group != Group::Observe {
            let problem = format!(
                "{name} is in group {}, but a probe only observes; make it an action",
                row.group
            );
            return Err(field(path, problem));
        }
        if !groups.contains(row.group) {
            return Err(RefusedRequest::NotGranted {
                path: path.to_owned(),
                command: name,
                group: row.group,
            });
        }
        judge(path, &words, row.shape)?;
        Ok(Self { words, name })
    }

    /// The command's own words, for people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Secrets it needs.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &SecretKey> {
        self.words.iter().filter_map(|word| match word {
            Word::Secret { key, .. } => Some(key),
            Word::Text(_) | Word::PodIp(_) => None,
        })
    }

    /// Pods whose address it needs.
    pub(crate) fn pod_ips(&self) -> impl Iterator<Item = &str> {
        self.words.iter().filter_map(|word| match word {
            Word::PodIp(pod) => Some(pod.as_str()),
            Word::Text(_) | Word::Secret { .. } => None,
        })
    }

    /// What goes on the wire. Each word is a counted string there, so no word can hold a second command.
    pub(crate) fn packed(&self, resolved: &Resolved) -> Result<redis::Cmd, Unreachable> {
        let mut packed = redis::Cmd::new();
        for word in &self.words {
            match word {
                Word::Text(text) => packed.arg(text),
                Word::Secret { key, prefix } => {
                    let mut bytes = prefix.clone().unwrap_or_default().into_bytes();
                    bytes.extend_from_slice(secret(key, resolved)?);
                    packed.arg(bytes)
                }
                Word::PodIp(pod) => {
                    let no_address =
                        || Unreachable::new(Class::NoAddress, format!("pod {pod} has no address"));
                    packed.arg(resolved.pod_ips.get(pod).ok_or_else(no_address)?.to_string())
                }
            };
        }
        Ok(packed)
    }
}

/// A Secret's value, or the fact that it does not exist.
pub(crate) fn secret<'a>(key: &SecretKey, resolved: &'a Resolved) -> Result<&'a [u8], Unreachable> {
    let missing = || Unreachable::new(Class::NoSecret, format!("{key} does not exist"));
    resolved.secrets.get(key).map(SecretValue::bytes).ok_or_else(missing)
}

fn parse_word(path: &str, word: Value) -> Result<Word, RefusedRequest> {
    let wanted = r#"must be a string, {"secret":{"name":…,"key":…}} or {"podIp":…}"#;
    let placeholder = match word {
        Value::String(text) => return Ok(Word::Text(text)),
        Value::Object(_) => serde_json::from_value(word),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(field(path, wanted));
        }
    };
    match placeholder.map_err(|error| field(path, format!("{wanted}: {error}")))? {
        Placeholder::PodIp(pod) if !is_object_name(&pod) => {
            Err(field(path, "podIp is not the name of a pod"))
        }
        Placeholder::PodIp(pod) => Ok(Word::PodIp(pod)),
        Placeholder::Secret { name, key, prefix } => {
            Ok(Word::Secret { key: secret_key(path, name, key)?, prefix })
        }
    }
}

/// Checks the form of a reference to a Secret.
pub(crate) fn secret_key(
    path: &str,
    name: String,
    key: String,
) -> Result<SecretKey, RefusedRequest> {
    if !is_object_name(&name) {
        return Err(field(path, "name is not the name of a Secret"));
    }
    if !is_secret_key(&key) {
        return Err(field(path, "key is not a key of a Secret"));
    }
    Ok(SecretKey { name, key })
}

fn literal(word: Option<&Word>) -> Option<&str> {
    match word {
        Some(Word::Text(text)) => Some(text),
        Some(Word::Secret { .. } | Word::PodIp(_)) | None => None,
    }
}

/// A word of an unknown command, made fit for a message.
fn shown(word: &str) -> String {
    host_core::limits::cut(&word.escape_default().to_string(), 32)
}

fn is_word(word: Option<&Word>, text: &str) -> bool {
    literal(word).is_some_and(|word| word.eq_ignore_ascii_case(text))
}

/// Checks the arguments of a command. First where pods must stand, then where Secrets may.
fn judge(path: &str, words: &[Word], shape: Shape) -> Result<(), RefusedRequest> {
    let is_no_one = is_word(words.get(1), "NO") && is_word(words.get(2), "ONE") && words.len() == 3;
    match shape {
        Shape::ReplicaOf if is_no_one => {}
        Shape::ReplicaOf | Shape::Migrate => pod_at(path, words, 1)?,
        Shape::PodAt(index) => pod_at(path, words, index)?,
        Shape::PodAfterTo => {
            let after_to = (1..words.len()).filter(|index| is_word(words.get(*index), "TO"));
            after_to.into_iter().try_for_each(|index| pod_at(path, words, index + 1))?;
        }
        Shape::ConfigGet => judge_config_get(path, words)?,
        Shape::ConfigSet => judge_config_set(path, words)?,
        Shape::AclSetUser => judge_acl_rules(path, words)?,
        Shape::Plain => {}
    }
    for (index, word) in words.iter().enumerate() {
        let path = || format!("{path}[{index}]");
        match (may_be_secret(words, index, shape), word) {
            (false, Word::Secret { .. }) => {
                return Err(field(
                    path(),
                    "a Secret cannot stand here: its value could be read back",
                ));
            }
            (true, Word::Secret { prefix: Some(_), .. }) if shape != Shape::AclSetUser => {
                return Err(field(path(), "prefix is for the rules of ACL SETUSER; leave it out"));
            }
            (true, Word::Text(text)) if shape != Shape::AclSetUser && !text.is_empty() => {
                return Err(field(
                    path(),
                    "a password is not written into a request; use {\"secret\":…}",
                ));
            }
            (true, Word::PodIp(_)) => return Err(field(path(), "a pod's address is no password")),
            (_, Word::Text(_) | Word::Secret { .. } | Word::PodIp(_)) => {}
        }
    }
    Ok(())
}

fn may_be_secret(words: &[Word], index: usize, shape: Shape) -> bool {
    let before = |back: usize| index.checked_sub(back).and_then(|index| words.get(index));
    match shape {
        Shape::ConfigSet if index >= 3 && index % 2 == 1 => {
            SECRET_SETTINGS.iter().any(|setting| is_word(before(1), setting))
        }
        Shape::AclSetUser => index >= 3 && !matches!(words.get(index), Some(Word::PodIp(_))),
        // MIGRATE host port key db timeout [COPY] [REPLACE] [AUTH password | AUTH2 user password] [KEYS key …]
        Shape::Migrate
            if index >= 7
                && !words.iter().take(index).skip(6).any(|word| is_word(Some(word), "KEYS")) =>
        {
            is_word(before(1), "AUTH") || (index >= 8 && is_word(before(2), "AUTH2"))
        }
        Shape::Plain
        | Shape::ConfigGet
        | Shape::ConfigSet
        | Shape::ReplicaOf
        | Shape::PodAt(_)
        | Shape::PodAfterTo
        | Shape::Migrate => false,
    }
}

fn pod_at(path: &str, words: &[Word], index: usize) -> Result<(), RefusedRequest> {
    match words.get(index) {
        Some(Word::PodIp(_)) => Ok(()),
        Some(Word::Text(_) | Word::Secret { .. }) | None => {
            let problem = r#"must name a pod of this namespace, {"podIp":"<pod>"}, not an address"#;
            Err(field(format!("{path}[{index}]"), problem))
        }
    }
}

/// The name of a setting at a position: literal, without the wildcards of `CONFIG GET`.
fn setting<'a>(path: &str, words: &'a [Word], index: usize) -> Result<&'a str, RefusedRequest> {
    let plain = |name: &&str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    literal(words.get(index)).filter(plain).ok_or_else(|| {
        field(format!("{path}[{index}]"), "must be the exact name of a setting, without wildcards")
    })
}

fn judge_config_get(path: &str, words: &[Word]) -> Result<(), RefusedRequest> {
    for index in 2..words.len() {
        let name = setting(path, words, index)?;
        let mut hidden = SECRET_SETTINGS.iter().chain(&HIDDEN_SETTINGS);
        if hidden.any(|hidden| hidden.eq_ignore_ascii_case(name)) {
            return Err(field(
                format!("{path}[{index}]"),
                format!("{name} is a credential and is never read"),
            ));
        }
    }
    Ok(())
}

fn judge_config_set(path: &str, words: &[Word]) -> Result<(), RefusedRequest> {
    if words.len() % 2 == 1 || words.len() < 4 {
        return Err(field(path, "CONFIG SET needs pairs of a setting and a value"));
    }
    for index in (2..words.len()).step_by(2) {
        let name = setting(path, words, index)?;
        if FIXED_SETTINGS.iter().any(|fixed| fixed.eq_ignore_ascii_case(name)) {
            let problem = format!(
                "{name} is never set at run time; put it into the server's configuration file"
            );
            return Err(field(format!("{path}[{index}]"), problem));
        }
    }
    Ok(())
}

fn judge_acl_rules(path: &str, words: &[Word]) -> Result<(), RefusedRequest> {
    for (index, word) in words.iter().enumerate().skip(3) {
        let path = || format!("{path}[{index}]");
        match word {
            Word::Text(rule) if rule.starts_with(['>', '<']) => {
                let problem =
                    r#"a password is not written into a request; use {"secret":{…,"prefix":">"}}"#;
                return Err(field(path(), problem));
            }
            Word::Secret { prefix, .. } if !matches!(prefix.as_deref(), Some(">" | "<")) => {
                return Err(field(
                    path(),
                    r#"a rule with a Secret needs the prefix ">" (add) or "<" (remove)"#,
                ));
            }
            Word::Text(_) | Word::Secret { .. } | Word::PodIp(_) => {}
        }
    }
    Ok(())
}
