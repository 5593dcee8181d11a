//! The generated bindings of `wit/v1`. Everything else in this crate uses [`contract`].

#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "generated code"
)]

wit_bindgen::generate!({
    path: "../../wit/v1",
    world: "plugin",
    pub_export_macro: true,
    export_macro_name: "__export_component",
    additional_derives: [PartialEq, Eq],
});

pub use exports::operator_host::plugin::reconciler as contract;
pub use operator_host::plugin::log as host_log;
