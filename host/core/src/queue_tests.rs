use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn key(lane: Lane, name: &str) -> ParentKey {
    ParentKey { lane, key: ObjectKey::new("ns", name) }
}

fn queue(lanes: &[(Lane, usize)]) -> Queue {
    let mut queue = Queue::new(9, 7);
    for (lane, concurrency) in lanes {
        queue.open_lane(*lane, *concurrency);
    }
    queue
}

fn names(queue: &mut Queue, now: Moment) -> Vec<String> {
    std::iter::from_fn(|| queue.pop(now).map(|popped| popped.key.key.name.to_string())).collect()
}

#[test]
fn runs_a_key_once_however_often_it_is_pushed() {
    let mut queue = queue(&[(0, 9)]);
    for _ in 0..3 {
        queue.push(&key(0, "a"), Priority::Child, MS);
    }
    assert_eq!(names(&mut queue, MS), ["a"]);
}

#[test]
fn is_first_in_first_out_within_a_priority() {
    let mut queue = queue(&[(0, 9)]);
    for name in ["c", "a", "b"] {
        queue.push(&key(0, name), Priority::Child, MS);
    }
    queue.push(&key(0, "urgent"), Priority::User, MS);
    queue.push(&key(0, "late"), Priority::Sweep, MS);
    assert_eq!(names(&mut queue, MS), ["urgent", "c", "a", "b", "late"]);
}

#[test]
fn raises_a_waiting_key_to_the_higher_priority() {
    let mut queue = queue(&[(0, 9)]);
    queue.push(&key(0, "a"), Priority::Sweep, MS);
    queue.push(&key(0, "b"), Priority::Child, MS);
    queue.push(&key(0, "a"), Priority::User, MS);
    assert_eq!(names(&mut queue, MS), ["a", "b"]);
}

#[test]
fn takes_turns_between_plugins() {
    let mut queue = queue(&[(0, 9), (1, 9)]);
    for name in ["a1", "a2", "a3"] {
        queue.push(&key(0, name), Priority::Child, MS);
    }
    queue.push(&key(1, "b1"), Priority::Child, MS);
    let order = names(&mut queue, MS);
    assert!(order.iter().position(|name| name == "b1") < Some(2), "{order:?}");
}

#[test]
fn a_busy_plugin_does_not_block_another() {
    let mut queue = queue(&[(0, 1), (1, 1)]);
    queue.push(&key(0, "a1"), Priority::User, MS);
    queue.push(&key(0, "a2"), Priority::User, MS);
    queue.push(&key(1, "b1"), Priority::Sweep, MS);
    assert_eq!(names(&mut queue, MS), ["a1", "b1"]);
    queue.done(&key(0, "a1"), Done::Succeeded(None), MS);
    assert_eq!(names(&mut queue, MS), ["a2"]);
}

#[test]
fn an_event_during_a_run_runs_the_key_again() {
    let mut queue = queue(&[(0, 2)]);
    queue.push(&key(0, "a"), Priority::Child, MS);
    queue.pop(MS).unwrap();
    queue.push(&key(0, "a"), Priority::Child, MS);
    assert_eq!(queue.pop(MS), None, "one run at a time");
    queue.done(&key(0, "a"), Done::Succeeded(None), MS);
    assert_eq!(names(&mut queue, MS), ["a"]);
}

#[test]
fn events_neither_bypass_nor_inflate_back_off() {
    let mut queue = queue(&[(0, 2)]);
    queue.push(&key(0, "a"), Priority::Child, MS);
    for failure in 1..=8 {
        let popped = queue.pop(queue.next_due().unwrap_or(MS)).unwrap();
        queue.done(&popped.key, Done::Failed, Duration::from_secs(failure));
    }
    let failed_at = Duration::from_secs(8);
    for tick in 0..50 {
        queue.push(&key(0, "a"), Priority::Child, failed_at + MS * tick);
    }
    assert_eq!(queue.failures(&key(0, "a")), 8);
    assert_eq!(queue.pop(failed_at + MS * 639), None);
    assert!(queue.pop(failed_at + MS * 704).is_some(), "640 ms, and a tenth at most");
}

#[test]
fn a_users_change_is_not_held_back() {
    let mut queue = queue(&[(0, 2)]);
    queue.push(&key(0, "a"), Priority::Child, MS);
    queue.pop(MS).unwrap();
    for _ in 0..15 {
        queue.done(&key(0, "a"), Done::Failed, MS);
        queue.push(&key(0, "a"), Priority::User, MS);
        assert!(queue.pop(MS).is_some());
    }
    assert_eq!(queue.failures(&key(0, "a")), 15);
}

