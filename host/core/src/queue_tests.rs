use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn key(lane: Lane, name: &str) -> ParentKey {
    ParentKey { lane, key: ObjectKey::new("ns", name) }
}

fn queue(lanes: &[(Lane, usize)]) -> Queue {
    let mut queue = Queue::default();
    for (lane, concurrency) in lanes {
        queue.open_lane(*lane, *concurrency);
    }
    queue
}

fn names(queue: &mut Queue, now: Moment) -> Vec<String> {
    std::iter::from_fn(|| queue.pop(now).map(|(key, _)| key.key.name.to_string())).collect()
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
        let (popped, _) = queue.pop(queue.next_due().unwrap_or(MS)).unwrap();
        queue.done(&popped, Done::Failed, Duration::from_secs(failure));
    }
    let failed_at = Duration::from_secs(8);
    for tick in 0..50 {
        queue.push(&key(0, "a"), Priority::Child, failed_at + MS * tick);
    }
    assert_eq!(queue.failures(&key(0, "a")), 8);
    assert_eq!(queue.pop(failed_at + MS * 639), None);
    assert!(queue.pop(failed_at + MS * 640).is_some());
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
    assert_eq!(queue.next_due(), Some(MS * 1_500));
}

#[test]
fn a_requeue_is_never_below_the_floor() {
    let mut queue = queue(&[(0, 2)]);
    queue.push(&key(0, "a"), Priority::Child, MS);
    queue.pop(MS).unwrap();
    queue.done(&key(0, "a"), Done::Succeeded(Some(Duration::ZERO)), MS);
    assert_eq!(queue.next_due(), Some(MS + limits::REQUEUE_FLOOR));
}

#[test]
fn a_forgotten_key_leaves_nothing_behind() {
    let mut queue = queue(&[(0, 2)]);
    queue.push(&key(0, "a"), Priority::Child, MS);
    queue.push_at(&key(0, "b"), MS * 9, Priority::Timer);
    queue.forget(&key(0, "a"));
    queue.forget(&key(0, "b"));
    assert_eq!(names(&mut queue, MS * 100), Vec::<String>::new());
    assert!(queue.entries.is_empty() && queue.delayed.is_empty());
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
            if let Some((key, _)) = &popped {
                assert!(!running.contains(key), "one run at a time");
                owed.remove(key);
                running.push(key.clone());
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
