//! Stage *capture*: takes a plugin's bytes once, unpacked, and gives them their identity.
//!
//! **Invariant:** the digest is of the component itself, so the same plugin has one identity however it was packed,
//! and everything after this stage works on the bytes that were hashed.

use std::io::{self, Read};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use host_core::ident::{Digest, PluginId};

use crate::error::{CaptureError, LoadError};
use crate::limits::COMPONENT_BYTES_MAX;
use crate::sniff::Packing;

/// log2 of the largest zstd window: 2^23 = 8 MiB, all that a component of the largest size can use.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A plugin's bytes with their identity; nothing is known about them yet.
#[derive(Clone, Debug)]
pub struct CapturedPlugin {
    id: PluginId,
    bytes: Arc<[u8]>,
}

impl CapturedPlugin {
    /// Captures `payload`: a component, plain or packed with gzip or zstd.
    ///
    /// `source_name` is what people call the place it came from; it stands for the plugin's name until the plugin
    /// has described itself.
    pub fn new(source_name: &str, payload: &[u8]) -> Result<Self, LoadError> {
        let bytes = unpack(payload)
            .map_err(|source| LoadError::Capture { name: source_name.to_owned(), source })?;
        let id = PluginId { name: source_name.into(), digest: Digest::of(&bytes) };
        Ok(Self { id, bytes: bytes.into() })
    }

    /// The source's name and the component's digest.
    pub fn id(&self) -> &PluginId {
        &self.id
    }

    /// The component, unpacked.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn unpack(payload: &[u8]) -> Result<Vec<u8>, CaptureError> {
    if payload.len() > COMPONENT_BYTES_MAX {
        return Err(CaptureError::TooLarge { bytes: payload.len(), max: COMPONENT_BYTES_MAX });
    }
    let Some(packing) = Packing::of(payload) else {
        return Ok(payload.to_vec());
    };
    let failed = |source| CaptureError::Unpack { packing: packing.name(), source };
    let bytes = match packing {
        Packing::Gzip => read_bounded(MultiGzDecoder::new(payload)),
        Packing::Zstd => zstd(payload).and_then(read_bounded),
    };
    let bytes = bytes.map_err(failed)?;
    if bytes.len() > COMPONENT_BYTES_MAX {
        let packing = packing.name();
        return Err(CaptureError::UnpacksTooLarge { packing, max: COMPONENT_BYTES_MAX });
    }
    Ok(bytes)
}

fn zstd(payload: &[u8]) -> io::Result<impl Read + '_> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(payload)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// Reads one byte past the bound at most: a bomb stops there, whatever it would unpack to.
fn read_bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(COMPONENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn reason(payload: &[u8]) -> String {
        let error = CapturedPlugin::new("test", payload).unwrap_err();
        std::error::Error::source(&error).unwrap().to_string()
    }

    #[test]
    fn identity_does_not_depend_on_the_packing() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let plain = CapturedPlugin::new("test", &bytes).unwrap();
        let zipped = CapturedPlugin::new("test", &gzip(&bytes)).unwrap();
        let packed = CapturedPlugin::new("test", &zstd::encode_all(&*bytes, 19).unwrap()).unwrap();
        assert_eq!(plain.id(), zipped.id());
        assert_eq!(plain.id(), packed.id());
        assert_eq!(packed.bytes(), bytes);
    }

    #[test]
    fn stops_a_decompression_bomb() {
        let zeros = vec![0; 64 << 20];
        for bomb in [gzip(&zeros), zstd::encode_all(&*zeros, 3).unwrap()] {
            assert!(bomb.len() < 80_000, "{}", bomb.len());
            let reason = reason(&bomb);
            assert!(reason.contains("unpacks to more than 8388608 bytes"), "{reason}");
        }
    }

    #[test]
    fn refuses_a_broken_packing_by_its_name() {
        let mut payload = gzip(b"some component");
        payload.truncate(payload.len() - 6);
        assert!(reason(&payload).contains("gzip"));
        assert!(reason(&[0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff]).contains("zstd"));
    }

    #[test]
    fn refuses_more_than_the_largest_component() {
        assert!(reason(&vec![0; COMPONENT_BYTES_MAX + 1]).contains("at most 8388608"));
    }
}