#[test]
fn success_forgets_failures() {
    let mut queue = queue(&[(0, 2)]);
    queue.push(&key(0, "a"), Priority::Child, MS);
    queue.pop(MS).unwrap();
    queue.done(&key(0, "a"), Done::Failed, MS);
    queue.pop(Duration::from_secs(1)).unwrap();
    queue.done(&key(0, "a"), Done::Succeeded(Some(MS * 500)), Duration::from_secs(1));
    assert_eq!(queue.failures(&key(0, "a")), 0);
    let due = queue.next_due().unwrap();
    assert!(due >= MS * 1_500 && due <= MS * 1_550, "{due:?}");
}

#[test]
fn a_requeue_is_never_below_the_floor() {
    let mut queue = queue(&[(0, 2)]);
    queue.push(&key(0, "a"), Priority::Child, MS);
    queue.pop(MS).unwrap();
    queue.done(&key(0, "a"), Done::Succeeded(Some(Duration::ZERO)), MS);
    assert!(queue.next_due().unwrap() >= MS + limits::REQUEUE_FLOOR);
}

#[test]
fn a_forgotten_key_leaves_nothing_behind() {
    let mut queue = queue(&[(0, 2)]);
    queue.push(&key(0, "b"), Priority::Child, MS);
    queue.pop(MS).unwrap();
    queue.done(&key(0, "b"), Done::Failed, MS);
    queue.push(&key(0, "a"), Priority::Child, MS);
    queue.forget(&key(0, "a"));
    queue.forget(&key(0, "b"));
    assert_eq!(names(&mut queue, MS * 100), Vec::<String>::new());
    assert!(queue.entries.is_empty() && queue.delayed.is_empty());
}

fn run(queue: &mut Queue, now: Moment, how: Done) -> String {
    let popped = queue.pop(now).unwrap();
    queue.done(&popped.key, how, now);
    popped.key.key.name.to_string()
}

#[test]
fn takes_turns_between_namespaces() {
    let mut queue = queue(&[(0, 9)]);
    let key =
        |namespace: &str, name: &str| ParentKey { lane: 0, key: ObjectKey::new(namespace, name) };
    for name in ["a1", "a2", "a3", "a4"] {
        queue.push(&key("flood", name), Priority::Child, MS);
    }
    queue.push(&key("quiet", "b1"), Priority::Child, MS);
    queue.push(&key("still", "c1"), Priority::Child, MS);
    assert_eq!(names(&mut queue, MS), ["a1", "b1", "c1", "a2", "a3", "a4"]);
}

#[test]
fn runs_no_more_than_the_host_allows_however_many_plugins_there_are() {
    let mut queue = Queue::new(3, 7);
    for lane in 0..5 {
        queue.open_lane(lane, 2);
        for name in ["a", "b"] {
            queue.push(&key(lane, name), Priority::Child, MS);
        }
    }
    let running: Vec<_> = std::iter::from_fn(|| queue.pop(MS)).collect();
    let lanes: Vec<_> = running.iter().map(|popped| popped.key.lane).collect();
    assert_eq!(lanes, [0, 1, 2]);
    queue.done(&running[0].key, Done::Succeeded(None), MS);
    assert_eq!(queue.pop(MS).unwrap().key.lane, 3, "the next in turn");
}

#[test]
fn a_key_that_runs_hot_is_slowed_down_and_loses_no_event() {
    let mut queue = queue(&[(0, 1)]);
    let mut now = Duration::from_secs(10);
    let mut runs = 0;
    // An event in every run, as by a plugin that is woken by its own writes, for two minutes.
    queue.push(&key(0, "a"), Priority::Child, now);
    let end = now + Duration::from_mins(2);
    while now < end {
        match queue.pop(now) {
            Some(popped) => {
                runs += 1;
                queue.push(&popped.key, Priority::Child, now);
                now += MS;
                queue.done(&popped.key, Done::Succeeded(None), now);
            }
            None => now = queue.next_due().unwrap().max(now + MS),
        }
    }
    let expected = limits::CIRCUIT_BURST + 120;
    assert!(runs <= expected + 2 && runs >= expected - 2, "{runs} runs");
    assert!(queue.report_key(&key(0, "a"), now).hot);
    assert_eq!(queue.report(0, now).unwrap().hot, 1);
    let due = queue.next_due().unwrap();
    assert!(queue.pop(due).unwrap().hot, "the last event is still owed, and the run knows");
    queue.done(&key(0, "a"), Done::Succeeded(None), due);
    assert_eq!(queue.report(0, due + Duration::from_mins(2)).unwrap().hot, 0);
}

