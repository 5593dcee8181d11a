//! What may stand in a path, and what must be escaped in a query.
//!
//! **Invariant:** no text from a plugin or a user can lead a request to another path.

/// Whether a text is one segment of a path: what apimachinery's `IsValidPathSegmentName` allows, in ASCII without
/// what a URL would need escaped.
pub(crate) fn is_segment(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_graphic() && !b"/%?#\\\"<>^`{}|".contains(&c);
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(plain)
}

/// Escapes a value of a query: everything but unreserved characters (RFC 3986).
pub(crate) fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            for nibble in [byte >> 4, byte & 15] {
                escaped
                    .push(char::from_digit(nibble.into(), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_place() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "../secrets/x",
            "a?dryRun=All",
            "a#b",
            "a%2fb",
            "a b",
            "a\n",
            "ä",
        ] {
            assert!(!is_segment(bad), "{bad:?}");
        }
        for good in ["cart-redis-0", "system:node-reader", "10.0.0.1", "a_b"] {
            assert!(is_segment(good), "{good:?}");
        }
    }

    #[test]
    fn escapes_what_a_query_cannot_hold() {
        assert_eq!(escape("operator-host/redis"), "operator-host%2Fredis");
        assert_eq!(escape("a=&+ ä"), "a%3D%26%2B%20%C3%A4");
    }
}
