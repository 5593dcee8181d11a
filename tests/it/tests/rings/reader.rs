use std::path::{Component, Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ImplItemFn, Item, ItemMod, ItemUse, Macro, MetaList, UseTree, Visibility};

use crate::syntax::{describe, for_tests, path_attribute};
use crate::tree::{Meaning, Tree};

/// Text of a file, by its path from the root of the workspace.
pub(crate) type Source<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// The module tree below this file.
pub(crate) fn read(source: Source, root: &Path) -> Tree {
    let mut tree = Tree::default();
    read_file(source, &mut tree, root, root.parent().unwrap().into(), 0);
    tree
}

/// Reads the file of a module whose children lie in the folder.
fn read_file(
    source: Source,
    tree: &mut Tree,
    path: &Path,
    folder: PathBuf,
    parent: usize,
) -> usize {
    let parsed = match source(path).as_deref().map(syn::parse_file) {
        Some(Ok(parsed)) => Ok(parsed),
        Some(Err(error)) => Err(format!("{}: {error}", path.display())),
        None => Err(format!("{} is missing", path.display())),
    };
    let file = tree.add_file(path.into());
    let module = tree.add_module(file, parent);
    match parsed {
        Ok(parsed) if for_tests(&parsed.attrs) => {}
        Ok(parsed) => {
            Reader { source, tree, path, file, module, folder, inline: false }.visit_file(&parsed);
        }
        Err(trouble) => tree.troubles.push(trouble),
    }
    module
}

/// Reads one module into the tree.
struct Reader<'a> {
    source: Source<'a>,
    tree: &'a mut Tree,
    path: &'a Path,
    file: usize,
    module: usize,
    folder: PathBuf,
    inline: bool,
}

impl Reader<'_> {
    /// The file of `mod x;`, and the folder of its children.
    fn locate(&self, item: &ItemMod) -> (PathBuf, PathBuf) {
        if let Some(path) = item.attrs.iter().find_map(path_attribute) {
            let base = if self.inline { &self.folder } else { self.path.parent().unwrap() };
            let file = without_dots(&base.join(path));
            let folder = file.parent().unwrap().to_owned();
            return (file, folder);
        }
        let folder = self.folder.join(item.ident.to_string());
        let nested = folder.join("mod.rs");
        let nested = (self.source)(&nested).is_some().then_some(nested);
        (nested.unwrap_or_else(|| folder.with_extension("rs")), folder)
    }

    fn import(&mut self, tree: &UseTree, mut path: Vec<String>) {
        let (last, name) = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.import(&tree.tree, path);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, path.clone()));
            }
            UseTree::Glob(_) => return self.tree.glob(self.module, path),
            UseTree::Name(tree) => (&tree.ident, None),
            UseTree::Rename(tree) => (&tree.ident, Some(tree.rename.to_string())),
        };
        if last != "self" || path.is_empty() {
            path.push(last.to_string());
        }
        let name = name.unwrap_or_else(|| path[path.len() - 1].clone());
        self.tree.define(self.module, name, Meaning::Import(path.clone()));
        self.tree.write(self.module, path);
    }

    /// A bare name is of this file, or what brought it in is noted already.
    fn write(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            self.tree.write(self.module, path);
        }
    }

    /// The paths among the tokens of a macro or an attribute.
    fn scan(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(ident) if colons == 2 => path.push(ident.to_string()),
                TokenTree::Ident(ident) => {
                    self.write(std::mem::replace(&mut path, vec![ident.to_string()]));
                }
                TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.write(std::mem::take(&mut path));
                }
            }
            if let TokenTree::Group(group) = token {
                self.scan(group.stream());
            } else if let TokenTree::Literal(literal) = token
                && let syn::Lit::Str(text) = syn::Lit::new(literal)
                && let Ok(path) = text.parse::<syn::Path>()
            {
                // As in `#[schemars(schema_with = "crate::schema")]`.
                self.visit_path(&path);
            }
            colons = 0;
        }
        self.write(path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = describe(item);
        if for_tests(attributes) {
            return;
        }
        if let Some(name) = name {
            self.tree.define(self.module, name.clone(), Meaning::Item(self.file));
            if attributes.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                self.tree.define(0, name, Meaning::Item(self.file));
            }
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let child = if let Some((_, items)) = &item.content {
            let module = self.tree.add_module(self.file, self.module);
            let folder = self.folder.join(item.ident.to_string());
            let mut inner = Reader { tree: self.tree, module, folder, inline: true, ..*self };
            for item in items {
                inner.visit_item(item);
            }
            module
        } else {
            let (file, folder) = self.locate(item);
            read_file(self.source, self.tree, &file, folder, self.module)
        };
        self.tree.define(self.module, item.ident.to_string(), Meaning::Module(child));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, Vec::new());
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            self.write(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        visit::visit_macro(self, item);
        self.scan(item.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast MetaList) {
        self.scan(list.tokens.clone());
    }

    /// `pub(in path)` takes nothing from there.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}
