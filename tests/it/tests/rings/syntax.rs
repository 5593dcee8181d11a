use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, ExprLit, Item, ItemConst, ItemEnum, ItemExternCrate, ItemFn, ItemForeignMod,
    ItemImpl, ItemMacro, ItemMod, ItemStatic, ItemStruct, ItemTrait, ItemTraitAlias, ItemType,
    ItemUnion, ItemUse, Lit, Meta, MetaList, Signature, Token,
};

/// The attributes of an item, and the name that it defines in its file.
pub(crate) fn describe(item: &Item) -> (&[Attribute], Option<String>) {
    match item {
        Item::Const(ItemConst { attrs, ident, .. })
        | Item::Enum(ItemEnum { attrs, ident, .. })
        | Item::Fn(ItemFn { attrs, sig: Signature { ident, .. }, .. })
        | Item::Macro(ItemMacro { attrs, ident: Some(ident), .. })
        | Item::Static(ItemStatic { attrs, ident, .. })
        | Item::Struct(ItemStruct { attrs, ident, .. })
        | Item::Trait(ItemTrait { attrs, ident, .. })
        | Item::TraitAlias(ItemTraitAlias { attrs, ident, .. })
        | Item::Type(ItemType { attrs, ident, .. })
        | Item::Union(ItemUnion { attrs, ident, .. }) => (attrs, Some(ident.to_string())),
        Item::ExternCrate(ItemExternCrate { attrs, .. })
        | Item::ForeignMod(ItemForeignMod { attrs, .. })
        | Item::Impl(ItemImpl { attrs, .. })
        | Item::Macro(ItemMacro { attrs, .. })
        | Item::Mod(ItemMod { attrs, .. })
        | Item::Use(ItemUse { attrs, .. }) => (attrs, None),
        Item::Verbatim(_) | _ => (&[], None),
    }
}

/// `#[cfg(test)]`, alone or as part of `all`.
pub(crate) fn for_tests(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .any(|attribute| attribute.parse_args().is_ok_and(|condition| needs_test(&condition)))
}

fn needs_test(condition: &Meta) -> bool {
    let parse = |list: &MetaList| {
        list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default()
    };
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => list.path.is_ident("all") && parse(list).iter().any(needs_test),
        Meta::NameValue(_) => false,
    }
}

/// The path of `#[path = "..."]`.
pub(crate) fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) = &pair.value else { return None };
    pair.path.is_ident("path").then(|| path.value())
}
