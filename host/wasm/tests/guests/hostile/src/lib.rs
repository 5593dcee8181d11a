//! A plugin that does whatever its parent's name says, most of it bad.

use std::hint::black_box;
use std::panic::set_hook;
use std::sync::atomic::{AtomicU32, Ordering};

wit_bindgen::generate!({ path: "../../../../../wit/v1", world: "plugin" });

use exports::operator_host::plugin::reconciler::{
    Decision, Descriptor, DesiredObject, Event, EventKind, Failure, FailureKind, Guest, KindRef,
    ObjectQuery, ObjectResult, OnImmutable, Ownership, ProbeQuery, Query, Reply, Snapshot, Verdict,
};
use operator_host::plugin::log::{self, Level};

struct Hostile;

export!(Hostile);

static CALLS: AtomicU32 = AtomicU32::new(0);

fn kind(api_version: &str, kind: &str) -> KindRef {
    KindRef {
        api_version: api_version.into(),
        kind: kind.into(),
    }
}

fn nothing() -> Decision {
    Decision {
        objects: vec![],
        status: None,
        events: vec![],
        actions: vec![],
        requeue_after_ms: None,
        finished: false,
    }
}

fn with_status(status: String) -> Result<Verdict, Failure> {
    Ok(Verdict::Decide(Decision {
        status: Some(status),
        ..nothing()
    }))
}

impl Guest for Hostile {
    fn describe() -> Descriptor {
        if cfg!(feature = "describe-spins") {
            spin();
        }
        Descriptor {
            name: "hostile".into(),
            version: "1.2.3".into(),
            parent: kind("example.com/v1", "Demo"),
            owns: vec![kind("v1", "ConfigMap")],
            reads: vec![kind("v1", "Secret")],
            patches: vec![kind("v1", "Pod")],
            providers: vec!["redis".into()],
            finalizer: true,
            hints: vec![("colour".into(), "red".into())],
        }
    }

    fn reconcile(snapshot: Snapshot) -> Result<Verdict, Failure> {
        set_hook(Box::new(|info| {
            log::write(Level::Error, &info.to_string(), &[])
        }));
        match snapshot.parent.name.as_str() {
            "spin" => spin(),
            "grow" => grow(),
            "recurse" => with_status(deep(0).to_string()),
            "recurse-with-frames" => with_status(deep_with_frames(0).to_string()),
            "panic" => with_status(vec![1, 2][black_box(7)].to_string()),
            "trap" => core::arch::wasm32::unreachable(),
            "huge" => with_status("x".repeat(9 << 20)),
            "many" => Ok(Verdict::Ask(vec![nothing_asked(); 120_000])),
            "bad-text" => {
                with_status(unsafe { String::from_utf8_unchecked(vec![b'"', 0xff, b'"']) })
            }
            "log-flood" => flood("the same again and again"),
            "log-nothing" => flood(""),
            "log" => {
                log::write(Level::Info, "hello", &[("key".into(), "value".into())]);
                with_status("{}".into())
            }
            "garbage" => with_status("{not json".into()),
            "fail" => Err(Failure {
                kind: FailureKind::Terminal,
                reason: "NotToday".into(),
                message: "come back tomorrow".into(),
            }),
            "ask" => Ok(Verdict::Ask(vec![objects(), probe("{}")])),
            "decide" => decide(),
            "echo" => echo(&snapshot),
            _ => {
                let calls = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
                with_status(format!("{{\"calls\":{calls}}}"))
            }
        }
    }
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns + 1);
    }
}

fn grow() -> ! {
    let mut hoard: Vec<Vec<u8>> = Vec::new();
    loop {
        hoard.push(black_box(vec![1; 1 << 20]));
    }
}

/// Uses the machine's stack only.
#[inline(never)]
fn deep(n: u64) -> u64 {
    if n == u64::MAX {
        n
    } else {
        deep(n + 1).rotate_left(3) ^ n
    }
}

