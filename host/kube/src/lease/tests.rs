use std::sync::{Arc, Mutex};

use host_core::ident::{Kind, ObjectId, ObjectKey};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::fake::{self, Answer, Asked, Log};

/// A server with at most one Lease, which it takes by compare-and-swap only.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    /// Answers to reads are as old as this when they arrive.
    lag: Duration,
    conflicts: usize,
}

impl Server {
    fn with(lease: Value) -> Self {
        let server = Self::default();
        server.0.lock().unwrap().store(lease);
        server
    }

    fn lease(&self) -> Value {
        self.0.lock().unwrap().lease.clone().unwrap()
    }

    fn conflicts(&self) -> usize {
        self.0.lock().unwrap().conflicts
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let mut state = self.0.lock().unwrap();
        let method = asked.line.split(' ').next().unwrap();
        let sent = || serde_json::from_str::<Value>(&asked.body).unwrap();
        match (method, &state.lease) {
            ("GET" | "PUT", None) => {
                Answer::Whole(404, r#"{"kind":"Status","code":404,"reason":"NotFound","message":"leases \"host\" not found"}"#.into())
            }
            ("GET", Some(lease)) => Answer::Late(state.lag, Box::new(Answer::json(lease))),
            ("PUT", Some(lease))
                if lease["metadata"]["resourceVersion"] == sent()["metadata"]["resourceVersion"] =>
            {
                Answer::json(&state.store(sent()))
            }
            ("POST", None) => Answer::json(&state.store(sent())),
            _ => {
                state.conflicts += 1;
                Answer::refusal(409, "Conflict")
            }
        }
    }
}

impl State {
    fn store(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease.clone());
        lease
    }
}

/// One host with its own line to the server, which can be cut.
struct Host {
    client: Client,
    log: Log,
    gate: Gate,
    leadership: watch::Receiver<Leadership>,
    cut: Arc<Mutex<bool>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

fn host(server: &Server, identity: &str, seed: u64) -> Host {
    let cut = Arc::new(Mutex::new(false));
    let (server, is_cut) = (server.clone(), Arc::clone(&cut));
    let (client, log) = fake::client(move |asked| {
        if *is_cut.lock().unwrap() {
            return Answer::Silence;
        }
        if asked.line.contains("/leases") {
            server.answer(asked)
        } else {
            Answer::json(&json!({"metadata": {"name": "a"}}))
        }
    });
    let (elector, leadership) = Elector::new(client.clone(), "host", "host", identity.into(), seed);
    let gate = elector.gate();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(elector.run(async {
        let _ = stopped.await;
    }));
    let client = client.gated(gate.clone());
    Host { client, log, gate, leadership, cut, stop: Some(stop), task }
}

impl Host {
    async fn becomes(&mut self, wanted: &Leadership) {
        let wait = self.leadership.wait_for(|now| now == wanted);
        tokio::time::timeout(Duration::from_mins(2), wait).await.unwrap().unwrap();
    }

    async fn leads(&mut self) {
        self.becomes(&Leadership::Leading).await;
    }

    fn now(&self) -> Leadership {
        self.leadership.borrow().clone()
    }

    fn cut(&self) {
        *self.cut.lock().unwrap() = true;
    }

