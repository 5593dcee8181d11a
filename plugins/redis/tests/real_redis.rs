//! The plugin against real Redis servers: a small fleet plays the API server, the StatefulSet controller, the kubelet
//! and the provider, and calls the plugin as the host would. Pods start by the plugin's own start script.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and its tools are part of it"
)]

#[path = "real_redis/fleet.rs"]
mod fleet;
#[path = "real_redis/resp.rs"]
mod resp;

use std::time::Duration;

use fleet::Fleet;
use serde_json::json;

const KEYS: usize = 50;

/// Longest wait for anything: the start script's 15 s delay, the node timeout of 5 s, votes, and a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn settled(fleet: &Fleet) -> bool {
    fleet.phase() == "Ready"
}

#[test]
fn a_killed_master_is_replaced_by_a_replica_with_all_the_data() {
    let mut fleet = Fleet::new("failover", json!({"replicas": 3}));
    fleet.run_until("ready", PATIENCE, settled);
    let master = fleet.master();
    fleet.write_keys(&master, KEYS);
    fleet.wait_for_replicas(&master);

    fleet.kill(&master);
    let took = fleet.run_until("another master", PATIENCE, |fleet| {
        fleet.labelled_master().is_some_and(|now| now != master)
    });
    let successor = fleet.master();
    assert_eq!(fleet.keys(&successor), KEYS);
    fleet.write_keys(&successor, KEYS + 1);
    assert!(took < Duration::from_secs(5), "the failover took {took:?}");
    assert!(fleet.told("FailoverStarted") && fleet.told("FailoverCompleted"), "{:?}", fleet.events);

    fleet.restart(&master);
    fleet.run_until("ready again", PATIENCE, settled);
    assert_eq!(fleet.master(), successor, "the old master returns as a replica");
    assert_eq!(fleet.keys(&master), KEYS + 1);
    fleet.assert_steady();
}

#[test]
fn b23_a_master_that_restarts_empty_before_anybody_looks_wipes_nobody() {
    let mut fleet = Fleet::new("reborn", json!({"replicas": 3}));
    fleet.run_until("ready", PATIENCE, settled);
    let master = fleet.master();
    fleet.write_keys(&master, KEYS);
    fleet.wait_for_replicas(&master);

    fleet.kill(&master);
    fleet.restart(&master);
    assert_eq!(fleet.keys(&master), 0, "without a volume or a graceful end it has nothing");
    fleet.run_until("another master", PATIENCE, |fleet| {
        settled(fleet) && fleet.labelled_master().is_some_and(|now| now != master)
    });
    for pod in fleet.pods() {
        assert_eq!(fleet.keys(&pod), KEYS, "{pod}");
    }
}

#[test]
fn a_single_pod_with_a_volume_comes_back_with_its_data() {
    let mut fleet = Fleet::new("single", json!({"replicas": 1, "storage": {"size": "1Gi"}}));
    fleet.run_until("ready", PATIENCE, settled);
    let master = fleet.master();
    fleet.write_keys(&master, KEYS);
    fleet.flush_append_only_file(&master);
    fleet.delete(&master);
    fleet.run_until("ready again", PATIENCE, |fleet| settled(fleet) && fleet.keys(&master) == KEYS);
    fleet.write_keys(&master, KEYS + 1);
}

#[test]
fn everybody_restarting_with_volumes_loses_nothing() {
    let mut fleet = Fleet::new("all", json!({"replicas": 3, "storage": {"size": "1Gi"}}));
    fleet.run_until("ready", PATIENCE, settled);
    let master = fleet.master();
    fleet.write_keys(&master, KEYS);
    fleet.wait_for_replicas(&master);
    fleet.flush_append_only_file(&master);
    for pod in fleet.pods() {
        fleet.delete(&pod);
    }
    fleet.run_until("ready again", PATIENCE, |fleet| settled(fleet) && fleet.uptimes_are_new());
    for pod in fleet.pods() {
        assert_eq!(fleet.keys(&pod), KEYS, "{pod}");
    }
}

