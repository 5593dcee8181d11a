//! The bug corpus, without cluster mode. Letters in names are node names in the corpus' words.

use redis_plugin::api::OperationKind;
use redis_plugin::current::{Life, PodView, Silence};
use redis_plugin::info::Info;
use redis_plugin::role::Role;

use crate::situation::*;

fn healthy() -> Situation {
    let pods = vec![
        says(0, master("x", 100, 5)),
        says(1, replica_of(0, "x", 100, 5)),
        says(2, replica_of(0, "x", 100, 5)),
    ];
    Situation::of(pods).remembering(0, &[0, 1, 2])
}

fn outdated(mut situation: Situation, ordinals: &[usize]) -> Situation {
    for ordinal in ordinals {
        situation.pods[*ordinal].revision = Some("old".to_owned());
    }
    situation
}

#[test]
fn a_healthy_cluster_is_left_alone() {
    let plan = healthy().replication();
    assert_eq!((commands(&plan), plan.delete.clone(), problems(&plan)), (vec![], None, vec![]));
    assert_eq!(roles(&plan), [Role::Master, Role::Replica, Role::Replica]);
}

#[test]
fn fresh_pods_get_a_master_once_all_are_there() {
    let fresh = |ordinal: u32| says(ordinal, gated(ordinal, &format!("fresh{ordinal}"), 0, 0));
    let plan = Situation::of(vec![fresh(0), fresh(1)]).replication();
    assert_eq!(commands(&plan), ["0: REPLICAOF NO ONE", "1: REPLICAOF 0 6379"]);
    assert_eq!(
        roles(&plan),
        [Role::Joining, Role::Joining],
        "no label before the promotion was observed"
    );

    let waiting = Situation { live: 3, desired: 3, ..Situation::of(vec![fresh(0), fresh(1)]) };
    assert_eq!(commands(&waiting.replication()), Vec::<String>::new());
    assert_eq!(commands(&waiting.suspecting("election", 30).replication()).len(), 2);
}

#[test]
fn b23_a_reborn_empty_master_never_wipes_the_others() {
    let lagging = |offset| says(1, cut_off(replica_of(0, "x", offset, 9)));
    let best = says(2, cut_off(replica_of(0, "x", 90_000, 9)));
    let situation = Situation::of(vec![says(0, master("y", 0, 0)), lagging(89_000), best]);
    for situation in [situation.clone(), situation.remembering(0, &[0, 1, 2])] {
        let plan = situation.replication();
        assert_eq!(
            commands(&plan),
            ["2: REPLICAOF NO ONE", "0: REPLICAOF 2 6379", "1: REPLICAOF 2 6379"]
        );
        assert!(!roles(&plan).contains(&Role::Master));
    }
}

#[test]
fn a_reborn_gated_master_is_replaced_at_once() {
    let survivor = |ordinal| says(ordinal, cut_off(replica_of(0, "x", 90_000, 9)));
    let pods = vec![says(0, gated(0, "y", 0, 0)), survivor(1), survivor(2)];
    let plan = Situation::of(pods).remembering(0, &[0, 1, 2]).replication();
    assert_eq!(
        commands(&plan),
        ["1: REPLICAOF NO ONE", "0: REPLICAOF 1 6379", "2: REPLICAOF 1 6379"]
    );
}

#[test]
fn b24_the_promoted_one_stays_whatever_the_ordinal_or_the_status_says() {
    let promoted = Info { replid2: Some("x".to_owned()), second_offset: 50, ..master("y", 80, 7) };
    let pods = vec![
        says(0, master("x", 60, 6)),
        says(1, promoted),
        says(2, cut_off(replica_of(0, "x", 40, 6))),
    ];
    let plan = Situation::of(pods).remembering(0, &[0, 2]).replication();
    assert_eq!(plan.master, Some(name(1)));
    assert_eq!(commands(&plan), ["0: REPLICAOF 1 6379", "2: REPLICAOF 1 6379"]);
    assert_eq!(roles(&plan).iter().filter(|role| **role == Role::Master).count(), 1);
}

#[test]
fn b24_siblings_of_one_history_are_told_apart_by_how_far_they_are() {
    let sibling =
        |replid: &str, offset| Info { replid2: Some("x".to_owned()), ..master(replid, offset, 7) };
    let plan = Situation::of(vec![says(0, sibling("a", 60)), says(1, sibling("b", 90))])
        .remembering(0, &[0])
        .replication();
    assert_eq!(plan.master, Some(name(1)));
}