/// Uses the guest's stack in its own memory.
#[inline(never)]
fn deep_with_frames(n: u64) -> u64 {
    let mut frame = [n; 64];
    black_box(&mut frame);
    if frame[0] == u64::MAX {
        n
    } else {
        deep_with_frames(frame[0] + 1) ^ frame[63]
    }
}

fn flood(text: &str) -> ! {
    loop {
        log::write(Level::Info, text, &[]);
    }
}

fn objects() -> Query {
    Query::Objects(ObjectQuery {
        kind: kind("v1", "Secret"),
        namespace: Some("other".into()),
        name: None,
        label_selector: Some("a=b".into()),
    })
}

/// Small in the guest, more than twice as large in the host.
fn nothing_asked() -> Query {
    Query::Probe(ProbeQuery { provider: String::new(), request: String::new() })
}

fn probe(request: &str) -> Query {
    Query::Probe(ProbeQuery {
        provider: "redis".into(),
        request: request.into(),
    })
}

fn decide() -> Result<Verdict, Failure> {
    let object = |ownership, on_immutable, body: &str| DesiredObject {
        ownership,
        on_immutable,
        body: body.into(),
    };
    Ok(Verdict::Decide(Decision {
        objects: vec![
            object(Ownership::Owned, OnImmutable::Report, "{\"a\":1}"),
            object(Ownership::Owned, OnImmutable::Recreate, "{\"b\":2}"),
            object(Ownership::Partial, OnImmutable::RecreateOrphan, "{\"c\":3}"),
        ],
        status: Some("{}".into()),
        events: vec![Event {
            kind: EventKind::Warning,
            reason: "Reason".into(),
            action: "Acting".into(),
            note: "a note".into(),
        }],
        actions: vec![],
        requeue_after_ms: Some(5_000),
        finished: true,
    }))
}

/// Returns everything that came in, a line for each part.
fn echo(snapshot: &Snapshot) -> Result<Verdict, Failure> {
    let mut lines = vec![snapshot.now.clone()];
    let object = |object: &exports::operator_host::plugin::reconciler::Object| {
        format!(
            "{} {} {}/{} {}",
            object.api_version, object.kind, object.namespace, object.name, object.body
        )
    };
    lines.push(object(&snapshot.parent));
    lines.extend(snapshot.children.iter().map(object));
    for answer in &snapshot.answers {
        lines.push(match &answer.query {
            Query::Objects(query) => format!(
                "objects? {} {} {:?} {:?} {:?}",
                query.kind.api_version,
                query.kind.kind,
                query.namespace,
                query.name,
                query.label_selector
            ),
            Query::Probe(query) => format!("probe? {} {}", query.provider, query.request),
        });
        match &answer.reply {
            Reply::Objects(objects) => lines.extend(objects.iter().map(object)),
            Reply::Probe(json) => lines.push(json.clone()),
        }
    }
    if let Some(previous) = &snapshot.previous {
        for outcome in &previous.objects {
            let result = match &outcome.result {
                ObjectResult::Unchanged => "unchanged".into(),
                ObjectResult::Applied => "applied".into(),
                ObjectResult::Deleted => "deleted".into(),
                ObjectResult::Failed(problem) => format!("{}: {}", problem.reason, problem.message),
            };
            lines.push(format!(
                "{} {}/{} {result}",
                outcome.kind.kind, outcome.namespace, outcome.name
            ));
        }
        for outcome in &previous.actions {
            let result = match &outcome.result {
                Ok(json) => json.clone(),
                Err(problem) => format!("{}: {}", problem.reason, problem.message),
            };
            lines.push(format!(
                "{} {} {result}",
                outcome.action.provider, outcome.action.request
            ));
        }
    }
    lines.extend(
        snapshot
            .config
            .iter()
            .map(|(key, value)| format!("{key}={value}")),
    );
    with_status(lines.join("\n"))
}
