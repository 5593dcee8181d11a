//! The bug corpus, in cluster mode.

use redis_plugin::current::{PodView, Silence};
use redis_plugin::info::Info;
use redis_plugin::nodes::{Row, share};
use redis_plugin::role::Role;

use crate::situation::*;

/// Rows of a formed cluster of `shards` with one replica each: pod k is a master, pod k + shards its replica.
fn rows(shards: u32) -> Vec<Row> {
    (0..2 * shards)
        .map(|ordinal| match ordinal.checked_sub(shards) {
            None => row(ordinal, Some(share(ordinal, shards)), None),
            Some(master) => row(ordinal, None, Some(master)),
        })
        .collect()
}

fn formed(shards: u32) -> Situation {
    let rows = rows(shards);
    let pods = (0..2 * shards).map(|ordinal| match ordinal.checked_sub(shards) {
        None => node(ordinal, master(&format!("x{ordinal}"), 100, 5), &rows),
        Some(of) => node(ordinal, replica_of(of, &format!("x{of}"), 100, 5), &rows),
    });
    let mut situation = Situation { shards, ..Situation::of(pods.collect()) };
    situation.memory.formed = true;
    situation.memory.node_ids =
        (0..2 * shards).map(|ordinal| (name(ordinal), id(ordinal))).collect();
    situation
}

/// Changes what every table says about one node.
fn everybody_sees(situation: &mut Situation, ordinal: u32, change: impl Fn(&mut Row)) {
    for pod in &mut situation.pods {
        if let redis_plugin::current::Seen::Redis(redis) = &mut pod.seen
            && let Some(row) =
                redis.table.as_mut().and_then(|table| table.rows.get_mut(&id(ordinal)))
            && !row.myself
        {
            change(row);
        }
    }
}

fn change_info(pod: &mut PodView, change: impl Fn(&mut Info)) {
    if let redis_plugin::current::Seen::Redis(redis) = &mut pod.seen {
        change(&mut redis.info);
    }
}

#[test]
fn a_formed_cluster_is_left_alone() {
    for shards in [1, 2, 3, 5] {
        let plan = formed(shards).cluster();
        assert_eq!((commands(&plan), problems(&plan)), (vec![], vec![]));
        assert_eq!(plan.shards, Some((shards, 16_384)));
        assert_eq!(
            roles(&plan).iter().filter(|role| **role == Role::Master).count(),
            shards as usize
        );
    }
}

#[test]
fn b15_a_single_node_gets_every_slot_and_meets_nobody() {
    let situation = Situation::of(vec![PodView { ..fresh(0) }]);
    assert_eq!(commands(&situation.cluster())[0], "0: CLUSTER SET-CONFIG-EPOCH 1");
    let ready = Row { epoch: 1, ..row(0, None, None) };
    let situation = Situation::of(vec![node(0, master("f", 0, 0), &[ready])]);
    assert_eq!(commands(&situation.cluster()), ["0: CLUSTER ADDSLOTSRANGE 0 16383"]);
}

#[test]
fn fresh_nodes_get_epochs_then_meet_then_slots_then_replicas() {
    let situation = Situation { shards: 3, ..Situation::of((0..6).map(fresh).collect()) };
    let first = commands(&situation.cluster());
    assert_eq!(first[..6].iter().filter(|command| command.contains("SET-CONFIG-EPOCH")).count(), 6);
    assert_eq!(
        first[6..],
        (1..6).map(|pod| format!("{pod}: CLUSTER MEET 0 6379")).collect::<Vec<_>>()
    );

    let rows: Vec<Row> = (0..6).map(|ordinal| row(ordinal, None, None)).collect();
    let met = |rows: &[Row]| {
        (0..6).map(|ordinal| node(ordinal, master(&format!("f{ordinal}"), 0, 0), rows)).collect()
    };
    let situation = Situation { shards: 3, ..Situation::of(met(&rows)) };
    assert_eq!(
        commands(&situation.cluster()),
        [
            "0: CLUSTER ADDSLOTSRANGE 0 5460",
            "1: CLUSTER ADDSLOTSRANGE 5461 10921",
            "2: CLUSTER ADDSLOTSRANGE 10922 16383"
        ]
    );

    let handshake: Vec<Row> =
        rows.iter().map(|row| Row { handshake: row.id == id(5), ..row.clone() }).collect();
    let mut early = situation.clone();
    early.pods[0] = node(0, master("f0", 0, 0), &handshake);
    assert_eq!(
        commands(&early.cluster()).iter().filter(|command| command.contains("SLOTS")).count(),
        0
    );

    let owned: Vec<Row> = (0..6)
        .map(|ordinal| row(ordinal, (ordinal < 3).then(|| share(ordinal, 3)), None))
        .collect();
    let situation = Situation { shards: 3, ..Situation::of(met(&owned)) };
    let replicate = |pod: u32, of: u32| format!("{pod}: CLUSTER REPLICATE {}", id(of));
    assert_eq!(commands(&situation.cluster()), [replicate(3, 0), replicate(4, 1), replicate(5, 2)]);
}

