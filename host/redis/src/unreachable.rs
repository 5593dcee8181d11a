//! Why a server could not be asked: a reply to a probe, a problem to an action.

use host_core::limits::cut;
use host_core::snapshot::Problem;
use serde::Serialize;

use crate::limits;

/// What kind of obstacle it was. None of them means that the server is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// Nothing listens on the port.
    Refused,
    /// No connection or no answer in time.
    Timeout,
    /// No route, or the connection broke.
    Unreachable,
    /// No trust: certificates or handshake.
    Tls,
    /// The server did not accept the credentials.
    Auth,
    /// What answers does not speak Redis.
    Protocol,
    /// The reply was cut at its bound.
    TooLarge,
    /// The pod does not exist, was replaced, or has no address yet.
    NoAddress,
    /// A Secret or a key in it does not exist.
    NoSecret,
}

impl Class {
    /// The reason of the problem when an action meets it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Refused => "RedisRefused",
            Self::Timeout => "RedisTimeout",
            Self::Unreachable => "RedisUnreachable",
            Self::Tls => "RedisTls",
            Self::Auth => "RedisAuth",
            Self::Protocol => "RedisProtocol",
            Self::TooLarge => "RedisReplyTooLarge",
            Self::NoAddress => "RedisNoAddress",
            Self::NoSecret => "RedisNoSecret",
        }
    }
}

/// The server could not be asked, or not to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Unreachable {
    /// For programs.
    pub class: Class,
    /// For people. Holds no secret.
    pub message: String,
}

impl Unreachable {
    /// Made by the caller when a name in a request stands for nothing.
    pub fn new(class: Class, message: impl AsRef<str>) -> Self {
        Self { class, message: cut(message.as_ref(), limits::PROBLEM_BYTES_MAX) }
    }

    /// The reply to a probe, JSON.
    pub fn reply(&self) -> String {
        let message = serde_json::Value::from(self.message.as_str());
        let class = serde_json::to_value(self.class).unwrap_or_default();
        serde_json::json!({"reachable": false, "error": {"class": class, "message": message}})
            .to_string()
    }

    /// The outcome of an action.
    pub fn problem(&self) -> Problem {
        Problem { reason: self.class.reason().to_owned(), message: self.message.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_an_address_is_a_reply_like_any_other() {
        let pending = Unreachable::new(Class::NoAddress, "pod cart-redis-0 has no address yet");
        let reply: serde_json::Value = serde_json::from_str(&pending.reply()).unwrap();
        assert_eq!(reply["reachable"], false);
        assert_eq!(reply["error"]["class"], "noAddress");
        assert_eq!(pending.problem().reason, "RedisNoAddress");
    }
}
