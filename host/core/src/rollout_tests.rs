use proptest::prelude::*;

use super::*;

fn plan() -> PlanSummary {
    PlanSummary { parents: 10, same: 10, ..PlanSummary::default() }
}

fn judged(spec: &RolloutSpec, plan: &PlanSummary) -> Next {
    judge(&Facts {
        spec,
        replaces: true,
        approved: false,
        paused: false,
        quarantined: None,
        added_powers: &[],
        plan: Some(plan),
        canary: Canary::NotYet,
    })
}

fn reason(next: &Next) -> &'static str {
    match next {
        Next::Hold { reason, .. } => reason,
        Next::Promote => "Promote",
        Next::Canary => "Canary",
        Next::Bake(_) => "Bake",
    }
}

#[test]
fn safe_promotes_what_changes_little_and_holds_the_rest() {
    let safe = RolloutSpec::default();
    let table = [
        (plan(), "Promote"),
        (PlanSummary { changed: 5, same: 5, ..plan() }, "Promote"),
        (PlanSummary { changed: 6, same: 4, ..plan() }, "TooManyChanges"),
        (PlanSummary { changed: 10, status_only: 10, same: 0, ..plan() }, "Promote"),
        (PlanSummary { failed: 1, same: 9, ..plan() }, "ParentsFail"),
        (PlanSummary { changed: 1, deletes: 1, ..plan() }, "Deletes"),
        (PlanSummary { changed: 1, recreates: 1, ..plan() }, "Deletes"),
        (PlanSummary { unsound: Some("not deterministic".to_owned()), ..plan() }, "Unsound"),
    ];
    for (plan, expected) in table {
        assert_eq!(reason(&judged(&safe, &plan)), expected, "{plan}");
    }
}

#[test]
fn a_small_fleet_may_change_by_one_parent() {
    let one = PlanSummary { parents: 1, changed: 1, ..PlanSummary::default() };
    assert_eq!(judged(&RolloutSpec::default(), &one), Next::Promote);
    let none = RolloutSpec { max_changed_percent: Some(0), ..RolloutSpec::default() };
    assert_eq!(reason(&judged(&none, &one)), "TooManyChanges");
}

#[test]
fn a_canary_bakes_before_everything_follows() {
    let spec = RolloutSpec { canary: Some(CanarySpec::default()), ..RolloutSpec::default() };
    let at = |canary, replaces| {
        let plan = plan();
        judge(&Facts {
            spec: &spec,
            replaces,
            approved: false,
            paused: false,
            quarantined: None,
            added_powers: &[],
            plan: Some(&plan),
            canary,
        })
    };
    let rest = Duration::from_secs(7);
    assert_eq!(at(Canary::NotYet, true), Next::Canary);
    assert_eq!(at(Canary::Baking(rest), true), Next::Bake(rest));
    assert_eq!(at(Canary::Baked, true), Next::Promote);
    assert_eq!(at(Canary::NotYet, false), Next::Promote, "nobody else could act for the others");
}

#[test]
fn a_share_is_about_as_large_as_it_says_and_grows_with_it() {
    let parents: Vec<_> =
        (0..10_000).map(|number| ObjectKey::new("n", number.to_string())).collect();
    for percent in [1, 10, 50, 99] {
        let share = parents.iter().filter(|parent| is_in_share(parent, percent)).count();
        let expected = usize::from(percent) * 100;
        assert!(share.abs_diff(expected) < 200, "{share} at {percent} %");
        let stays = |parent: &ObjectKey| !is_in_share(parent, percent) || is_in_share(parent, 99);
        assert!(parents.iter().all(stays));
    }
}

#[test]
fn a_few_failures_prove_nothing() {
    let runs = |total, failed| Runs { total, failed };
    assert!(!runs(19, 19).is_worse_than(&runs(100, 0)));
    assert!(runs(20, 5).is_worse_than(&runs(100, 0)));
    assert!(!runs(20, 5).is_worse_than(&runs(100, 20)));
    assert!(!runs(100, 100).is_worse_than(&runs(19, 0)));
}

prop_compose! {
    fn any_plan()(
        parents in 0u32..50, changed in 0u32..50, status_only in 0u32..50, failed in 0u32..3,
        deletes in 0u32..3, recreates in 0u32..3, unsound in proptest::option::of(Just("no".to_owned())),
    ) -> PlanSummary {
        let changed = changed.min(parents);
        let status_only = status_only.min(changed);
        PlanSummary {
            parents, changed, failed, deletes, recreates, status_only, unsound,
            ..PlanSummary::default()
        }
    }
}

proptest! {
    #[test]
    fn nothing_new_acts_against_the_users_will(
        policy in prop_oneof![Just(Policy::Always), Just(Policy::Safe), Just(Policy::Manual)],
        approved: bool, paused: bool, replaces: bool, quarantined: bool, more: bool,
        plan in any_plan(), canary in prop_oneof![Just(Canary::NotYet), Just(Canary::Baked)],
    ) {
        let spec = RolloutSpec { policy, ..RolloutSpec::default() };
        let added = if more { vec!["owns v1/Secret".to_owned()] } else { Vec::new() };
        let next = judge(&Facts {
            spec: &spec, replaces, approved, paused, quarantined: quarantined.then_some("it trapped"),
            added_powers: &added, plan: Some(&plan), canary,
        });
        let acts = !matches!(next, Next::Hold { .. });
        prop_assert!(!(acts && paused));
        prop_assert!(!(acts && quarantined && !approved));
        prop_assert!(!(acts && policy == Policy::Manual && !approved));
        let bad = plan.failed > 0 || plan.is_destructive() || plan.unsound.is_some();
        prop_assert!(!(acts && policy == Policy::Safe && !approved && (bad || (more && replaces))));
        prop_assert!(acts || paused || !approved, "approval counts more than any plan");
    }
}
