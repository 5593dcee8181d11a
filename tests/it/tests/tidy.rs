//! The workspace's shape is a promise; this holds it.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// SHA-256 of `wit/v1/plugin.wit` without comments and blank lines. Whoever changes it reads `wit/README.md` first.
const WIT_V1: &str = "0185572c548036ceafad9731dd7bd802cb06ea3c2f44ec873eb831e9b3ef054c";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file of the checkout with one of these extensions, build output apart.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files of the checkout");
    assert!(listed.status.success(), "git ls-files has failed");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let wanted = |path: &PathBuf| {
        path.extension().is_some_and(|found| extensions.iter().any(|extension| *extension == found))
    };
    listed
        .lines()
        .map(|line| root().join(line))
        .filter(wanted)
        .filter(|path| path.exists())
        .collect()
}

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Package id → (name, ids of its normal dependencies).
fn graph(metadata: &Value) -> BTreeMap<String, (String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: BTreeMap<String, String> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let normal = |dependency: &&Value| {
        dependency["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null())
    };
    metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            let id = text(&node["id"]);
            let dependencies = node["deps"].as_array().unwrap().iter().filter(normal);
            let dependencies = dependencies.map(|dependency| text(&dependency["pkg"])).collect();
            (id.clone(), (names[&id].clone(), dependencies))
        })
        .collect()
}

fn direct(graph: &BTreeMap<String, (String, Vec<String>)>, name: &str) -> BTreeSet<String> {
    let (_, (_, dependencies)) = graph.iter().find(|(_, (found, _))| found == name).unwrap();
    dependencies.iter().map(|id| graph[id].0.clone()).collect()
}

fn tree(graph: &BTreeMap<String, (String, Vec<String>)>, name: &str) -> BTreeSet<String> {
    let start = graph.iter().find(|(_, (found, _))| found == name).unwrap().0.clone();
    let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
    while let Some(id) = next.pop() {
        if seen.insert(id.clone()) {
            next.extend(graph[&id].1.iter().cloned());
        }
    }
    seen.into_iter().map(|id| graph[&id].0.clone()).collect()
}

#[test]
fn the_arrows_point_to_core() {
    let graph = graph(&metadata());
    let ours = [
        "host-core",
        "host-engine",
        "host-kube",
        "host-redis",
        "host-wasm",
        "operator-host",
        "operator-host-sdk",
        "operator-host-kit",
    ];
    let allowed: [(&str, &[&str]); 9] = [
        ("host-core", &[]),
        ("host-kube", &["host-core"]),
        ("host-redis", &["host-core"]),
        ("host-wasm", &["host-core"]),
        ("host-engine", &["host-core", "host-kube", "host-redis", "host-wasm"]),
        ("operator-host", &["host-core", "host-engine", "host-kube", "host-wasm"]),
        ("operator-host-sdk", &[]),
        ("redis-plugin", &["operator-host-sdk"]),
        ("hello-plugin", &["operator-host-sdk"]),
    ];
    for (package, allowed) in allowed {
        let found: BTreeSet<String> = direct(&graph, package)
            .into_iter()
            .filter(|name| ours.contains(&name.as_str()))
            .collect();
        let allowed: BTreeSet<String> = allowed.iter().map(ToString::to_string).collect();
        assert!(
            found.is_subset(&allowed),
            "{package} depends on {found:?}, allowed are {allowed:?}"
        );
    }
}

#[test]
fn core_touches_nothing() {
    let tree = tree(&graph(&metadata()), "host-core");
    for forbidden in
        ["tokio", "kube", "kube-client", "wasmtime", "redis", "hyper", "rand", "chrono"]
    {
        assert!(!tree.contains(forbidden), "{forbidden} is in the tree of host-core");
    }
}

#[test]
fn guests_carry_no_kubernetes_library() {
    let graph = graph(&metadata());
    for guest in ["redis-plugin", "hello-plugin"] {
        let tree = tree(&graph, guest);
        for forbidden in ["k8s-openapi", "kube", "tokio", "wasmtime"] {
            assert!(!tree.contains(forbidden), "{forbidden} is in the tree of {guest}");
        }
    }
}

