//! A component in ConfigMaps: packed, and in as many parts as it takes.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use host_core::text;

/// Bytes of one ConfigMap: the values of one may have 1,048,576.
const PART_BYTES: usize = 1_000_000;

/// As a ConfigMap carries a component.
pub fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// What one ConfigMap has of a component.
#[derive(Debug)]
pub struct Part {
    /// The ConfigMap's name.
    pub name: String,
    /// Its `data`.
    pub data: BTreeMap<&'static str, String>,
    /// Its `binaryData`.
    pub binary_data: BTreeMap<String, String>,
}

/// A packed component in one ConfigMap, or in one for each part of it that fits; text goes to the first.
pub fn parts(name: &str, packed: &[u8], data: BTreeMap<&'static str, String>) -> Vec<Part> {
    let count = packed.len().div_ceil(PART_BYTES);
    let mut data = Some(data);
    let part = |(index, part): (usize, &[u8])| {
        let number = index + 1;
        let (name, key) = if count == 1 {
            (name.to_owned(), text::KEY_WASM.to_owned())
        } else {
            (format!("{name}-{number}"), format!("{}.{number}-of-{count}", text::KEY_WASM))
        };
        let binary_data = BTreeMap::from([(key, STANDARD.encode(part))]);
        Part { name, data: data.take().unwrap_or_default(), binary_data }
    };
    packed.chunks(PART_BYTES).enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_one_part_and_what_does_not_is_numbered() {
        let data = || BTreeMap::from([("text", "here".to_owned())]);
        let one = parts("demo", &packed(b"component").unwrap(), data());
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].name, "demo");
        assert!(one[0].binary_data.contains_key(text::KEY_WASM));

        let bytes = vec![7; PART_BYTES + 1];
        let two = parts("demo", &bytes, data());
        let names: Vec<_> = two.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["demo-1", "demo-2"]);
        assert_eq!((two[0].data.clone(), two[1].data.len()), (data(), 0));
        let values = two.iter().flat_map(|part| part.binary_data.values());
        let whole: Vec<u8> = values.flat_map(|value| STANDARD.decode(value).unwrap()).collect();
        assert_eq!(whole, bytes);
    }
}
