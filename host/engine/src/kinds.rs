//! Kinds that the engine itself reads.

use host_core::ident::Kind;

/// `v1` ConfigMap: where plugins come from and are kept.
pub(crate) fn config_map() -> Kind {
    Kind::new("v1", "ConfigMap")
}