#[test]
fn each_outside_world_has_one_crate_that_knows_it() {
    let graph = graph(&metadata());
    let deny: toml::Table = read(root().join("deny.toml")).parse().unwrap();
    for rule in deny["bans"]["deny"].as_array().unwrap() {
        let banned = rule["crate"].as_str().unwrap();
        let wrappers: Vec<&str> = rule["wrappers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        let users = graph
            .iter()
            .filter(|(id, _)| id.starts_with("path+"))
            .filter(|(_, (_, dependencies))| dependencies.iter().any(|id| graph[id].0 == banned));
        for (_, (user, _)) in users {
            assert!(
                wrappers.contains(&user.as_str()),
                "{user} depends on {banned}; only {wrappers:?} may"
            );
        }
    }
}

#[test]
fn every_dependency_has_a_licence_that_fits() {
    let deny: toml::Table = read(root().join("deny.toml")).parse().unwrap();
    let allowed: BTreeSet<&str> = deny["licenses"]["allow"]
        .as_array()
        .unwrap()
        .iter()
        .map(|licence| licence.as_str().unwrap())
        .collect();
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let name = &package["name"];
        let expression =
            package["license"].as_str().unwrap_or_else(|| panic!("{name} states no licence"));
        let fits = expression
            .replace('/', " OR ")
            .replace(['(', ')'], "")
            .split(" AND ")
            .all(|all| all.split(" OR ").any(|one| allowed.contains(one.trim())));
        assert!(fits, "{name} is under {expression}");
    }
}

#[test]
fn the_released_contract_is_frozen() {
    let text = read(root().join("wit/v1/plugin.wit"));
    let bare: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
        .flat_map(|line| [line, "\n"])
        .collect();
    let digest = format!("{:x}", Sha256::digest(bare));
    assert_eq!(digest, WIT_V1, "a type of wit/v1 has changed; wit/README.md says what may");
}

#[test]
fn every_major_has_its_bindings() {
    for entry in std::fs::read_dir(root().join("wit")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with('v') {
            let bindings = root().join(format!("host/wasm/src/bindings/{name}.rs"));
            assert!(bindings.exists(), "wit/{name} has no {}", bindings.display());
        }
    }
}

#[test]
fn every_decision_is_held_and_cited() {
    let sources: String = files(&["rs", "toml", "yaml", "wit"]).iter().map(read).collect();
    for path in
        files(&["md"]).into_iter().filter(|path| path.parent().unwrap().ends_with("docs/adr"))
    {
        let text = read(&path);
        for section in
            ["## Context", "## Decision", "## Consequences", "## Alternatives", "## Held by"]
        {
            assert!(text.contains(section), "{} has no {section}", path.display());
        }
        let number =
            path.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().to_owned();
        assert!(sources.contains(&format!("ADR {number}")), "no code cites ADR {number}");
    }
}

#[test]
fn links_in_markdown_lead_somewhere() {
    for path in files(&["md"]) {
        let text = read(&path);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let file = path.parent().unwrap().join(target);
            assert!(file.exists(), "{} links to {target}, which does not exist", path.display());
        }
    }
}

/// `tests/README.md` says which test holds which scenario.
#[test]
fn every_test_that_is_named_exists() {
    let sources: String = files(&["rs"]).iter().map(read).collect();
    let table = read(root().join("tests/README.md"));
    let named: BTreeSet<&str> =
        table.split('`').filter_map(|part| part.split_once("::")).map(|(_, test)| test).collect();
    assert!(named.len() > 50, "the table is read wrongly: {named:?}");
    for test in named {
        assert!(sources.contains(&format!("fn {test}(")), "no test is called {test}");
    }
}

#[test]
fn every_source_file_belongs_to_a_module() {
    for path in files(&["rs"]) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert_ne!(name, "mod", "{}: foo.rs beside foo/, not foo/mod.rs", path.display());
        let parts: Vec<_> =
            path.components().map(|part| part.as_os_str().to_str().unwrap()).collect();
        let Some(source) = parts.iter().rposition(|part| *part == "src") else { continue };
        if parts.len() - source == 2 && ["lib", "main", "build"].contains(&name.as_str())
            || parts.contains(&"bin")
        {
            continue;
        }
        let folder = path.parent().unwrap();
        let parent = match parts.len() - source {
            2 => ["lib.rs", "main.rs"].map(|file| folder.join(file)).to_vec(),
            _ => vec![folder.with_extension("rs")],
        };
        let siblings = files(&["rs"]).into_iter().filter(|other| other.parent() == Some(folder));
        let named = parent.into_iter().chain(siblings).filter(|file| file.exists()).any(|file| {
            let text = read(file);
            text.contains(&format!("mod {name};")) || text.contains(&format!("\"{name}.rs\""))
        });
        assert!(named, "{} is in no module", path.display());
    }
}
