//! Kubernetes quantities in the form in which the API server gives them back.
//!
//! Built-in types come back canonical (`1024Mi` as `1Gi`, `1000m` as `1`) while a custom resource keeps what the user
//! typed; writing what the user typed would differ from what is stored on every run (apimachinery's `resource.Quantity`).

/// Binary suffixes, largest first.
const BINARY: [(&str, u128); 6] = [
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
];

/// Decimal suffixes in nanos, largest first.
const DECIMAL: [(&str, u128); 10] = [
    ("E", 1_000_000_000_000_000_000 * NANO),
    ("P", 1_000_000_000_000_000 * NANO),
    ("T", 1_000_000_000_000 * NANO),
    ("G", 1_000_000_000 * NANO),
    ("M", 1_000_000 * NANO),
    ("k", 1_000 * NANO),
    ("", NANO),
    ("m", NANO / 1_000),
    ("u", NANO / 1_000_000),
    ("n", 1),
];

const NANO: u128 = 1_000_000_000;

/// The canonical form, or the text itself when it is no quantity that can be brought into one.
pub fn canonical(text: &str) -> String {
    parse(text).map_or_else(|| text.to_owned(), |(nanos, binary)| format(nanos, binary))
}

/// Nanos, and whether the suffix was binary. None for exponents, signs and what is no quantity: those are kept as typed.
fn parse(text: &str) -> Option<(u128, bool)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let binary = BINARY.iter().find(|(name, _)| *name == suffix).map(|(_, unit)| unit * NANO);
    let decimal = DECIMAL.iter().find(|(name, _)| *name == suffix).map(|(_, unit)| *unit);
    let unit = binary.or(decimal)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let nanos = digits.checked_mul(unit)?.div_ceil(scale);
    Some((nanos, binary.is_some()))
}

fn format(nanos: u128, binary: bool) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    if binary && nanos.is_multiple_of(NANO) {
        let value = nanos / NANO;
        let (suffix, unit) = BINARY
            .iter()
            .find(|(_, unit)| value >= 1024 && value.is_multiple_of(*unit))
            .copied()
            .unwrap_or(("", 1));
        return format!("{}{suffix}", value / unit);
    }
    let (suffix, unit) =
        DECIMAL.iter().find(|(_, unit)| nanos.is_multiple_of(*unit)).copied().unwrap_or(("n", 1));
    format!("{}{suffix}", nanos / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b36_writes_what_the_api_server_stores() {
        for (typed, stored) in [
            ("1024Mi", "1Gi"),
            ("1Gi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("512Mi", "512Mi"),
            ("1000m", "1"),
            ("100m", "100m"),
            ("0.5", "500m"),
            ("0.25", "250m"),
            ("2", "2"),
            ("1000", "1k"),
            ("1500k", "1500k"),
            ("1000Mi", "1000Mi"),
            ("0", "0"),
            ("0Gi", "0"),
            ("10G", "10G"),
            ("1000M", "1G"),
            ("512Ki", "512Ki"),
        ] {
            assert_eq!(canonical(typed), stored, "{typed}");
        }
    }

    #[test]
    fn keeps_what_it_does_not_understand() {
        for text in
            ["", "many", "1e3", "-1", "1.2.3", "1 Gi", "99999999999999999999999999999999999999E"]
        {
            assert_eq!(canonical(text), text);
        }
    }
}
