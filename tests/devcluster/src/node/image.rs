//! What an image name stands for: programs of this machine.
//!
//! `redis:*` is the `redis-server` on PATH whatever the tag says; `operator-host:*` is the binary
//! given in the options. Everything else fails like an image that cannot be pulled.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Where the host binary appears in its container; the image's entrypoint.
const HOST_TARGET: &str = "/operator-host";
const BASE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The programs behind the image names.
#[derive(Debug)]
pub(crate) struct Images {
    redis_server: PathBuf,
    operator_host: Option<PathBuf>,
}

/// What a container gets from its image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The command line after the pod's `command` and `args` were applied.
    pub(crate) argv: Vec<String>,
    /// Host file and the place where it appears, read-only.
    pub(crate) binds: Vec<(PathBuf, String)>,
    pub(crate) workdir: &'static str,
    pub(crate) path: String,
}

impl Images {
    pub(crate) fn find(operator_host: Option<PathBuf>) -> Result<Self> {
        let operator_host = operator_host
            .map(|path| {
                path.canonicalize().with_context(|| format!("the host binary {}", path.display()))
            })
            .transpose()?;
        let redis_server =
            crate::requirements::find_program("redis-server").context("no redis-server on PATH")?;
        Ok(Self { redis_server, operator_host })
    }

    /// The image with `command` and `args` applied, or why it cannot be had.
    pub(crate) fn resolve(
        &self,
        name: &str,
        command: &[String],
        arguments: &[String],
    ) -> Result<Image, String> {
        match repository(name) {
            "redis" => Ok(self.redis(command, arguments)),
            "operator-host" => self.host(command, arguments),
            _ => Err(format!(
                "image {name:?}: the process node only knows redis:* and operator-host:*"
            )),
        }
    }

    /// As the official image's entrypoint script: options and .conf files go to redis-server.
    fn redis(&self, command: &[String], arguments: &[String]) -> Image {
        let server = self.redis_server.display().to_string();
        let mut argv = command.to_vec();
        if command.is_empty() {
            let is_option = |first: &String| {
                first.starts_with('-')
                    || Path::new(first).extension().is_some_and(|end| end == "conf")
            };
            if arguments.first().is_none_or(is_option) {
                argv.push(server);
            }
        }
        argv.extend_from_slice(arguments);
        let directory = self.redis_server.parent().map(|dir| dir.display().to_string());
        let path =
            directory.map_or_else(|| BASE_PATH.to_owned(), |dir| format!("{dir}:{BASE_PATH}"));
        let outside_usr = !self.redis_server.starts_with("/usr");
        let binds = outside_usr
            .then(|| (self.redis_server.clone(), self.redis_server.display().to_string()));
        Image { argv, binds: binds.into_iter().collect(), workdir: "/data", path }
    }

    fn host(&self, command: &[String], arguments: &[String]) -> Result<Image, String> {
        let binary = self
            .operator_host
            .clone()
            .ok_or("image operator-host: no binary was given to devcluster (--host-binary)")?;
        let mut argv =
            if command.is_empty() { vec![HOST_TARGET.to_owned()] } else { command.to_vec() };
        argv.extend_from_slice(arguments);
        Ok(Image {
            argv,
            binds: vec![(binary, HOST_TARGET.to_owned())],
            workdir: "/",
            // The root first, so that `command: [operator-host]` works too.
            path: format!("/:{BASE_PATH}"),
        })
    }
}

/// `registry:5000/library/redis:7.0@sha256:…` → `redis`.
fn repository(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split([':', '@']).next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images() -> Images {
        Images { redis_server: "/usr/bin/redis-server".into(), operator_host: None }
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn redis_arguments_follow_the_official_entrypoint() {
        let argv = |command: &str, arguments: &str| {
            let (command, arguments) = (words(command), words(arguments));
            images().resolve("docker.io/library/redis:7.0", &command, &arguments).unwrap().argv
        };
        assert_eq!(argv("", ""), words("/usr/bin/redis-server"));
        assert_eq!(argv("", "--port 1"), words("/usr/bin/redis-server --port 1"));
        assert_eq!(argv("", "/etc/redis.conf"), words("/usr/bin/redis-server /etc/redis.conf"));
        assert_eq!(argv("", "redis-server --port 1"), words("redis-server --port 1"));
        assert_eq!(argv("sh -c", "true"), words("sh -c true"));
    }

    #[test]
    fn unknown_images_are_refused() {
        let error = images().resolve("nginx:1", &[], &[]).unwrap_err();
        assert!(error.contains("nginx"), "{error}");
        assert!(images().resolve("operator-host:dev", &[], &[]).is_err());
    }
}
