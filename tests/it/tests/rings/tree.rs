use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::graph::Graph;

/// What a name stands for in a module. An item is defined in a file, an import is a path.
pub(crate) enum Meaning {
    Module(usize),
    Item(usize),
    Import(Vec<String>),
}

/// Where a path leads: to a module, or to an item by its file.
enum Target {
    Module(usize),
    Item(usize, String),
}

/// Imports that are being followed, so that none is followed in a circle.
type Busy = BTreeSet<(usize, Vec<String>)>;

struct Module {
    file: usize,
    parent: usize,
    names: BTreeMap<String, Vec<Meaning>>,
    globs: Vec<Vec<String>>,
}

/// The modules below one root file, the root first, and every path that they write.
#[derive(Default)]
pub(crate) struct Tree {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
    paths: Vec<(usize, Vec<String>)>,
    pub(crate) troubles: Vec<String>,
}

impl Tree {
    pub(crate) fn add_file(&mut self, path: PathBuf) -> usize {
        self.files.push(path);
        self.files.len() - 1
    }

    pub(crate) fn add_module(&mut self, file: usize, parent: usize) -> usize {
        self.modules.push(Module { file, parent, names: BTreeMap::new(), globs: Vec::new() });
        self.modules.len() - 1
    }

    pub(crate) fn define(&mut self, module: usize, name: String, meaning: Meaning) {
        self.modules[module].names.entry(name).or_default().push(meaning);
    }

    pub(crate) fn glob(&mut self, module: usize, mut path: Vec<String>) {
        self.modules[module].globs.push(path.clone());
        path.push("*".into());
        self.write(module, path);
    }

    pub(crate) fn write(&mut self, module: usize, path: Vec<String>) {
        self.paths.push((module, path));
    }

    /// A path that ends at a module makes no edge: the paths that go on through the module do.
    pub(crate) fn graph(&self) -> Graph {
        let name = |file: usize| self.files[file].display().to_string();
        let mut graph = Graph::new();
        for (module, path) in &self.paths {
            let from = name(self.modules[*module].file);
            let (path, glob) = match path.split_last() {
                Some((last, start)) if last == "*" => (start, true),
                _ => (path.as_slice(), false),
            };
            for target in self.resolve(*module, path, &mut Busy::new()) {
                let (to, symbol) = match target {
                    Target::Item(file, symbol) => (name(file), symbol),
                    Target::Module(module) if glob => (name(self.modules[module].file), "*".into()),
                    Target::Module(_) => continue,
                };
                if from != to {
                    let edges = graph.entry(from.clone()).or_default();
                    edges.entry(to).or_default().insert(symbol);
                }
            }
        }
        graph
    }

    fn resolve(&self, from: usize, path: &[String], busy: &mut Busy) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut targets = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(from)],
            "super" => vec![Target::Module(self.modules[from].parent)],
            name => self.lookup(from, name, busy),
        };
        for name in rest {
            let module = |target: &Target| matches!(target, Target::Module(_));
            if targets.iter().any(module) {
                targets.retain(module);
            }
            let step = |target| match target {
                Target::Module(module) => self.step(module, name, busy),
                Target::Item(..) => vec![target],
            };
            targets = targets.into_iter().flat_map(step).collect();
        }
        targets
    }

    fn step(&self, module: usize, name: &str, busy: &mut Busy) -> Vec<Target> {
        if name == "super" {
            return vec![Target::Module(self.modules[module].parent)];
        }
        let found = self.lookup(module, name, busy);
        if found.is_empty() {
            // A macro has made it, or another crate has, and this file passes it on.
            return vec![Target::Item(self.modules[module].file, name.to_owned())];
        }
        found
    }

    fn lookup(&self, module: usize, name: &str, busy: &mut Busy) -> Vec<Target> {
        if let Some(meanings) = self.modules[module].names.get(name) {
            let mean = |meaning: &Meaning| match meaning {
                Meaning::Module(child) => vec![Target::Module(*child)],
                Meaning::Item(file) => vec![Target::Item(*file, name.to_owned())],
                Meaning::Import(path) => self.follow(module, path, busy),
            };
            return meanings.iter().flat_map(mean).collect();
        }
        let key = (module, vec![name.to_owned(), "*".into()]);
        let mut found = Vec::new();
        if busy.insert(key.clone()) {
            for path in &self.modules[module].globs {
                for target in self.follow(module, path, busy) {
                    if let Target::Module(other) = target {
                        found.extend(self.lookup(other, name, busy));
                    }
                }
            }
            busy.remove(&key);
        }
        found
    }

    fn follow(&self, module: usize, path: &[String], busy: &mut Busy) -> Vec<Target> {
        let key = (module, path.to_vec());
        if !busy.insert(key.clone()) {
            return Vec::new();
        }
        let targets = self.resolve(module, path, busy);
        busy.remove(&key);
        targets
    }
}
