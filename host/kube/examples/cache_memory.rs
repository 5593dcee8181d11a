//! What a cached object costs: fills a store through a real informer from a made-up API server, lets it list again,
//! and prints one line of JSON.
//!
//! `cargo run --release -p host-kube --example cache_memory -- 100000 [stream|pages]`
//!
//! The objects are Deployments of 3,284 bytes, 1,437 of them `managedFields`; the server makes each one up when it is
//! sent, so that nothing but the cache is measured.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::convert::Infallible;
use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use host_core::ident::Kind;
use host_kube::{Client, Informers, Scope};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;

/// Bytes of one object as the server sends it.
const OBJECT_BYTES: usize = 3_284;

/// How many of them are `managedFields`.
const MANAGED_BYTES: usize = 1_437;

/// Objects in one page, as the informer asks for.
const PAGE: usize = 500;

const LIST_ENDS: &str = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1000000","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;

const EXPIRED: &str =
    r#"{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}"#;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

fn object(index: usize) -> String {
    let labels = format!(
        r#"{{"app.kubernetes.io/name":"web","app.kubernetes.io/instance":"web-{index}","app.kubernetes.io/managed-by":"operator-host"}}"#
    );
    let head = format!(
        r#"{{"metadata":{{"name":"web-{index}","namespace":"team-{}","uid":"0b9d1b7e-0000-4000-8000-{index:012}","resourceVersion":"{}","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{labels},"annotations":{{"operator-host.dev/applied":"6f0e3c1a-0000-4000-8000-{index:012}/0123456789abcdef","deployment.kubernetes.io/revision":"1"}},"ownerReferences":[{{"apiVersion":"demo.dev/v1","kind":"Web","name":"web-{index}","uid":"6f0e3c1a-0000-4000-8000-{index:012}","controller":true,"blockOwnerDeletion":true}}]"#,
        index % 100,
        index + 1,
    );
    let managed = r#","managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"apps/v1","fieldsV1":{"f:metadata":{"#;
    let managed_end = "}}}]}";
    let filler = "\"f:a\":{},".repeat(MANAGED_BYTES);
    let filler = filler
        .get(..(MANAGED_BYTES - managed.len() - managed_end.len()) / 9 * 9)
        .unwrap_or_default();
    let managed = format!("{managed}{}{managed_end}", filler.trim_end_matches(','));
    let spec = format!(
        r#","spec":{{"replicas":3,"selector":{{"matchLabels":{labels}}},"template":{{"metadata":{{"labels":{labels}}},"spec":{{"containers":[{{"name":"web","image":"registry.example/web:1","args":[""#
    );
    let status = r#""]}]}}},"status":{"observedGeneration":1,"replicas":3,"readyReplicas":3}}"#;
    let fixed = head.len() + managed.len() + spec.len() + status.len();
    let padding = "x".repeat(OBJECT_BYTES.saturating_sub(fixed));
    [&*head, &managed, &spec, &padding, status].concat()
}

/// A list, a watch or the kinds of `apps/v1`.
fn answer(uri: &http::Uri, count: usize, streams: bool, expire: &watch::Receiver<u32>) -> Answer {
    let whole = |code: u16, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        response
    };
    let query = uri.query().unwrap_or_default();
    if query.contains("sendInitialEvents") && !streams {
        let body = r#"{"kind":"Status","code":400,"reason":"BadRequest","message":"no"}"#;
        return whole(400, body.to_owned());
    }
    if query.contains("watch=true") {
        let first = if query.contains("sendInitialEvents") { 0 } else { count + 1 };
        return events(first, count, expire.clone());
    }
    if query.contains("limit=") {
        let token = query.rsplit_once("continue=").map_or("0", |(_, token)| token);
        let first: usize = token.parse().unwrap_or(0);
        let end = (first + PAGE).min(count);
        let items: Vec<_> = (first..end).map(object).collect();
        let next = if end < count { end.to_string() } else { String::new() };
        let metadata = format!(r#"{{"resourceVersion":"1000000","continue":"{next}"}}"#);
        return whole(200, format!(r#"{{"metadata":{metadata},"items":[{}]}}"#, items.join(",")));
    }
    let kinds = r#"{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["list","watch"]}]}"#;
    whole(200, kinds.to_owned())
}

/// What exists, from an index on, then the end of the list, then silence until the watch expires.
fn events(first: usize, count: usize, mut expire: watch::Receiver<u32>) -> Answer {
    expire.mark_unchanged();
    let frames = futures::stream::unfold((first, expire), move |(index, mut expire)| async move {
        let line = match index.cmp(&count) {
            Less => format!(r#"{{"type":"ADDED","object":{}}}"#, object(index)),
            Equal => LIST_ENDS.to_owned(),
            Greater => {
                expire.changed().await.ok()?;
                EXPIRED.to_owned()
            }
        };
        let frame = Frame::data(Bytes::from(line + "\n"));
        Some((Ok::<_, Infallible>(frame), (index + 1, expire)))
    });
    Response::new(BodyExt::boxed_unsync(StreamBody::new(Box::pin(frames))))
}

/// A figure of `/proc/self/status`, in bytes.
fn memory(name: &str) -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such figure")?;
    let kilobytes: usize = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kilobytes * 1024)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().ok_or("how many objects?")?.parse()?;
    let streams = args.next().is_none_or(|mode| mode == "stream");
    let (expire, expires) = watch::channel(0);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(request.uri(), count, streams, &expires);
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let client = Client::from_kube(kube::Client::new(service, "default"), "example");
    let changes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&changes);
    let before = memory("VmRSS")?;
    let informers = Informers::new(
        client,
        1,
        Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        }),
    );
    let began = Instant::now();
    let subscription = informers.subscribe(Kind::new("apps/v1", "Deployment"), Scope::All);
    let store = subscription.store();
    store.wait_synced(began + Duration::from_mins(10)).await?;
    let (listed_in, after) = (began.elapsed(), memory("VmRSS")?);
    std::fs::write("/proc/self/clear_refs", "5")?;
    let began = Instant::now();
    while store.relists() == 0 {
        expire.send_replace(1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (relisted_in, peak) = (began.elapsed(), memory("VmHWM")?);
    let report = serde_json::json!({
        "objects": store.len(),
        "object_bytes": object(1).len(),
        "json_bytes": store.bytes() / count.max(1),
        "rss_before": before,
        "rss_after": after,
        "bytes_per_object": after.saturating_sub(before) / count.max(1),
        "rss_peak_relist": peak,
        "list_ms": listed_in.as_millis(),
        "relist_ms": relisted_in.as_millis(),
        "changes": changes.load(Ordering::Relaxed),
    });
    writeln!(std::io::stdout(), "{report}")?;
    Ok(())
}