#[test]
fn a_node_in_the_middle_of_its_introduction_is_no_foreigner() {
    let mut situation = Situation { shards: 3, ..Situation::of((0..3).map(fresh).collect()) };
    let half = [row(0, None, None), row(2, None, None)];
    situation.pods[2] = node(2, master("f", 0, 0), &half);
    assert!(!problems(&situation.cluster()).contains(&"ForeignNode"));
}

#[test]
fn slots_are_not_given_out_while_a_pod_is_missing_or_holds_data() {
    let rows: Vec<Row> = (0..3).map(|ordinal| row(ordinal, None, None)).collect();
    let met =
        |keys| (0..3).map(|ordinal| node(ordinal, master("f", 0, keys), &rows)).collect::<Vec<_>>();
    let mut missing = Situation { shards: 3, ..Situation::of(met(0)) };
    missing.pods[2] = silent(2, Silence::NoAnswer);
    assert_eq!(commands(&missing.cluster()), Vec::<String>::new());
    assert_eq!(
        commands(&Situation { shards: 3, ..Situation::of(met(1)) }.cluster()),
        Vec::<String>::new()
    );
}

#[test]
fn b44_without_status_a_formed_cluster_is_recognised() {
    let mut situation = formed(3);
    situation.memory = redis_plugin::plan::Memory::default();
    assert_eq!(commands(&situation.cluster()), Vec::<String>::new());
}

#[test]
fn lost_slots_are_reported_and_never_given_out_again() {
    let mut situation = formed(3);
    let fewer: Vec<Row> =
        rows(3).into_iter().filter(|row| ![id(0), id(3)].contains(&row.id)).collect();
    for ordinal in [1, 2] {
        situation.pods[ordinal as usize] =
            node(ordinal, master(&format!("x{ordinal}"), 100, 5), &fewer);
        situation.pods[ordinal as usize + 3] =
            node(ordinal + 3, replica_of(ordinal, &format!("x{ordinal}"), 100, 5), &fewer);
    }
    situation.pods[0] = fresh(0);
    situation.pods[3] = fresh(3);
    let plan = situation.cluster();
    assert!(problems(&plan).contains(&"SlotsLost"));
    assert!(
        commands(&plan).iter().all(|command| command.contains("MEET")),
        "{:?}",
        commands(&plan)
    );
}

#[test]
fn b18_b22_a_fresh_ordinal_0_joins_the_others_as_a_replica() {
    let mut situation = formed(3);
    // Shard 0 is led by pod 3 now; pod 0 came back with another identity.
    let old_zero = Row { failed: true, ..row(0, None, None) };
    let mut rows = rows(3);
    rows[0] = old_zero;
    rows[3] = Row { epoch: 9, ..row(3, Some(share(0, 3)), None) };
    situation.pods = (1..6)
        .map(|ordinal| match ordinal {
            1..=3 => node(ordinal, master(&format!("x{ordinal}"), 100, 5), &rows),
            _ => {
                node(ordinal, replica_of(ordinal - 3, &format!("x{}", ordinal - 3), 100, 5), &rows)
            }
        })
        .collect();
    let new_id = format!("{:040x}", 99);
    let mut zero = fresh(0);
    if let redis_plugin::current::Seen::Redis(redis) = &mut zero.seen {
        let own =
            Row { id: new_id.clone(), epoch: 0, ip: ip(0), myself: true, ..row(0, None, None) };
        let table = redis.table.as_mut().unwrap();
        table.myself.clone_from(&new_id);
        table.rows = [(new_id.clone(), own)].into();
    }
    situation.pods.insert(0, zero.clone());
    let plan = situation.cluster();
    assert_eq!(commands(&plan), ["0: CLUSTER MEET 1 6379"], "the cluster is where the slots are");

    // Met: it becomes a replica where one is missing.
    let own = Row { id: new_id.clone(), ip: ip(0), epoch: 0, ..row(0, None, None) };
    let mut all = rows.clone();
    all.push(own);
    situation.pods = situation
        .pods
        .iter()
        .skip(1)
        .map(|pod| node(pod.ordinal, pod.info().unwrap().clone(), &all))
        .collect();
    if let redis_plugin::current::Seen::Redis(redis) = &mut zero.seen {
        let table = redis.table.as_mut().unwrap();
        table.rows = all
            .iter()
            .map(|row| (row.id.clone(), Row { myself: row.id == new_id, ..row.clone() }))
            .collect();
    }
    situation.pods.insert(0, zero);
    assert_eq!(commands(&situation.cluster()), [format!("0: CLUSTER REPLICATE {}", id(3))]);
}