#[test]
fn waiting_for_the_cache_does_not_open_the_breaker() {
    let mut queue = queue(&[(0, 1)]);
    let mut now = MS;
    queue.push(&key(0, "a"), Priority::Child, now);
    for _ in 0..1_000 {
        run(&mut queue, now, Done::Deferred(MS * 25));
        now = queue.next_due().unwrap();
    }
    assert!(!queue.report_key(&key(0, "a"), now).hot);
}

#[test]
fn requeues_of_one_moment_are_spread_and_the_same_seed_spreads_them_equally() {
    let spread = |seed| {
        let mut queue = Queue::new(200, seed);
        queue.open_lane(0, 200);
        for name in 0..100 {
            queue.push(&key(0, &name.to_string()), Priority::Sweep, MS);
        }
        while let Some(popped) = queue.pop(MS) {
            queue.done(&popped.key, Done::Succeeded(Some(Duration::from_mins(1))), MS);
        }
        queue.delayed.iter().map(|(at, _)| *at).collect::<Vec<_>>()
    };
    let (one, other) = (spread(1), spread(2));
    assert_eq!(one, spread(1));
    assert_ne!(one, other);
    assert!(one[99] > one[0] + Duration::from_secs(4), "{one:?}");
    assert!(one[99] <= Duration::from_secs(67), "a tenth at most");
}

#[test]
fn survives_a_hundred_thousand_keys() {
    let mut queue = Queue::new(8, 7);
    queue.open_lane(0, 8);
    let keys: Vec<_> = (0..100_000_u32)
        .map(|i| ParentKey { lane: 0, key: ObjectKey::new(format!("n{}", i % 50), i.to_string()) })
        .collect();
    for round in 0..3 {
        for key in &keys {
            queue.push(key, if round == 1 { Priority::User } else { Priority::Sweep }, MS);
        }
    }
    let mut order = Vec::new();
    while let Some(popped) = queue.pop(MS) {
        queue.done(&popped.key, Done::Succeeded(None), MS);
        order.push(popped.key);
    }
    assert_eq!(order.len(), keys.len());
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), keys.len());
    assert!(queue.entries.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Push(u8, bool),
    Pop,
    Done(u8, u8),
    Advance(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6_u8, any::<bool>()).prop_map(|(name, user)| Step::Push(name, user)),
        Just(Step::Pop),
        (0..6_u8, 0..3_u8).prop_map(|(pick, how)| Step::Done(pick, how)),
        (1..400_u16).prop_map(Step::Advance),
    ]
}

proptest! {
    /// The model is the definition: a set of keys that still owe a run. Whatever happens, each of them
    /// runs in the end, none runs twice at once, and an idle queue holds nothing.
    #[test]
    fn every_event_is_followed_by_a_run(steps in prop::collection::vec(step(), 1..200)) {
        let mut queue = queue(&[(0, 2), (1, 1)]);
        let mut now = Duration::from_secs(1);
        let mut owed = BTreeSet::new();
        let mut running: Vec<ParentKey> = Vec::new();
        let take = |queue: &mut Queue, running: &mut Vec<ParentKey>, owed: &mut BTreeSet<ParentKey>, now| {
            let popped = queue.pop(now);
            if let Some(Popped { key, .. }) = &popped {
                assert!(!running.contains(key), "one run at a time");
                owed.remove(key);
                running.push(key.clone());
                assert!(running.len() <= 9);
                for lane in [0, 1] {
                    let busy = running.iter().filter(|key| key.lane == lane).count();
                    assert!(busy <= if lane == 0 { 2 } else { 1 });
                }
            }
            popped.is_some()
        };
        for step in steps {
            match step {
                Step::Push(name, user) => {
                    let key = key(u32::from(name % 2), &name.to_string());
                    let priority = if user { Priority::User } else { Priority::Child };
                    queue.push(&key, priority, now);
                    owed.insert(key);
                }
                Step::Pop => {
                    take(&mut queue, &mut running, &mut owed, now);
                }
                Step::Done(pick, how) if !running.is_empty() => {
                    let key = running.remove(usize::from(pick) % running.len());
                    let how = match how {
                        0 => Done::Succeeded(None),
                        1 => Done::Failed,
                        _ => Done::Deferred(MS * 50),
                    };
                    queue.done(&key, how, now);
                }
                Step::Done(..) => {}
                Step::Advance(ms) => now += MS * u32::from(ms),
            }
        }
        for _ in 0..100 {
            now += Duration::from_secs(2_000);
            for key in std::mem::take(&mut running) {
                queue.done(&key, Done::Succeeded(None), now);
            }
            while take(&mut queue, &mut running, &mut owed, now) {}
        }
        prop_assert!(owed.is_empty(), "never ran: {owed:?}");
        prop_assert!(queue.entries.is_empty() && queue.delayed.is_empty());
    }
}