    async fn apply(&self) -> Result<(), ApiError> {
        let id = ObjectId {
            kind: Kind::new("apps/v1", "StatefulSet"),
            key: ObjectKey::new("shop", "a"),
        };
        self.client.apply(&id, "m", &json!({})).await.map(|_| ())
    }
}

fn held_by(holder: &str, renewed: &str) -> Value {
    json!({
        "metadata": {"name": "host", "labels": {"app": "host"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 4, "renewTime": renewed},
    })
}

#[tokio::test(start_paused = true)]
async fn acquires_a_lease_that_does_not_exist_and_renews_it_every_two_seconds() {
    let server = Server::default();
    let mut a = host(&server, "a", 1);
    a.leads().await;
    let first = server.lease();
    assert_eq!(first["spec"]["holderIdentity"], "a");
    assert_eq!(
        (&first["spec"]["leaseDurationSeconds"], &first["spec"]["leaseTransitions"]),
        (&json!(15), &json!(0))
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(a.now(), Leadership::Leading);
    assert!(a.gate.is_open());
    assert_eq!(a.log.lines("GET").len(), 1, "a leader does not look");
    let renewals = a.log.lines("PUT").len();
    assert!((28..=31).contains(&renewals), "{renewals}");
    let spec = &server.lease()["spec"];
    assert_eq!(spec["acquireTime"], first["spec"]["acquireTime"]);
    assert_ne!(spec["renewTime"], first["spec"]["renewTime"]);
    assert_eq!(server.conflicts(), 0);
}

#[tokio::test(start_paused = true)]
async fn takes_over_what_is_not_renewed_whatever_its_times_say() {
    for renewed in ["2099-01-01T00:00:00.000000Z", "1999-01-01T00:00:00.000000Z", "yesterday"] {
        let server = Server::with(held_by("dead", renewed));
        let mut b = host(&server, "b", 1);
        let began = Instant::now();
        b.becomes(&Leadership::Standby { holder: Some("dead".into()) }).await;
        assert!(!b.gate.is_open());
        b.leads().await;
        let took = began.elapsed();
        assert!(took >= LEASE && took < LEASE + Duration::from_secs(5), "{renewed}: {took:?}");
        let lease = server.lease();
        assert_eq!(lease["spec"]["leaseTransitions"], 5);
        assert_eq!(lease["metadata"]["labels"]["app"], "host", "what is not ours is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_server_is_silent_stops_writing_before_another_can_begin() {
    let server = Server::default();
    let (mut a, mut b) = (host(&server, "a", 1), host(&server, "b", 2));
    a.leads().await;
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(b.now(), Leadership::Standby { holder: Some("a".into()) });
    a.cut();
    let cut = Instant::now();
    let mut closed = None;
    while !b.gate.is_open() {
        assert!(cut.elapsed() < Duration::from_secs(30));
        if !a.gate.is_open() {
            closed.get_or_insert_with(|| cut.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (closed, opened) = (closed.unwrap(), cut.elapsed());
    assert!(closed <= Duration::from_millis(10_050), "{closed:?}");
    assert!(opened >= closed + Duration::from_millis(4_900), "{closed:?} {opened:?}");
    assert_eq!(a.now(), Leadership::Lost);
    assert!(a.task.is_finished());
    let sent = a.log.all().len();
    let refused = a.apply().await.unwrap_err();
    assert_eq!(refused.kind(), ApiErrorKind::NotLeader);
    assert_eq!(
        refused.to_string(),
        "could not apply StatefulSet shop/a: this host does not lead: nothing is written"
    );
    assert_eq!(a.log.lines("PATCH").len(), 0);
    assert!(a.log.all().len() <= sent + 1, "only the kind was looked up");
    b.leads().await;
    b.apply().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_given_up_before_another_host_may_write() {
    let server = Server::default();
    let mut a = host(&server, "a", 1);
    a.leads().await;
    a.apply().await.unwrap();
    a.cut();
    let cut = Instant::now();
    let error = a.apply().await.unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::Unavailable);
    assert!(cut.elapsed() <= LEASE, "{:?}", cut.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_frozen_finds_its_gate_closed() {
    let server = Server::default();
    let mut a = host(&server, "a", 1);
    a.leads().await;
    // No task runs in between: this is what a stopped process sees when it goes on.
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(!a.gate.is_open());
    a.becomes(&Leadership::Lost).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_that_try_at_once_one_gets_it() {
    let server = Server::with(held_by("dead", ""));
    server.0.lock().unwrap().lag = Duration::from_millis(300);
    // Equal seeds: they look and try at the same moments.
    let (mut a, mut b) = (host(&server, "a", 1), host(&server, "b", 1));
    tokio::select! {
        () = a.leads() => {}
        () = b.leads() => {}
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.conflicts(), 1);
    assert_ne!(a.gate.is_open(), b.gate.is_open());
    let (leader, other) = if a.gate.is_open() { (a, b) } else { (b, a) };
    assert_eq!(leader.now(), Leadership::Leading);
    assert!(matches!(other.now(), Leadership::Standby { holder: Some(_) }));
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_another_ends_the_leadership_at_the_next_renewal() {
    let server = Server::default();
    let mut a = host(&server, "a", 1);
    a.leads().await;
    server.0.lock().unwrap().store(held_by("thief", ""));
    a.becomes(&Leadership::Lost).await;
    assert!(!a.gate.is_open());
    assert_eq!(server.lease()["spec"]["holderIdentity"], "thief");
}

#[tokio::test(start_paused = true)]
async fn a_label_on_the_lease_costs_one_conflict_and_not_the_leadership() {
    let server = Server::default();
    let mut a = host(&server, "a", 1);
    a.leads().await;
    let mut labelled = server.lease();
    labelled["metadata"]["labels"] = json!({"app": "host"});
    server.0.lock().unwrap().store(labelled);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((server.conflicts(), a.now()), (1, Leadership::Leading));
    assert_eq!(server.lease()["metadata"]["labels"]["app"], "host");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_the_lease_and_the_next_one_need_not_wait() {
    let server = Server::default();
    let (mut a, mut b) = (host(&server, "a", 1), host(&server, "b", 2));
    a.leads().await;
    // Changed behind its back: the first try is a conflict.
    let lease = server.lease();
    server.0.lock().unwrap().store(lease);
    a.stop.take().unwrap().send(()).unwrap();
    a.task.await.unwrap();
    assert!(!a.gate.is_open());
    let spec = server.lease()["spec"].clone();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    let released = Instant::now();
    b.leads().await;
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
    assert_eq!(server.lease()["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_a_silent_server_two_seconds_and_takes_nothing_from_others() {
    let server = Server::default();
    let (mut a, b) = (host(&server, "a", 1), host(&server, "b", 2));
    a.leads().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    b.stop.unwrap().send(()).unwrap();
    b.task.await.unwrap();
    assert_eq!(server.lease()["spec"]["holderIdentity"], "a");
    a.cut();
    let began = Instant::now();
    a.stop.take().unwrap().send(()).unwrap();
    a.task.await.unwrap();
    assert_eq!(began.elapsed(), RELEASE_DEADLINE);
}