#[test]
fn a_fresh_pod_waits_for_the_election_in_the_shard_that_needs_it() {
    let mut situation = formed(3);
    everybody_sees(&mut situation, 0, |row| row.failed = true);
    let mut joined = rows(3);
    joined[0].failed = true;
    let new = Row { id: format!("{:040x}", 99), ..row(0, None, None) };
    joined.push(new.clone());
    for ordinal in 1..6 {
        let info = situation.pods[ordinal].info().unwrap().clone();
        situation.pods[ordinal] = node(u32::try_from(ordinal).unwrap(), info, &joined);
    }
    situation.pods[0] = node(0, master("f", 0, 0), &joined);
    if let redis_plugin::current::Seen::Redis(redis) = &mut situation.pods[0].seen {
        let table = redis.table.as_mut().unwrap();
        table.myself.clone_from(&new.id);
        table.rows.get_mut(&new.id).unwrap().myself = true;
        table.rows.get_mut(&id(0)).unwrap().myself = false;
    }
    assert_eq!(commands(&situation.cluster()), Vec::<String>::new());
}

#[test]
fn b19_majority_lost_without_volumes_is_one_takeover_of_the_best_replica_and_nothing_else() {
    let mut situation = formed(3);
    for ordinal in [0, 1] {
        situation.pods[ordinal] = stopped(u32::try_from(ordinal).unwrap());
        change_info(&mut situation.pods[ordinal + 3], |info| *info = cut_off(info.clone()));
        everybody_sees(&mut situation, u32::try_from(ordinal).unwrap(), |row| row.suspected = true);
    }
    let plan = situation.cluster();
    assert_eq!((commands(&plan), plan.suspect.as_deref()), (vec![], Some("quorum")));
    let late = situation.clone().suspecting("quorum", 5);
    assert_eq!(commands(&late.cluster()), ["3: CLUSTER FAILOVER TAKEOVER"]);
    let with_volumes = Situation { persistent: true, ..late };
    assert_eq!(
        commands(&with_volumes.cluster()),
        Vec::<String>::new(),
        "they may return with their data"
    );
    assert_eq!(
        commands(&with_volumes.suspecting("quorum", 300).cluster()),
        ["3: CLUSTER FAILOVER TAKEOVER"]
    );
}

#[test]
fn nobody_takes_over_from_a_master_that_may_live() {
    let mut situation = formed(2);
    situation.pods[0] = silent(0, Silence::NoAnswer);
    assert_eq!(commands(&situation.suspecting("quorum", 100_000).cluster()), Vec::<String>::new());
}

#[test]
fn b21_one_of_three_masters_down_is_for_redis_to_solve() {
    let mut situation = formed(3);
    situation.pods[0] = stopped(0);
    change_info(&mut situation.pods[3], |info| *info = cut_off(info.clone()));
    everybody_sees(&mut situation, 0, |row| row.failed = true);
    assert_eq!(commands(&situation.suspecting("quorum", 1_000).cluster()), Vec::<String>::new());
}

