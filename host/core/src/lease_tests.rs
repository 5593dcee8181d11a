use proptest::prelude::*;

use super::*;

fn secs(seconds: u64) -> Moment {
    Duration::from_secs(seconds)
}

fn record(holder: &str, version: u64) -> Record {
    Record {
        holder: holder.into(),
        duration: LEASE,
        renewed: String::new(),
        transitions: 3,
        version: version.to_string(),
    }
}

fn claim(replaces: Option<&str>, transitions: u32, first: bool) -> Step {
    Step::Claim(Claim { replaces: replaces.map(ToOwned::to_owned), transitions, first })
}

/// Leads since a write that began at 0.
fn leader() -> Election {
    let mut me = Election::new("me", 1);
    me.tries();
    me.wrote(record("me", 7), secs(0), secs(0));
    me
}

#[test]
fn a_write_that_was_begun_has_its_time_before_the_next_leader() {
    assert_eq!(RENEW_DEADLINE + HANDOVER, LEASE);
}

#[test]
fn creates_what_does_not_exist_and_takes_what_was_released() {
    let mut me = Election::new("me", 1);
    assert_eq!(me.step(secs(0)), Step::Look);
    me.saw(None, secs(0));
    assert_eq!(me.step(secs(0)), claim(None, 0, true));
    let mut me = Election::new("me", 1);
    me.saw(Some(Record { duration: RELEASED, ..record("", 5) }), secs(0));
    assert_eq!(me.step(secs(0)), claim(Some("5"), 4, true));
    assert_eq!(me.holder(), None);
}

#[test]
fn waits_until_a_record_has_not_changed_for_its_duration() {
    let mut me = Election::new("me", 1);
    me.saw(Some(record("other", 5)), secs(100));
    assert_eq!(me.step(secs(100)), Step::WaitUntil(secs(115)));
    me.saw(Some(record("other", 5)), secs(110));
    assert_eq!(me.step(secs(110)), Step::WaitUntil(secs(115)), "seen again is not changed");
    me.saw(Some(record("other", 6)), secs(112));
    assert_eq!(me.step(secs(120)), Step::WaitUntil(secs(127)), "renewed");
    assert_eq!(me.step(secs(127)), claim(Some("6"), 4, true));
    assert_eq!(me.holder(), Some("other"));
    me.saw(Some(Record { duration: secs(60), ..record("other", 7) }), secs(130));
    assert_eq!(me.step(secs(150)), Step::WaitUntil(secs(190)), "it was promised more");
    me.saw(Some(Record { duration: secs(0), ..record("other", 8) }), secs(200));
    assert_eq!(me.step(secs(201)), Step::WaitUntil(secs(215)), "nobody is promised less");
}

#[test]
fn leads_only_from_its_last_renewal_on_for_ten_seconds() {
    let mut me = leader();
    assert_eq!(me.writes_until(), Some(secs(10)));
    assert_eq!(me.step(secs(2)), claim(Some("7"), 3, false));
    // The answer took three seconds: they count.
    me.wrote(record("me", 8), secs(2), secs(5));
    assert_eq!(me.writes_until(), Some(secs(12)));
    assert_eq!(me.step(secs(11)), claim(Some("8"), 3, false));
    assert_eq!(me.step(secs(12)), Step::Lost);
}

#[test]
fn a_record_in_anothers_name_ends_a_leadership_for_good() {
    let mut me = leader();
    me.saw(Some(record("other", 9)), secs(1));
    assert_eq!(me.step(secs(1)), Step::Lost);
    assert_eq!((me.writes_until(), me.release()), (None, None));
    me.saw(Some(record("me", 10)), secs(2));
    assert_eq!(me.step(secs(2)), Step::Lost);
}

#[test]
fn a_write_whose_answer_was_lost_is_known_by_its_holder() {
    let mut me = Election::new("me", 1);
    me.saw(Some(record("", 5)), secs(0));
    me.tries();
    me.saw(Some(record("me", 6)), secs(1));
    assert_eq!(me.step(secs(1)), claim(Some("6"), 3, true));
    let mut namesake = Election::new("me", 1);
    namesake.saw(Some(record("me", 6)), secs(1));
    assert_eq!(namesake.step(secs(1)), Step::WaitUntil(secs(16)), "it has written nothing yet");
}

