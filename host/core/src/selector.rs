//! Label selectors, in the syntax kubectl takes: `app=redis,tier in (a,b),!canary`.

use std::fmt;

use crate::object::Labels;

/// A parsed selector: all requirements must hold. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// Why a selector does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "label selector {selector:?}: {part:?} is not one of k=v, k==v, k!=v, k in (a,b), k notin (a,b), k, !k"
)]
pub struct InvalidSelector {
    selector: String,
    part: String,
}

impl Selector {
    /// Parses kubectl's syntax.
    pub fn parse(selector: &str) -> Result<Self, InvalidSelector> {
        split_outside_parentheses(selector)
            .filter(|part| !part.is_empty())
            .map(|part| {
                Requirement::parse(part).ok_or_else(|| InvalidSelector {
                    selector: selector.to_owned(),
                    part: part.to_owned(),
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels satisfy every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        let get = |key: &String| labels.get(key);
        let one_of = |key: &String, values: &[String]| {
            get(key).is_some_and(|value| values.iter().any(|wanted| wanted == value))
        };
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => one_of(key, values),
            Requirement::NotIn(key, values) => !one_of(key, values),
            Requirement::Exists(key) => get(key).is_some(),
            Requirement::Absent(key) => get(key).is_none(),
        })
    }

    /// The first requirement of the form `key=value`: what an index can be asked for.
    pub fn equality(&self) -> Option<(&str, &str)> {
        self.0.iter().find_map(|requirement| match requirement {
            Requirement::In(key, values) => match values.as_slice() {
                [value] => Some((key.as_str(), value.as_str())),
                _ => None,
            },
            Requirement::NotIn(..) | Requirement::Exists(_) | Requirement::Absent(_) => None,
        })
    }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

impl Requirement {
    fn parse(part: &str) -> Option<Self> {
        if let Some(key) = part.strip_prefix('!') {
            return label_key(key).map(Self::Absent);
        }
        if let Some((key, value)) = part.split_once("!=") {
            return Some(Self::NotIn(label_key(key)?, vec![label_value(value)?]));
        }
        if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            return Some(Self::In(label_key(key)?, vec![label_value(value)?]));
        }
        if let Some(list) = part.strip_suffix(')') {
            let (head, values) = list.split_once('(')?;
            let values = values.split(',').map(label_value).collect::<Option<Vec<_>>>()?;
            let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
            return match operator {
                "in" => Some(Self::In(label_key(key)?, values)),
                "notin" => Some(Self::NotIn(label_key(key)?, values)),
                _ => None,
            };
        }
        label_key(part).map(Self::Exists)
    }
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn label_key(text: &str) -> Option<String> {
    let key = text.trim();
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    let fine =
        !name.is_empty() && key.len() <= 317 && key.chars().all(|c| is_label_char(c) || c == '/');
    fine.then(|| key.to_owned())
}

fn label_value(text: &str) -> Option<String> {
    let value = text.trim();
    (value.len() <= 63 && value.chars().all(is_label_char)).then(|| value.to_owned())
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::In(key, values) => write!(f, "{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
                Requirement::Exists(key) => f.write_str(key)?,
                Requirement::Absent(key) => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    #[test]
    #[expect(clippy::type_complexity, reason = "a table reads best as one")]
    fn matches_as_kubectl_does() {
        let cases: &[(&str, &[(&str, &str)], bool)] = &[
            ("", &[("a", "b")], true),
            ("a=b", &[("a", "b")], true),
            ("a==b", &[("a", "c")], false),
            ("a!=b", &[], true),
            ("a!=b", &[("a", "b")], false),
            ("a in (b, c)", &[("a", "c")], true),
            ("a in (b,c)", &[], false),
            ("a notin (b,c)", &[], true),
            ("a notin (b,c)", &[("a", "b")], false),
            ("a", &[("a", "")], true),
            ("!a", &[("a", "x")], false),
            (
                "app.kubernetes.io/name=redis,a in (b,c),!z",
                &[("app.kubernetes.io/name", "redis"), ("a", "b")],
                true,
            ),
        ];
        for &(selector, pairs, expected) in cases {
            let parsed = Selector::parse(selector).unwrap();
            assert_eq!(parsed.matches(&labels(pairs)), expected, "{selector} on {pairs:?}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_selector() {
        for selector in ["a=b=c", "a in b", "a within (b)", "=b", "a b", "a in (b"] {
            assert!(Selector::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn prints_what_parses_to_the_same() {
        for selector in ["a=b,c in (d,e)", "!a,b", "a notin (b)"] {
            let parsed = Selector::parse(selector).unwrap();
            assert_eq!(Selector::parse(&parsed.to_string()).unwrap(), parsed);
        }
    }

    #[test]
    fn offers_an_equality_to_the_index() {
        assert_eq!(Selector::parse("!x,a=b").unwrap().equality(), Some(("a", "b")));
        assert_eq!(Selector::parse("a in (b,c)").unwrap().equality(), None);
    }
}
