//! Golden files: what came out last time, reviewed by a person, compared byte for byte.

use std::fmt;
use std::path::{Path, PathBuf};

/// Set to anything but `0`, this environment variable makes golden files be written instead of compared.
pub(crate) const UPDATE: &str = "UPDATE_GOLDEN";

/// A text differs from its golden file. Debug prints as Display does, for tests that return it.
pub struct Mismatch {
    path: PathBuf,
    what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl fmt::Debug for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Mismatch {}

/// Compares a text with a golden file; with `UPDATE_GOLDEN=1`, writes the file.
/// Generated files that are committed, such as CRDs, are golden files too.
pub fn check_golden(path: &Path, actual: &str) -> Result<(), Mismatch> {
    let update = std::env::var_os(UPDATE).is_some_and(|value| value != "0");
    compare(path, actual, update)
}

fn compare(path: &Path, actual: &str, update: bool) -> Result<(), Mismatch> {
    let fail = |what| Err(Mismatch { path: path.to_owned(), what });
    let expected = std::fs::read_to_string(path);
    if expected.as_deref().ok() == Some(actual) {
        return Ok(());
    }
    if update {
        return match std::fs::write(path, actual) {
            Ok(()) => Ok(()),
            Err(error) => fail(format!("cannot be written: {error}")),
        };
    }
    let hint = format!("if the change is what you want, run the test with {UPDATE}=1");
    match expected {
        Ok(expected) => {
            let diff = similar::TextDiff::from_lines(expected.as_str(), actual);
            fail(format!("differs (- golden, + now); {hint}\n{}", diff.unified_diff()))
        }
        Err(error) => fail(format!("cannot be read: {error}; {hint}. It would be\n{actual}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_shows_the_difference_and_updates() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.golden.yaml");
        let missing = compare(&path, "a: 1\n", false).unwrap_err().to_string();
        assert!(missing.contains("UPDATE_GOLDEN=1") && missing.contains("a: 1"), "{missing}");
        compare(&path, "a: 1\n", true).unwrap();
        compare(&path, "a: 1\n", false).unwrap();
        let differs = compare(&path, "a: 2\n", false).unwrap_err().to_string();
        assert!(differs.contains("-a: 1\n+a: 2\n"), "{differs}");
    }
}
