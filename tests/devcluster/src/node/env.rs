//! A container's environment and the `$(NAME)` expansion of its command line.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};
use kube::Client;

use super::fields::{self, Placement};
use super::payload;

/// Variables in order, the later wins.
pub(crate) type Environment = BTreeMap<String, String>;

/// Where values come from.
pub(crate) struct Lookup<'a> {
    pub(crate) client: &'a Client,
    pub(crate) pod: &'a Pod,
    pub(crate) placement: &'a Placement,
    pub(crate) apiserver_port: u16,
}

impl Lookup<'_> {
    /// The environment of a container; an error is why it cannot be configured.
    pub(crate) async fn environment(
        &self,
        container: &Container,
        path: &str,
    ) -> Result<Environment> {
        let port = self.apiserver_port.to_string();
        let hostname = self.pod.metadata.name.clone().unwrap_or_default();
        let mut all: Environment = [
            ("PATH", path),
            ("HOME", "/root"),
            ("HOSTNAME", hostname.as_str()),
            ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", port.as_str()),
            ("KUBERNETES_SERVICE_PORT_HTTPS", port.as_str()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        self.whole_sources(container, &mut all).await?;
        for variable in container.env.iter().flatten() {
            let value = match (&variable.value, &variable.value_from) {
                (Some(value), _) => Some(expand(value, &all)),
                (None, Some(source)) => self
                    .value_from(source)
                    .await
                    .with_context(|| format!("environment variable {}", variable.name))?,
                (None, None) => Some(String::new()),
            };
            if let Some(value) = value {
                all.insert(variable.name.clone(), value);
            }
        }
        Ok(all)
    }

    async fn whole_sources(&self, container: &Container, all: &mut Environment) -> Result<()> {
        for source in container.env_from.iter().flatten() {
            let prefix = source.prefix.as_deref().unwrap_or_default();
            let (data, name, optional) = if let Some(map) = &source.config_map_ref {
                let data = payload::config_map(self.client, self.namespace(), &map.name).await?;
                (data, &map.name, map.optional)
            } else if let Some(secret) = &source.secret_ref {
                let data = payload::secret(self.client, self.namespace(), &secret.name).await?;
                (data, &secret.name, secret.optional)
            } else {
                continue;
            };
            match data {
                Some(data) => all.extend(
                    data.into_iter().map(|(key, value)| (format!("{prefix}{key}"), text(&value))),
                ),
                None if optional == Some(true) => {}
                None => bail!("envFrom source {name:?} not found"),
            }
        }
        Ok(())
    }

    async fn value_from(&self, source: &EnvVarSource) -> Result<Option<String>> {
        if let Some(field) = &source.field_ref {
            let value = fields::resolve(self.pod, self.placement, &field.field_path);
            return value.map(Some).map_err(anyhow::Error::msg);
        }
        let (data, name, key, optional) = if let Some(map) = &source.config_map_key_ref {
            let data = payload::config_map(self.client, self.namespace(), &map.name).await?;
            (data, &map.name, &map.key, map.optional)
        } else if let Some(secret) = &source.secret_key_ref {
            let data = payload::secret(self.client, self.namespace(), &secret.name).await?;
            (data, &secret.name, &secret.key, secret.optional)
        } else {
            bail!("this kind of valueFrom is not supported");
        };
        match data.and_then(|mut data| data.remove(key)) {
            Some(value) => Ok(Some(text(&value))),
            None if optional == Some(true) => Ok(None),
            None => bail!("key {key:?} of {name:?} not found"),
        }
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Replaces `$(NAME)` by the variable if there is one; `$$` is a dollar sign.
pub(crate) fn expand(input: &str, variables: &Environment) -> String {
    let mut output = String::new();
    let mut rest = input;
    while let Some((before, after)) = rest.split_once('$') {
        output.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            output.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').and_then(|inner| inner.split_once(')'))
        {
            if let Some(value) = variables.get(name) {
                output.push_str(value);
            } else {
                output.extend(["$(", name, ")"]);
            }
            rest = after;
        } else {
            output.push('$');
        }
    }
    output.push_str(rest);
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_what_is_known_and_keeps_the_rest() {
        let variables: Environment = [("IP".to_owned(), "127.9.0.1".to_owned())].into();
        assert_eq!(
            expand("bind $(IP) $(NOPE) $$(IP) $x", &variables),
            "bind 127.9.0.1 $(NOPE) $(IP) $x"
        );
        assert_eq!(expand("a$(IP", &variables), "a$(IP");
        assert_eq!(expand("$", &variables), "$");
    }
}
