//! Says what some bytes are when they are not a component, from their first eight.

use crate::error::VerifyError;

const WASM: &[u8] = b"\0asm";
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// A packed payload, by its magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            Some(Self::Gzip)
        } else if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// Passes what begins like a component.
pub(crate) fn expect_component(bytes: &[u8]) -> Result<(), VerifyError> {
    if bytes.starts_with(COMPONENT) {
        return Ok(());
    }
    let (found, fix) = describe(bytes);
    Err(VerifyError::NotAComponent { found, fix })
}

fn describe(bytes: &[u8]) -> (String, &'static str) {
    if bytes.starts_with(CORE_MODULE) {
        let fix = "wrap it with `cargo plugin build`, or with `wasm-tools component new`";
        return ("is a core module, not a component".into(), fix);
    }
    if COMPONENT.starts_with(bytes) || CORE_MODULE.starts_with(bytes) {
        let found = format!("has only {} bytes", bytes.len());
        return (found, "it was cut off; copy the file again");
    }
    if bytes.starts_with(WASM) {
        let fix = "build it with a toolchain of the current component model";
        return ("is WebAssembly of an unknown version".into(), fix);
    }
    if wasmtime::Engine::detect_precompiled(bytes).is_some() {
        let fix = "ship the .wasm component; only code that this host compiled itself is run";
        return ("is precompiled machine code".into(), fix);
    }
    if bytes.starts_with(b"\x7fELF") {
        return ("is a native program (ELF)".into(), "build it for wasm32-unknown-unknown");
    }
    if let Some(packing) = Packing::of(bytes) {
        let found = format!("is {} within its packing", packing.name());
        return (found, "pack the component once");
    }
    let head = bytes.get(..bytes.len().min(8)).unwrap_or_default();
    match std::str::from_utf8(head) {
        Ok(text) if !text.chars().any(|c| c.is_control() && !c.is_whitespace()) => {
            let fix = "give the .wasm file itself, in the ConfigMap's binaryData";
            (format!("is a text that begins with {text:?}"), fix)
        }
        _ => {
            let hex: Vec<String> = head.iter().map(|byte| format!("{byte:02x}")).collect();
            (format!("begins with the bytes {}", hex.join(" ")), "give a .wasm component")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_it_was_given_and_what_to_do() {
        for (bytes, found) in [
            (&b""[..], "has only 0 bytes"),
            (b"\0asm", "has only 4 bytes"),
            (b"\0asm\x01\0\0\0more", "core module"),
            (b"\0asm\x0a\0\x01\0", "unknown version"),
            (b"\x7fELF\x02\x01\x01\0 and more", "native program"),
            (b"\x1f\x8b\x08\0", "gzip"),
            (b"apiVersion: v1", "text that begins with \"apiVersi\""),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "bytes ff d8 ff e0"),
        ] {
            let message = expect_component(bytes).unwrap_err().to_string();
            assert!(message.contains(found), "{message}");
        }
        assert!(expect_component(b"\0asm\x0d\0\x01\0").is_ok());
    }
}
