//! The host's log. Outside of a component (in native tests) messages go nowhere.

pub use crate::bindings::host_log::Level;

/// Writes one message. The host adds the plugin, its digest and the parent; a call may write 64 KiB.
pub fn write(level: Level, message: &str, fields: &[(&str, &str)]) {
    #[cfg(target_family = "wasm")]
    {
        let fields: Vec<(String, String)> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        crate::bindings::host_log::write(level, message, &fields);
    }
    #[cfg(not(target_family = "wasm"))]
    let _ = (level, message, fields);
}

/// Something went wrong.
pub fn error(message: &str, fields: &[(&str, &str)]) {
    write(Level::Error, message, fields);
}

/// Something may go wrong.
pub fn warn(message: &str, fields: &[(&str, &str)]) {
    write(Level::Warn, message, fields);
}

/// Something happened.
pub fn info(message: &str, fields: &[(&str, &str)]) {
    write(Level::Info, message, fields);
}

/// For the plugin's author.
pub fn debug(message: &str, fields: &[(&str, &str)]) {
    write(Level::Debug, message, fields);
}