#[test]
fn b25_two_masters_and_a_cycle_are_resolved() {
    let two = Situation::of(vec![says(0, master("a", 10, 3)), says(1, master("b", 10, 8))]);
    assert_eq!(
        commands(&two.replication()),
        ["0: REPLICAOF 1 6379"],
        "more data wins where nothing else is known"
    );
    assert_eq!(commands(&two.remembering(0, &[0]).replication()), ["1: REPLICAOF 0 6379"]);

    let cycle = vec![
        says(0, cut_off(replica_of(1, "x", 10, 3))),
        says(1, cut_off(replica_of(0, "x", 11, 3))),
    ];
    assert_eq!(commands(&Situation::of(cycle).replication()), ["1: REPLICAOF NO ONE"]);
    let orphans = |offset, ordinal| says(ordinal, cut_off(replica_of(9, "x", offset, 3)));
    let plan = Situation::of(vec![orphans(10, 0), orphans(12, 1)]).replication();
    assert_eq!(commands(&plan), ["1: REPLICAOF NO ONE", "0: REPLICAOF 1 6379"]);
}

#[test]
fn b18_pod_0_is_not_special() {
    let pods = vec![
        says(0, gated(0, "fresh", 0, 0)),
        says(1, master("x", 100, 5)),
        says(2, replica_of(1, "x", 100, 5)),
    ];
    for situation in [Situation::of(pods.clone()), Situation::of(pods).remembering(1, &[1, 2])] {
        let plan = situation.replication();
        assert_eq!(
            (commands(&plan), plan.master),
            (vec!["0: REPLICAOF 1 6379".to_owned()], Some(name(1)))
        );
    }
}

#[test]
fn b44_without_status_everything_is_found_again() {
    let lost = Situation { memory: redis_plugin::plan::Memory::default(), ..healthy() };
    let plan = lost.replication();
    assert_eq!((commands(&plan), plan.master, plan.in_sync.len()), (vec![], Some(name(0)), 3));
}

fn with_master(state: PodView, replicas: [Info; 2]) -> Situation {
    let [first, second] = replicas;
    Situation::of(vec![state, says(1, first), says(2, second)]).remembering(0, &[0, 1, 2])
}

#[test]
fn a_stopped_master_is_replaced_at_once() {
    let replicas = || [cut_off(replica_of(0, "x", 100, 5)), cut_off(replica_of(0, "x", 101, 5))];
    let plan = with_master(stopped(0), replicas()).replication();
    assert_eq!(commands(&plan), ["2: REPLICAOF NO ONE", "1: REPLICAOF 2 6379"]);
    let refused = with_master(silent(0, Silence::Refused), replicas()).replication();
    assert_eq!(commands(&refused).len(), 2, "its replicas confirm it");
}

#[test]
fn b28_a_master_that_only_we_cannot_reach_stays_the_master() {
    let alive = || [replica_of(0, "x", 100, 5), replica_of(0, "x", 100, 5)];
    for silence in [Silence::Refused, Silence::NoAnswer, Silence::Rejected] {
        let mut situation =
            with_master(silent(0, silence), alive()).suspecting("master cart-redis-0", 600);
        situation.pods[0].label = Some(Role::Master);
        let plan = situation.replication();
        assert_eq!((commands(&plan), problems(&plan)), (vec![], vec!["MasterSilent"]));
        assert_eq!(plan.roles[&name(0)], Role::Master);
    }
}

#[test]
fn a_silent_master_is_given_time_and_no_more() {
    let quiet = || {
        let info = Info { last_io_seconds: Some(9), ..replica_of(0, "x", 100, 5) };
        [info.clone(), info]
    };
    let situation = with_master(silent(0, Silence::NoAnswer), quiet());
    let plan = situation.replication();
    assert_eq!((commands(&plan), plan.suspect.as_deref()), (vec![], Some("master cart-redis-0")));
    assert_eq!(
        commands(&situation.clone().suspecting("master cart-redis-0", 4).replication()),
        Vec::<String>::new()
    );
    let mut late = situation.suspecting("master cart-redis-0", 5);
    late.pods[0].label = Some(Role::Master);
    let plan = late.replication();
    assert_eq!(commands(&plan), ["1: REPLICAOF NO ONE", "2: REPLICAOF 1 6379"]);
    assert!(!roles(&plan).contains(&Role::Master), "fenced before it is replaced");
}

