//! The downward API's field paths.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;

/// What is known about a pod beyond its object.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub(crate) pod_ip: Ipv4Addr,
    pub(crate) host_ip: Ipv4Addr,
    pub(crate) node: String,
}

/// The value of a field path, or an error that names it.
pub(crate) fn resolve(pod: &Pod, placement: &Placement, path: &str) -> Result<String, String> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return Err(format!("field path {path:?} is not supported")),
        };
        return Ok(map.and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let value = match path {
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => placement.node.clone(),
        "spec.serviceAccountName" => {
            spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()
        }
        "status.podIP" | "status.podIPs" => placement.pod_ip.to_string(),
        "status.hostIP" | "status.hostIPs" => placement.host_ip.to_string(),
        _ => return Err(format!("field path {path:?} is not supported")),
    };
    Ok(value)
}

/// `metadata.labels['x']` → (`metadata.labels`, `x`).
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// The file format of whole maps: `key="escaped value"`, one a line.
fn lines(map: Option<&std::collections::BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={value:?}\n");
    map.into_iter().flatten().map(line).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_labels_and_addresses() {
        let mut pod = Pod::default();
        pod.metadata.labels = Some([("x".to_owned(), "1".to_owned())].into());
        let placement = Placement {
            pod_ip: Ipv4Addr::new(127, 9, 0, 1),
            host_ip: Ipv4Addr::new(127, 9, 254, 1),
            node: "node-0".to_owned(),
        };
        assert_eq!(resolve(&pod, &placement, "metadata.labels['x']").unwrap(), "1");
        assert_eq!(resolve(&pod, &placement, "status.podIP").unwrap(), "127.9.0.1");
        assert_eq!(resolve(&pod, &placement, "metadata.labels").unwrap(), "x=\"1\"\n");
        assert!(resolve(&pod, &placement, "spec.nope").is_err());
    }
}
