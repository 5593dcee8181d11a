//! Replies of a server: from RESP2 values to the JSON that a plugin reads.

use redis::{ServerError, Value};
use serde::Serialize;

use crate::limits;
use crate::resolved::Resolved;
use crate::unreachable::{Class, Unreachable};

/// One reply. Serialises as `{"text":…}`, `{"integer":…}` and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Reply {
    /// Simple and bulk strings. Bytes that are not UTF-8 become U+FFFD.
    Text(String),
    Integer(i64),
    List(Vec<Self>),
    Nil(bool),
    Error {
        code: String,
        message: String,
    },
}

/// All replies to a request.
#[derive(Serialize)]
struct Answer<'a> {
    reachable: bool,
    address: String,
    replies: &'a [Reply],
}

impl Reply {
    /// Converts what the server sent. Errors, which people read, are scrubbed of the request's secrets.
    pub(crate) fn from_value(value: Value, resolved: &Resolved) -> Result<Self, Unreachable> {
        convert(value, resolved, 0)
    }
}

/// The replies as JSON.
pub(crate) fn to_json(replies: &[Reply], resolved: &Resolved) -> Result<String, Unreachable> {
    let all = Answer { reachable: true, address: resolved.address.to_string(), replies };
    let json = serde_json::to_string(&all)
        .map_err(|error| Unreachable::new(Class::Protocol, error.to_string()))?;
    if json.len() > limits::REPLY_JSON_BYTES_MAX {
        let message =
            format!("the reply takes more than {} bytes as JSON", limits::REPLY_JSON_BYTES_MAX);
        return Err(Unreachable::new(Class::TooLarge, message));
    }
    Ok(json)
}

fn convert(value: Value, resolved: &Resolved, depth: usize) -> Result<Reply, Unreachable> {
    if depth > limits::REPLY_DEPTH_MAX {
        let message =
            format!("the reply is nested more than {} lists deep", limits::REPLY_DEPTH_MAX);
        return Err(Unreachable::new(Class::TooLarge, message));
    }
    match value {
        Value::Nil => Ok(Reply::Nil(true)),
        Value::Int(integer) => Ok(Reply::Integer(integer)),
        Value::Okay => Ok(Reply::Text("OK".to_owned())),
        Value::SimpleString(text) => Ok(Reply::Text(text)),
        Value::BulkString(bytes) => Ok(Reply::Text(
            String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        )),
        Value::Array(values) => {
            let items = values.into_iter().map(|value| convert(value, resolved, depth + 1));
            items.collect::<Result<_, _>>().map(Reply::List)
        }
        Value::ServerError(error) => Ok(from_error(&error, resolved)),
        // The connection never asks for RESP3.
        Value::Map(_)
        | Value::Attribute { .. }
        | Value::Set(_)
        | Value::Double(_)
        | Value::Boolean(_)
        | Value::VerbatimString { .. }
        | Value::BigNumber(_)
        | Value::Push { .. }
        | _ => Err(Unreachable::new(
            Class::Protocol,
            "the server answers in RESP3, which it was not asked for",
        )),
    }
}

fn from_error(error: &ServerError, resolved: &Resolved) -> Reply {
    Reply::Error {
        code: resolved.scrub(error.code()),
        message: resolved.scrub(error.details().unwrap_or_default()),
    }
}
