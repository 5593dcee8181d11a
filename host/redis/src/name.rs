//! The form of names that a request may hold, so that a mistake is told before anything is looked up.

/// A DNS-1123 subdomain, as names of pods and Secrets are.
pub(crate) fn is_object_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| host_core::text::is_dns_label(label, 253))
}

/// A key in a Secret's data.
pub(crate) fn is_secret_key(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_kubernetes_accepts() {
        for name in ["cart-redis-0", "a.b", "0"] {
            assert!(is_object_name(name), "{name}");
        }
        for name in ["", "-a", "a.", "A", "a/b", "a\r\nb", "../secrets"] {
            assert!(!is_object_name(name), "{name}");
        }
        assert!(is_secret_key("ca.crt"));
        assert!(!is_secret_key("a/b") && !is_secret_key(""));
    }
}