#[test]
fn a_deleted_lease_is_left_alone_as_long_as_its_holder_may_write() {
    let mut me = Election::new("me", 1);
    me.saw(Some(record("other", 5)), secs(0));
    me.saw(None, secs(3));
    me.saw(None, secs(5));
    assert_eq!(me.step(secs(5)), Step::WaitUntil(secs(18)));
    assert_eq!(me.step(secs(18)), claim(None, 0, true));
    let mut me = leader();
    me.saw(None, secs(3));
    assert_eq!(me.step(secs(3)), claim(None, 0, true), "the holder puts it back");
}

#[test]
fn a_leader_tries_every_two_seconds_and_candidates_spread() {
    assert_eq!(leader().next_try(secs(4)), secs(6));
    let waits = |seed| {
        let mut me = Election::new("me", seed);
        (0..50).map(|_| me.next_try(secs(0))).collect::<Vec<_>>()
    };
    let (one, two) = (waits(1), waits(2));
    assert_eq!(one, waits(1));
    assert_ne!(one, two);
    assert!(one.iter().all(|wait| (secs(2)..=Duration::from_millis(4_400)).contains(wait)));
    assert!(
        one.iter().max() > Some(&secs(4)) && one.iter().min() < Some(&Duration::from_millis(2_400))
    );
}

#[derive(Clone, Debug)]
enum Happening {
    Saw(Option<(&'static str, u64)>),
    Wrote(u64),
    Passes(u64),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let holder = prop_oneof![Just("me"), Just("other"), Just("")];
    let saw = proptest::option::of((holder, 0..5_u64)).prop_map(Happening::Saw);
    let one = prop_oneof![
        saw,
        (5..9_u64).prop_map(Happening::Wrote),
        (0..20_u64).prop_map(Happening::Passes),
    ];
    proptest::collection::vec(one, 1..20)
}

fn play(happenings: &[Happening], renewed: impl Fn(usize) -> String) -> Vec<Step> {
    let mut me = Election::new("me", 1);
    let mut now = secs(0);
    let mut steps = Vec::new();
    for (index, happening) in happenings.iter().enumerate() {
        let stamped = |record: Record| Record { renewed: renewed(index), ..record };
        match happening {
            Happening::Saw(seen) => {
                let seen = seen.map(|(holder, version)| stamped(record(holder, version)));
                me.saw(seen, now);
            }
            Happening::Wrote(version) => {
                me.tries();
                me.wrote(stamped(record("me", *version)), now, now);
            }
            Happening::Passes(seconds) => now += secs(*seconds),
        }
        steps.push(me.step(now));
    }
    steps
}

proptest! {
    #[test]
    fn no_renew_time_whatever_it_says_changes_a_decision(
        happenings in happenings(),
        texts in proptest::collection::vec(".*", 20),
    ) {
        let plain = play(&happenings, |_| String::new());
        prop_assert_eq!(plain, play(&happenings, |index| texts[index].clone()));
    }

    /// Two candidates against one record, their requests delayed at will: never two that may write.
    #[test]
    fn two_never_lead_at_once(acts in proptest::collection::vec((0..2_usize, 0..6_u64, 0..4_u64, any::<bool>()), 1..80)) {
        let mut all = [Election::new("a", 1), Election::new("b", 2)];
        let mut server: Option<Record> = None;
        let mut version = 0;
        let mut now = secs(0);
        for (who, pause, delay, looks) in acts {
            now += secs(pause);
            let candidate = &mut all[who];
            let began = now;
            if looks {
                candidate.saw(server.clone(), now + secs(delay));
            } else if let Step::Claim(claim) = candidate.step(now) {
                candidate.tries();
                now += secs(delay);
                if claim.replaces.as_deref() == server.as_ref().map(|record| record.version.as_str()) {
                    version += 1;
                    let holder = candidate.identity().to_owned();
                    let written = Record { transitions: claim.transitions, ..record(&holder, version) };
                    server = Some(written.clone());
                    candidate.wrote(written, began, now);
                }
            }
            let may_write = all.iter().filter(|one| one.writes_until().is_some_and(|until| now < until));
            prop_assert!(may_write.count() <= 1, "at {:?}: {:?}", now, all);
        }
    }
}