#[test]
fn wrong_passwords_are_no_death() {
    let denied = |ordinal| silent(ordinal, Silence::Rejected);
    let plan = Situation::of(vec![denied(0), denied(1)])
        .remembering(0, &[0, 1])
        .suspecting("master cart-redis-0", 999)
        .replication();
    assert_eq!(commands(&plan), Vec::<String>::new());
}

#[test]
fn stale_data_is_not_elected_while_newer_may_come_back() {
    let stale = || says(1, cut_off(replica_of(0, "x", 10, 5)));
    let mut situation = Situation::of(vec![stopped(0), stale()]).remembering(0, &[0]);
    assert_eq!(commands(&situation.replication()), Vec::<String>::new());
    situation.persistent = true;
    assert_eq!(
        commands(&situation.clone().suspecting("election", 60).replication()),
        Vec::<String>::new()
    );
    assert_eq!(
        commands(&situation.clone().suspecting("election", 300).replication()),
        ["1: REPLICAOF NO ONE"]
    );
    situation.persistent = false;
    assert_eq!(
        commands(&situation.suspecting("election", 10).replication()),
        ["1: REPLICAOF NO ONE"]
    );
}

#[test]
fn an_empty_pod_never_becomes_the_master_of_a_used_cluster_while_others_are_away() {
    let situation =
        Situation::of(vec![stopped(0), says(1, gated(1, "fresh", 0, 0))]).remembering(0, &[0]);
    assert_eq!(
        commands(&situation.suspecting("election", 100_000).replication()),
        Vec::<String>::new()
    );
}

#[test]
fn data_of_another_history_is_not_attached_to_an_empty_master() {
    let pods = vec![
        says(0, master("x", 14, 0)),
        says(1, replica_of(0, "x", 14, 0)),
        says(2, gated(2, "old", 500, 9)),
    ];
    let plan = Situation::of(pods).remembering(0, &[0, 1]).replication();
    assert_eq!((commands(&plan), problems(&plan)), (vec![], vec!["EmptyMaster"]));
}

#[test]
fn b43_exactly_one_master_and_labels_follow_what_redis_says() {
    let mut situation = healthy();
    for pod in &mut situation.pods {
        pod.label = Some(Role::Master);
    }
    assert_eq!(roles(&situation.replication()), [Role::Master, Role::Replica, Role::Replica]);
}

#[test]
fn b45_lost_pods_are_seen_in_the_same_run() {
    let plan = Situation {
        live: 3,
        desired: 3,
        ..Situation::of(vec![says(0, master("x", 1, 1)), stopped(1)])
    }
    .remembering(0, &[0, 1, 2])
    .replication();
    assert_eq!((problems(&plan), plan.in_sync.len()), (vec!["PodDown", "PodDown"], 1));
}

#[test]
fn b40_one_outdated_replica_at_a_time_and_the_master_last() {
    let situation = outdated(healthy(), &[0, 1, 2]);
    let plan = situation.replication();
    assert_eq!((plan.delete, commands(&situation.replication())), (Some(name(2)), vec![]));

    let plan = outdated(healthy(), &[0]).replication();
    assert_eq!(
        (plan.delete.clone(), commands(&plan)),
        (None, vec!["0: FAILOVER TO 1 6379 TIMEOUT 5000".to_owned()])
    );
    assert!(!roles(&plan).contains(&Role::Master), "out of the Service before it hands over");
}

#[test]
fn b46_a_roll_waits_for_a_replica_in_its_first_sync() {
    let mut situation = outdated(healthy(), &[0, 1]);
    situation.pods[2] = says(2, Info { syncing: true, ..cut_off(replica_of(0, "x", 1, 0)) });
    let plan = situation.replication();
    assert_eq!((plan.delete, plan.roles[&name(2)]), (None, Role::Replica));
    situation.memory.in_sync.remove(&name(2));
    assert_eq!(
        situation.replication().roles[&name(2)],
        Role::Joining,
        "never in sync: not readable yet"
    );
}

