//! Requests to the provider: from a plugin's JSON to something that is fit to be carried out.
//!
//! Everything after this module may rely on: bounded sizes, names that have the form of names,
//! commands that are granted.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::command::{Command, secret_key};
use crate::groups::Groups;
use crate::limits;
use crate::name::is_object_name;
use crate::purpose::Purpose;
use crate::refused::{RefusedRequest, field};
use crate::resolved::SecretKey;

/// The port if a request does not say.
const PORT_DEFAULT: u16 = 6379;

/// Who to log in as.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    /// None: the default user.
    pub(crate) username: Option<String>,
    pub(crate) password: SecretKey,
}

/// How to trust the server, and be trusted.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) ca: SecretKey,
    /// None: the pod's address.
    pub(crate) server_name: Option<String>,
    /// Certificate and key.
    pub(crate) client: Option<(SecretKey, SecretKey)>,
}

/// A request that may be carried out once its names are resolved.
#[derive(Clone, Debug)]
pub struct Request {
    pod: String,
    pod_uid: Option<String>,
    port: u16,
    pub(crate) commands: Vec<Command>,
    pub(crate) auth: Option<Auth>,
    pub(crate) tls: Option<Tls>,
    pub(crate) timeout: Duration,
}

impl Request {
    /// The pod to talk to, in the parent's namespace.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// The uid that the pod must have; None: any.
    pub fn pod_uid(&self) -> Option<&str> {
        self.pod_uid.as_deref()
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Keys of Secrets whose values it needs, in the parent's namespace.
    pub fn secrets(&self) -> BTreeSet<SecretKey> {
        let auth = self.auth.iter().map(|auth| &auth.password);
        let tls = self.tls.iter().flat_map(|tls| {
            let client = tls.client.iter().flat_map(|(certificate, key)| [certificate, key]);
            std::iter::once(&tls.ca).chain(client)
        });
        auth.chain(tls).chain(self.commands.iter().flat_map(Command::secrets)).cloned().collect()
    }

    /// Pods whose addresses it needs, in the parent's namespace; [`Self::pod`] is not among them unless a command
    /// names it.
    pub fn pod_ips(&self) -> BTreeSet<String> {
        self.commands.iter().flat_map(Command::pod_ips).map(str::to_owned).collect()
    }

    fn parse(json: &str, purpose: Purpose, groups: &Groups) -> Result<Self, RefusedRequest> {
        if json.len() > limits::REQUEST_BYTES_MAX {
            let problem = format!(
                "has {} bytes, at most {} are allowed",
                json.len(),
                limits::REQUEST_BYTES_MAX
            );
            return Err(field("request", problem));
        }
        let written: Written =
            serde_json::from_str(json).map_err(|error| field("request", error.to_string()))?;
        let Written { pod, pod_uid, port, commands, auth, tls, timeout_ms } = written;
        if !is_object_name(&pod) {
            return Err(field("pod", format!("{pod:?} is not the name of a pod")));
        }
        if port == Some(0) {
            return Err(field("port", "must be 1 to 65535"));
        }
        if commands.is_empty() || commands.len() > limits::COMMANDS_MAX {
            let problem =
                format!("has {} commands, must have 1 to {}", commands.len(), limits::COMMANDS_MAX);
            return Err(field("commands", problem));
        }
        let parse =
            |(index, words)| Command::parse(&format!("commands[{index}]"), words, purpose, groups);
        Ok(Self {
            pod,
            pod_uid,
            port: port.unwrap_or(PORT_DEFAULT),
            commands: commands.into_iter().enumerate().map(parse).collect::<Result<_, _>>()?,
            auth: auth.map(WrittenAuth::check).transpose()?,
            tls: tls.map(WrittenTls::check).transpose()?,
            timeout: timeout(timeout_ms, purpose)?,
        })
    }
}

fn timeout(ms: Option<u32>, purpose: Purpose) -> Result<Duration, RefusedRequest> {
    let (default, max) = match purpose {
        Purpose::Probe => (limits::PROBE_TIMEOUT_DEFAULT, limits::PROBE_TIMEOUT_MAX),
        Purpose::Action => (limits::ACTION_TIMEOUT_DEFAULT, limits::ACTION_TIMEOUT_MAX),
    };
    match ms {
        Some(0) => Err(field("timeoutMs", "must be at least 1")),
        Some(ms) => Ok(Duration::from_millis(ms.into()).min(max)),
        None => Ok(default),
    }
}

/// A request that only looks.
#[derive(Clone, Debug)]
pub struct ProbeRequest(Request);

impl ProbeRequest {
    /// Parses a probe. Its commands must all be in group `observe`, and that must be granted.
    pub fn parse(json: &str, groups: &Groups) -> Result<Self, RefusedRequest> {
        Request::parse(json, Purpose::Probe, groups).map(Self)
    }
}

impl Deref for ProbeRequest {
    type Target = Request;
    fn deref(&self) -> &Request {
        &self.0
    }
}

/// A request that may change something.
#[derive(Clone, Debug)]
pub struct ActionRequest(Request);

impl ActionRequest {
    /// Parses an action. Its commands must be in granted groups.
    pub fn parse(json: &str, groups: &Groups) -> Result<Self, RefusedRequest> {
        Request::parse(json, Purpose::Action, groups).map(Self)
    }
}

impl Deref for ActionRequest {
    type Target = Request;
    fn deref(&self) -> &Request {
        &self.0
    }
}

/// A request as a plugin writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    pod: String,
    pod_uid: Option<String>,
    port: Option<u16>,
    commands: Vec<Vec<Value>>,
    auth: Option<WrittenAuth>,
    tls: Option<WrittenTls>,
    timeout_ms: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenAuth {
    username: Option<String>,
    password_secret: WrittenKey,
}

impl WrittenAuth {
    fn check(self) -> Result<Auth, RefusedRequest> {
        let password = self.password_secret.check("auth.passwordSecret")?;
        Ok(Auth { username: self.username, password })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenTls {
    ca_secret: WrittenKey,
    server_name: Option<String>,
    client_cert_secret: Option<WrittenName>,
}

impl WrittenTls {
    fn check(self) -> Result<Tls, RefusedRequest> {
        let client = self.client_cert_secret.map(|secret| {
            let key =
                |key: &str| secret_key("tls.clientCertSecret", secret.name.clone(), key.to_owned());
            Ok((key("tls.crt")?, key("tls.key")?))
        });
        Ok(Tls {
            ca: self.ca_secret.check("tls.caSecret")?,
            server_name: self.server_name,
            client: client.transpose()?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    name: String,
    key: String,
}

impl WrittenKey {
    fn check(self, path: &str) -> Result<SecretKey, RefusedRequest> {
        secret_key(path, self.name, self.key)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenName {
    name: String,
}
