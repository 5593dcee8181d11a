//! No file of a crate imports another that, directly or by way of others, imports it (ADR 0013).
//!
//! What makes an edge is where a thing is defined: re-exports are followed, `mod x;` and methods make none.

#![cfg(test)]

mod graph;
mod reader;
mod syntax;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What the folder holds, as paths from the root of the workspace.
fn list(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(workspace().join(folder)).into_iter().flatten();
    entries.map(|entry| folder.join(entry.unwrap().file_name())).collect()
}

fn packages() -> BTreeSet<PathBuf> {
    let mut packages: BTreeSet<PathBuf> =
        ["host", "plugins", "tests"].iter().flat_map(|folder| list(folder.as_ref())).collect();
    packages.insert("host".into());
    packages.retain(|package| workspace().join(package).join("Cargo.toml").exists());
    packages
}

/// The root files of a package: each has a tree of modules of its own.
fn roots(package: &Path) -> Vec<PathBuf> {
    let mut roots = list(&package.join("src/bin"));
    roots.extend(["src/lib.rs", "src/main.rs"].map(|root| package.join(root)));
    let root = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "rs") && workspace().join(path).exists()
    };
    roots.into_iter().filter(root).collect()
}

/// The rings below a root file, and whatever was in the way of finding them.
fn faults(source: reader::Source, root: &Path) -> Vec<String> {
    let mut tree = reader::read(source, root);
    let mut faults = std::mem::take(&mut tree.troubles);
    faults.extend(graph::rings(&tree.graph()));
    faults
}

#[test]
fn no_crate_has_a_ring() {
    let source = |path: &Path| std::fs::read_to_string(workspace().join(path)).ok();
    let packages = packages();
    assert!(packages.len() > 10, "the packages are listed wrongly: {packages:?}");
    let mut found = Vec::new();
    for package in packages {
        let roots = roots(&package);
        if roots.is_empty() {
            found.push(format!("{} has no src/lib.rs, main.rs or bin/*.rs", package.display()));
        }
        found.extend(roots.iter().flat_map(|root| faults(&source, root)));
    }
    assert!(found.is_empty(), "files that import each other:\n\n{}\n", found.join("\n\n"));
}

/// The faults of a crate whose root is `lib.rs`.
fn of(files: &[(&str, &str)]) -> Vec<String> {
    let source = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| (*text).to_owned())
    };
    faults(&source, Path::new("lib.rs"))
}

#[test]
fn a_ring_through_a_reexport_is_found() {
    let found = of(&[
        ("lib.rs", "mod a; mod b; pub use b::inner::Bee as Bug;"),
        ("a.rs", "use crate::Bug; pub struct Ay(Bug);"),
        ("b.rs", "pub mod inner; fn f() -> u8 { 1 }"),
        ("b/inner.rs", "use super::super::a; pub struct Bee; fn f(_: &a::Ay) {}"),
    ]);
    assert_eq!(found, ["a.rs -> (Bee) b/inner.rs -> (Ay) a.rs"]);
}

#[test]
fn a_child_that_names_its_parent_is_found() {
    for child in [
        "use super::X;",
        "use super::*;",
        "fn f(_: super::X) {}",
        "fn f() { assert!(super::X::new()); }",
        "#[serde(with = \"super::X\")] struct Y;",
        "mod inner { pub(super) use crate::a::X as Z; }",
    ] {
        let child = format!("pub struct Child; {child}");
        let found = of(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "mod child; pub struct X; fn f() { child::Child; }"),
            ("a/child.rs", &child),
        ]);
        assert_eq!(found.len(), 1, "{child}: {found:?}");
        assert!(found[0].starts_with("a.rs -> (Child) a/child.rs -> ("), "{found:?}");
    }
}

#[test]
fn the_shortest_of_a_knot_is_shown() {
    let found = of(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "use crate::b::{B, other}; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B; pub fn other() {}"),
        ("c.rs", "use crate::{a::A, d}; pub struct C; fn f() { d::f() }"),
        ("d.rs", "use crate::b::B; pub fn f() {}"),
        ("e.rs", "pub use crate::a::A;"),
    ]);
    assert_eq!(found, ["a.rs -> (B, other) b.rs -> (C) c.rs -> (A) a.rs"]);
}

#[test]
fn none_is_found_where_there_is_none() {
    let found = of(&[
        ("lib.rs", "mod a; pub use a::Outer; pub use a::one::One; fn f() { Outer::new(); }"),
        (
            "a.rs",
            "mod one; #[path = \"two.rs\"] mod other; pub struct Outer(one::One, other::Two);",
        ),
        (
            "a/one.rs",
            "pub struct One(super::other::Two); pub(in crate::a) mod of { use super::One; }",
        ),
        (
            "two.rs",
            "use std::fmt::{self, Debug}; pub struct Two; fn f(_: &dyn Debug, _: fmt::Error) {}",
        ),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn what_is_for_tests_makes_no_ring() {
    let found = of(&[
        ("lib.rs", "mod a; pub struct Root; fn f() { a::f() }"),
        (
            "a.rs",
            "pub fn f() {} struct S; #[cfg(test)] mod absent;
            #[cfg(all(test, unix))] use crate::Root;
            #[cfg(test)] mod tests { use crate::Root; }
            impl S { #[cfg(test)] fn g(_: crate::Root) {} }",
        ),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_fault() {
    let found = of(&[("lib.rs", "mod a; mod b;"), ("a.rs", "fn {")]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[1], "b.rs is missing");
}