#[test]
fn b23_a_master_that_came_back_empty_is_taken_over_before_it_wipes() {
    for (shards, how) in [(3, "FORCE"), (2, "TAKEOVER")] {
        let mut situation = formed(shards);
        let reborn = situation.pods[0].info().map(|_| master("other", 0, 0)).unwrap();
        change_info(&mut situation.pods[0], |info| *info = reborn.clone());
        let replica = shards as usize;
        change_info(&mut situation.pods[replica], |info| *info = cut_off(info.clone()));
        assert_eq!(commands(&situation.cluster()), [format!("{replica}: CLUSTER FAILOVER {how}")]);
    }
}

#[test]
fn b28_the_opinion_of_one_cut_off_node_counts_for_nothing() {
    let mut situation = formed(3);
    // Pod 0 thinks that everybody has failed; everybody thinks that of pod 0.
    everybody_sees(&mut situation, 0, |row| row.failed = true);
    for ordinal in 1..6 {
        if let redis_plugin::current::Seen::Redis(redis) = &mut situation.pods[0].seen {
            redis.table.as_mut().unwrap().rows.get_mut(&id(ordinal)).unwrap().suspected = true;
        }
    }
    let plan = situation.cluster();
    assert_eq!((commands(&plan), problems(&plan)), (vec![], vec!["NodeIsolated"]));
    assert_eq!(plan.in_sync.len(), 5);
}

#[test]
fn b29_everybody_at_a_new_address_is_introduced_again_and_nobody_is_forgotten() {
    let mut situation = formed(3);
    for pod in &mut situation.pods {
        pod.ip = format!("10.9.9.{}", pod.ordinal);
    }
    for ordinal in 0..6 {
        everybody_sees(&mut situation, ordinal, |row| row.suspected = true);
    }
    let plan = situation.cluster();
    assert_eq!(
        commands(&plan),
        [
            "3: CLUSTER MEET 0 6379",
            "4: CLUSTER MEET 1 6379",
            "5: CLUSTER MEET 2 6379",
            "0: CLUSTER MEET 1 6379",
            "0: CLUSTER MEET 2 6379",
            "0: CLUSTER MEET 3 6379",
            "0: CLUSTER MEET 4 6379",
            "0: CLUSTER MEET 5 6379",
        ]
    );
}

#[test]
fn a_link_to_an_old_address_is_made_anew() {
    let mut situation = formed(3);
    change_info(&mut situation.pods[3], |info| {
        *info = Info { master_host: "10.9.9.9".into(), ..cut_off(info.clone()) }
    });
    assert_eq!(commands(&situation.cluster()), [format!("3: CLUSTER REPLICATE {}", id(0))]);
}

#[test]
fn a_node_of_another_cluster_is_never_met() {
    let mut situation = formed(3);
    let foreign: Vec<Row> =
        (50..53).map(|ordinal| row(ordinal, Some(share(ordinal - 50, 3)), None)).collect();
    let mut pod = node(50, master("z", 1, 1), &foreign);
    pod.ordinal = 6;
    pod.name = name(6);
    situation.pods.push(pod);
    let plan = situation.cluster();
    assert_eq!((commands(&plan), problems(&plan)), (vec![], vec!["ForeignNode"]));
}

#[test]
fn b58_a_dead_id_is_forgotten_by_everybody_at_once_and_only_when_nobody_is_away() {
    let mut situation = formed(3);
    let mut with_dead = rows(3);
    with_dead.push(Row { failed: true, ..row(77, None, None) });
    situation.pods = situation
        .pods
        .iter()
        .map(|pod| node(pod.ordinal, pod.info().unwrap().clone(), &with_dead))
        .collect();
    let forget: Vec<String> =
        (0..6).map(|pod| format!("{pod}: CLUSTER FORGET {}", id(77))).collect();
    assert_eq!(commands(&situation.cluster()), forget);

    let mut away = situation.clone();
    away.pods[5] = silent(5, Silence::NoAnswer);
    assert_eq!(commands(&away.cluster()), Vec::<String>::new());

    // Somebody still follows it: without it no election would ever end.
    let mut followed = with_dead.clone();
    followed[5].master_id = Some(id(77));
    situation.pods = situation
        .pods
        .iter()
        .map(|pod| node(pod.ordinal, pod.info().unwrap().clone(), &followed))
        .collect();
    assert_eq!(commands(&situation.cluster()), Vec::<String>::new());
}
