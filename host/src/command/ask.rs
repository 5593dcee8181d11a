//! Asking a running host something it knows only in its memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::flags::ParentArgs;

/// How long the host may take to answer: it looks into its own memory.
const DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of an answer: a plan of 10,000 parents has some 5 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Asks, and gives the answer's text.
pub(crate) fn ask(host: SocketAddr, path: &str, query: &[(&str, &str)]) -> anyhow::Result<String> {
    let url = format!("http://{}{path}", reachable(host));
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(DEADLINE))
        .http_status_as_error(false)
        .build()
        .into();
    let request =
        query.iter().fold(agent.get(&url), |request, (key, value)| request.query(*key, *value));
    let mut response = request.call().with_context(|| {
        format!("asking {url} (is the host running there? name its address with --host)")
    })?;
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    let text = body.read_to_string().with_context(|| format!("reading {url}"))?;
    if !response.status().is_success() {
        bail!("{}", text.trim_end());
    }
    Ok(text)
}

/// Asks about one parent.
pub(crate) fn ask_about(parent: &ParentArgs, path: &str) -> anyhow::Result<String> {
    let ParentArgs { kind, name, namespace, host } = parent;
    ask(host.host, path, &[("kind", kind), ("namespace", namespace), ("name", name)])
}

/// Where to ask a host that listens on this address.
fn reachable(mut listens: SocketAddr) -> SocketAddr {
    if listens.ip().is_unspecified() {
        listens.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    listens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_listens_everywhere_is_asked_at_home() {
        let everywhere = "0.0.0.0:8080".parse().unwrap();
        assert_eq!(reachable(everywhere).to_string(), "127.0.0.1:8080");
        let here = "127.7.0.1:9".parse().unwrap();
        assert_eq!(reachable(here), here);
    }
}