#[test]
fn scaling_up_and_down_keeps_the_data_even_when_the_master_would_go() {
    let mut fleet = Fleet::new("scale", json!({"replicas": 3}));
    fleet.run_until("ready", PATIENCE, settled);
    fleet.write_keys(&fleet.master(), KEYS);
    fleet.change_spec(&json!({"replicas": 5}));
    fleet.run_until("five pods", PATIENCE, |fleet| settled(fleet) && fleet.pods().len() == 5);
    fleet.hand_over_to(&fleet.pod_name(4));
    fleet.run_until("settled", PATIENCE, settled);
    assert_eq!(fleet.master(), fleet.pod_name(4), "labels follow what Redis says");
    fleet.change_spec(&json!({"replicas": 2}));
    fleet.run_until("two pods", PATIENCE, |fleet| settled(fleet) && fleet.pods().len() == 2);
    for pod in fleet.pods() {
        assert_eq!(fleet.keys(&pod), KEYS, "{pod}");
    }
    assert!(fleet.told("HandoverStarted"), "{:?}", fleet.events);
}

#[test]
fn b40_a_new_version_reaches_every_pod_one_at_a_time_without_losing_data() {
    let mut fleet = Fleet::new("roll", json!({"replicas": 3}));
    fleet.run_until("ready", PATIENCE, settled);
    fleet.write_keys(&fleet.master(), KEYS);
    fleet.change_spec(&json!({"version": "7.0.15"}));
    fleet.run_until("rolled", PATIENCE, |fleet| settled(fleet) && fleet.all_pods_are_current());
    for pod in fleet.pods() {
        assert_eq!(fleet.keys(&pod), KEYS, "{pod}");
    }
    assert_eq!(fleet.deletions_max, 1, "pods deleted in one decision");
    assert_eq!(fleet.deletions, 3);
}

#[test]
fn a_cluster_forms_survives_a_lost_pod_and_finds_everybody_at_new_addresses() {
    let spec = json!({"replicas": 6, "clusterMode": true, "storage": {"size": "1Gi"}});
    let mut fleet = Fleet::new("cluster", spec);
    fleet.run_until("formed", PATIENCE, settled);
    assert!(fleet.told("ClusterFormed"));
    fleet.assert_slots_covered(3, 1);
    fleet.write_cluster_keys(KEYS);

    // A pod and its volume are lost: Redis elects, the new pod takes the place of a replica, the old id is forgotten.
    let lost = fleet.pod_name(0);
    fleet.delete_with_volume(&lost);
    fleet.run_until("healed", PATIENCE, |fleet| settled(fleet) && fleet.known_nodes_max() == 6);
    fleet.assert_slots_covered(3, 1);
    assert_eq!(fleet.cluster_keys(), KEYS);

    // Everybody comes back elsewhere.
    fleet.flush_all_append_only_files();
    for pod in fleet.pods() {
        fleet.delete(&pod);
    }
    fleet.run_until("healed at new addresses", PATIENCE, |fleet| {
        settled(fleet) && fleet.uptimes_are_new() && fleet.every_node_is_up()
    });
    fleet.assert_slots_covered(3, 1);
    assert_eq!(fleet.cluster_keys(), KEYS);
    fleet.assert_steady();
}

#[test]
fn a_cluster_master_that_restarts_without_data_waits_until_its_replica_took_over() {
    let mut fleet = Fleet::new("wait", json!({"replicas": 6, "clusterMode": true}));
    fleet.run_until("formed", PATIENCE, settled);
    fleet.write_cluster_keys(KEYS);
    fleet.wait_for_cluster_replicas();
    let master = fleet.pod_name(0);
    fleet.kill(&master);
    fleet.restart_in_background(&master);
    fleet.run_until("back", PATIENCE, |fleet| settled(fleet) && fleet.answers(&master));
    assert_eq!(fleet.cluster_keys(), KEYS);
    assert_ne!(fleet.labels(&master).as_deref(), Some("master"));
}

#[test]
fn b19_without_a_majority_the_operator_takes_over() {
    let mut fleet = Fleet::new("quorum", json!({"replicas": 4, "clusterMode": true}));
    fleet.run_until("formed", PATIENCE, settled);
    fleet.write_cluster_keys(KEYS);
    fleet.wait_for_cluster_replicas();
    let master = fleet.pod_name(0);
    fleet.delete(&master);
    fleet
        .run_until("taken over", PATIENCE, |fleet| settled(fleet) && fleet.told("TakeoverStarted"));
    fleet.assert_slots_covered(2, 1);
    assert_eq!(fleet.cluster_keys(), KEYS);
}
