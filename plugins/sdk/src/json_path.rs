//! Where in a JSON text an error is: from a line and column to a path such as `spec.storage.size`.
//!
//! Only runs when parsing failed, and costs no second set of deserialisers in the component.

use std::fmt::Write as _;

/// The path of the error, then what is wrong, without the position that means nothing to people.
pub(crate) fn describe_error(text: &str, error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    match path_at(text, offset(text, error.line(), error.column())) {
        path if path.is_empty() => message.to_owned(),
        path => format!("{path}: {message}"),
    }
}

/// Bytes before a position: lines and columns count from 1, columns in bytes, as `serde_json` does.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    before.saturating_add(column)
}

enum Level {
    Key(String),
    Index(usize),
}

/// The path of the value that ends at or spans `offset`.
fn path_at(text: &str, offset: usize) -> String {
    let mut levels: Vec<Level> = Vec::new();
    let mut letters = text.char_indices().take_while(|(at, _)| *at < offset);
    let mut last_string = String::new();
    while let Some((_, letter)) = letters.next() {
        match letter {
            '"' => {
                last_string.clear();
                while let Some((_, inner)) = letters.next() {
                    match inner {
                        '"' => break,
                        '\\' => last_string.extend(letters.next().map(|(_, escaped)| escaped)),
                        _ => last_string.push(inner),
                    }
                }
            }
            '{' => levels.push(Level::Key(String::new())),
            '[' => levels.push(Level::Index(0)),
            ':' => {
                if let Some(Level::Key(key)) = levels.last_mut() {
                    key.clone_from(&last_string);
                }
            }
            ',' => match levels.last_mut() {
                Some(Level::Key(key)) => key.clear(),
                Some(Level::Index(index)) => *index += 1,
                None => {}
            },
            '}' | ']' => {
                levels.pop();
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for level in &levels {
        match level {
            Level::Key(key) if key.is_empty() => {}
            Level::Key(key) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
            Level::Index(index) => {
                // Writing to a String does not fail.
                let _ = write!(path, "[{index}]");
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only parsed")]
    struct Parent {
        spec: Spec,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only parsed")]
    struct Spec {
        replicas: u32,
        #[serde(default)]
        ports: Vec<u16>,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }

    fn error_of(text: &str) -> String {
        describe_error(text, &serde_json::from_str::<Parent>(text).unwrap_err())
    }

    #[test]
    fn names_the_field_with_the_wrong_type() {
        let wrong = error_of(r#"{"a":{"b":[1,{"c":"}"}]},"spec":{"replicas":"three"}}"#);
        assert_eq!(wrong, r#"spec.replicas: invalid type: string "three", expected u32"#);
        let negative = error_of(r#"{"spec":{"replicas":-1,"x":2}}"#);
        assert!(negative.starts_with("spec.replicas: invalid value"), "{negative}");
        let nested = error_of(r#"{"spec":{"labels":{"x\"y":"z","w":1}}}"#);
        assert!(nested.starts_with("spec.labels.w: invalid type"), "{nested}");
    }

    #[test]
    fn names_the_item_of_a_list() {
        let item = error_of("{\"spec\":{\"replicas\":1,\n \"ports\":[1,\n 70000, 3]}}");
        assert!(item.starts_with("spec.ports[1]: invalid value: integer `70000`"), "{item}");
    }

    #[test]
    fn names_the_object_that_lacks_a_field() {
        assert_eq!(error_of(r#"{"spec":{"ports":[]}}"#), "spec: missing field `replicas`");
        assert_eq!(error_of("{}"), "missing field `spec`");
    }

    #[test]
    fn survives_text_that_is_no_json() {
        for text in ["", "]]]}", "\"", "{\"spec\"", "ä:{,", "{\"a\\"] {
            assert!(!error_of(text).is_empty());
        }
    }
}