#[test]
fn a_roll_waits_until_services_have_somebody_to_send_clients_to() {
    let mut situation = outdated(healthy(), &[0, 1]);
    situation.pods[2].ready = false;
    let plan = situation.replication();
    assert_eq!((plan.delete, commands(&situation.replication())), (None, vec![]));
}

#[test]
fn b41_a_single_pod_is_restarted_only_if_its_data_survives_or_may_be_lost() {
    let single =
        || outdated(Situation::of(vec![says(0, master("x", 1, 5))]).remembering(0, &[0]), &[0]);
    let plan = single().replication();
    assert_eq!((plan.delete.clone(), problems(&plan)), (None, vec!["RestartWouldLoseData"]));
    assert_eq!(Situation { persistent: true, ..single() }.replication().delete, Some(name(0)));
    assert_eq!(Situation { allow_data_loss: true, ..single() }.replication().delete, Some(name(0)));
}

#[test]
fn b59_a_handover_under_way_is_not_repeated_and_a_failed_one_is_tried_with_another() {
    let mut situation = outdated(healthy(), &[0]).operating(OperationKind::Handover, 2, 3);
    assert_eq!(
        commands(&situation.replication()),
        ["0: FAILOVER TO 2 6379 TIMEOUT 5000"],
        "the same one"
    );
    situation.pods[0] = says(0, Info { failing_over: true, ..master("x", 100, 5) });
    situation.pods[0].revision = Some("old".to_owned());
    let plan = situation.replication();
    assert_eq!(
        (commands(&plan), plan.operation),
        (vec![], Some((OperationKind::Handover, name(2))))
    );
    let failed = outdated(healthy(), &[0]).operating(OperationKind::Handover, 1, 10);
    assert_eq!(commands(&failed.replication()), ["0: FAILOVER TO 2 6379 TIMEOUT 5000"]);
}

#[test]
fn a_bad_image_can_be_taken_back() {
    let mut situation = outdated(healthy(), &[2]);
    situation.pods[2] = PodView { revision: Some("old".to_owned()), ..stopped(2) };
    assert_eq!(situation.replication().delete, Some(name(2)));
}

#[test]
fn an_image_that_never_worked_can_be_mended() {
    let coming =
        |ordinal| PodView { life: Life::Coming, revision: Some("old".to_owned()), ..pod(ordinal) };
    let situation = Situation::of(vec![coming(0), coming(1)]);
    assert_eq!(situation.replication().delete, Some(name(1)));
    assert_eq!(situation.cluster().delete, Some(name(1)));

    let crashed = |ordinal| PodView { revision: Some("old".to_owned()), ..stopped(ordinal) };
    let used = Situation::of(vec![crashed(0)]).remembering(0, &[0]);
    assert_eq!(used.replication().delete, None, "its directory may hold the last copy");
    assert_eq!(Situation { persistent: true, ..used }.replication().delete, Some(name(0)));
}

#[test]
fn scaling_down_hands_over_first() {
    let mut situation = healthy();
    situation.desired = 2;
    assert_eq!(situation.replication().replicas, 2);
    let pods = vec![
        says(0, replica_of(2, "x", 9, 5)),
        says(1, replica_of(2, "x", 9, 5)),
        says(2, master("x", 9, 5)),
    ];
    let leaving = Situation { desired: 2, ..Situation::of(pods).remembering(2, &[0, 1, 2]) };
    let plan = leaving.replication();
    assert_eq!(
        (plan.replicas, commands(&plan)),
        (3, vec!["2: FAILOVER TO 0 6379 TIMEOUT 5000".to_owned()])
    );

    let mut alone = leaving.clone();
    alone.pods[0] = says(0, cut_off(replica_of(2, "x", 9, 5)));
    alone.pods[1] = silent(1, Silence::NoAnswer);
    let plan = alone.replication();
    assert_eq!((plan.replicas, commands(&plan)), (3, vec![]));
    assert!(problems(&plan).contains(&"ScaleDownWaits"));
}

#[test]
fn nothing_shrinks_while_the_master_is_not_seen() {
    let mut situation = with_master(
        silent(0, Silence::NoAnswer),
        [replica_of(0, "x", 9, 5), replica_of(0, "x", 9, 5)],
    );
    situation.desired = 1;
    assert_eq!(situation.replication().replicas, 3);
}
