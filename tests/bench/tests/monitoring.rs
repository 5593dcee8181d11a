//! The dashboard and the alert rules speak of what the host measures, and of nothing else.
//!
//! What the host measures is read from where it registers its metrics, so that neither side can be renamed alone.

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Words of `PromQL` that the dashboard and the rules use.
const PROMQL: [&str; 17] = [
    "absent",
    "and",
    "by",
    "count",
    "histogram_quantile",
    "increase",
    "label_values",
    "max",
    "min",
    "on",
    "or",
    "rate",
    "sum",
    "time",
    "unless",
    "vector",
    "without",
];

/// Metrics and labels that the scrape adds.
const SCRAPE: [&str; 6] = ["up", "job", "namespace", "pod", "instance", "le"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The host's sources that register metrics.
fn telemetry() -> String {
    let source = root().join("host/src");
    let mut files = vec![source.join("telemetry.rs")];
    if let Ok(folder) = std::fs::read_dir(source.join("telemetry")) {
        files.extend(folder.map(|entry| entry.unwrap().path()));
    }
    files.iter().map(|file| read(file)).collect()
}

/// The string literals of a source that could name a metric.
fn registered(source: &str) -> BTreeSet<&str> {
    let literals = source.split('"').skip(1).step_by(2);
    literals.filter(|text| text.contains('_') && words(text) == BTreeSet::from([*text])).collect()
}

/// The fields of a source's structs, among them every label.
fn fields(source: &str) -> BTreeSet<&str> {
    let before = source.split(": ").filter_map(|text| text.rsplit([' ', '(', '{']).next());
    before.collect()
}

/// Every query of a dashboard: `expr` of panels, `query` of variables.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str().filter(|_| key == "expr" || key == "query") {
                    Some(text) => found.push(text.to_owned()),
                    None => queries(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The words of a query, without what is quoted, without durations and Grafana's variables.
fn words(query: &str) -> BTreeSet<&str> {
    let bare = query.split('"').step_by(2);
    let words = bare
        .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || "_$".contains(c))));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())).collect()
}

fn is_known(word: &str, metrics: &BTreeSet<&str>, labels: &BTreeSet<&str>) -> bool {
    // What the exposition format appends to the registered name.
    let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
    let mut names = suffixes.iter().filter_map(|suffix| word.strip_suffix(suffix));
    names.any(|name| metrics.contains(name)) || labels.contains(word)
}

#[track_caller]
fn assert_known(queries: &[String], whose: &str) {
    let source = telemetry();
    let (metrics, labels) = (registered(&source), fields(&source));
    assert!(metrics.contains("workqueue_depth"), "the metrics are registered elsewhere");
    let used: BTreeSet<&str> = queries.iter().flat_map(|query| words(query)).collect();
    let unknown: Vec<&&str> = used
        .iter()
        .filter(|word| !PROMQL.contains(word) && !SCRAPE.contains(word))
        .filter(|word| !is_known(word, &metrics, &labels))
        .collect();
    assert!(unknown.is_empty(), "{whose} names what the host does not measure: {unknown:?}");
}

#[test]
fn the_dashboard_shows_only_what_the_host_measures() {
    let text = read(&root().join("deploy/monitoring/dashboard.json"));
    let mut found = Vec::new();
    queries(&serde_json::from_str(&text).unwrap(), &mut found);
    found.retain(|query| query != "prometheus");
    assert!(found.len() > 30, "the dashboard's queries are elsewhere");
    assert_known(&found, "the dashboard");
}

#[test]
fn the_alerts_watch_only_what_the_host_measures_and_say_what_to_do() {
    let text = read(&root().join("deploy/monitoring/prometheusrule.yaml"));
    let rule: Value = serde_norway::from_str(&text).unwrap();
    let alerts = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
    let queries: Vec<String> =
        alerts.iter().map(|alert| alert["expr"].as_str().unwrap().to_owned()).collect();
    assert_known(&queries, "an alert");
    for alert in alerts {
        for annotation in ["summary", "description", "runbook"] {
            assert!(alert["annotations"][annotation].is_string(), "no {annotation}: {alert}");
        }
    }
}

#[test]
fn an_unknown_metric_or_label_is_noticed() {
    let source =
        r#"struct L { controller: String, } registry.register("workqueue_adds", "Adds", x);"#;
    let (metrics, labels) = (registered(source), fields(source));
    assert_eq!(metrics, BTreeSet::from(["workqueue_adds"]));
    let query =
        r#"sum by (controller) (rate(workqueue_adds_total{name="$x"}[5m])) / $__rate_interval"#;
    let known = |word: &&str| is_known(word, &metrics, &labels);
    let words = words(query);
    assert_eq!(
        words,
        BTreeSet::from(["by", "controller", "name", "rate", "sum", "workqueue_adds_total"])
    );
    let unknown: Vec<&&str> = words.iter().filter(|word| !known(word)).collect();
    assert_eq!(unknown, [&"by", &"name", &"rate", &"sum"]);
}
