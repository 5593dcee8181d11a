//! What must hold whatever is observed (facts, the end of section 6).

use proptest::prelude::*;
use redis_plugin::current::{Life, PodView, Seen, Silence};
use redis_plugin::info::{Info, InfoRole};
use redis_plugin::nodes::{Row, SlotSet, share};
use redis_plugin::plan::{Plan, Word};
use redis_plugin::role::Role;

use crate::situation::*;

const PODS: u32 = 4;

fn history() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned)
}

prop_compose! {
    fn info(ordinal: u32)(
        is_master in any::<bool>(), gate in any::<bool>(), of in 0..PODS + 1, link_up in any::<bool>(), syncing in any::<bool>(),
        keys in prop::sample::select(vec![0u64, 0, 3, 9]), offset in 0i64..4, replid in history(),
        replid2 in prop::option::of(history()), last_io in prop::option::of(0u64..12), loading in prop::bool::weighted(0.1),
        failing_over in prop::bool::weighted(0.1),
    ) -> Info {
        let base = if is_master { master(&replid, offset, keys) }
            else if gate { gated(ordinal, &replid, offset, keys) }
            else { Info { link_up, syncing, last_io_seconds: last_io, ..replica_of(of, &replid, offset, keys) } };
        Info { replid2: replid2.filter(|other| *other != base.replid), loading, failing_over, ..base }
    }
}

fn seen(ordinal: u32) -> impl Strategy<Value = PodView> {
    prop_oneof![
        6 => info(ordinal).prop_map(move |info| says(ordinal, info)),
        1 => prop::sample::select(vec![Silence::Refused, Silence::NoAnswer, Silence::Rejected]).prop_map(move |silence| silent(ordinal, silence)),
        1 => prop::sample::select(vec![Life::Stopped, Life::Coming]).prop_map(move |life| PodView { life, ..pod(ordinal) }),
    ]
}

prop_compose! {
    fn decorated(ordinal: u32)(
        pod in seen(ordinal), label in prop::option::of(prop::sample::select(vec![Role::Master, Role::Replica, Role::Joining])),
        old in any::<bool>(), terminating in prop::bool::weighted(0.1), ready in prop::bool::weighted(0.8),
    ) -> PodView {
        let revision = if old { "old" } else { "new" };
        PodView { label, terminating, ready, revision: Some(revision.to_owned()), ..pod }
    }
}

prop_compose! {
    fn situation()(
        pods in (decorated(0), decorated(1), decorated(2), decorated(3)), absent in prop::collection::vec(prop::bool::weighted(0.1), 4),
        desired in 1..=PODS, known in prop::option::of(0..PODS), in_sync in prop::collection::btree_set(0..PODS, 0..4),
        suspect in prop::option::of(("election|master cart-redis-[0-3]|quorum", 0i64..400)),
        persistent in any::<bool>(), allow_data_loss in any::<bool>(),
    ) -> Situation {
        let all = [pods.0, pods.1, pods.2, pods.3];
        let pods = all.into_iter().zip(absent).filter(|(_, absent)| !absent).map(|(pod, _)| pod).collect();
        let mut situation = Situation { desired, live: PODS, persistent, allow_data_loss, ..Situation::of(pods) };
        situation.memory.master = known.map(name);
        situation.memory.in_sync = in_sync.into_iter().map(name).collect();
        match suspect {
            Some((subject, seconds)) => situation.suspecting(&subject, seconds),
            None => situation,
        }
    }
}

fn text(plan: &Plan) -> Vec<Vec<String>> {
    let word = |word: &Word| match word {
        Word::Text(text) | Word::IpOf(text) => text.clone(),
    };
    plan.commands.iter().map(|command| command.words.iter().map(word).collect()).collect()
}

/// True for every plan of either mode.
fn is_sane(situation: &Situation, plan: &Plan) -> Result<(), TestCaseError> {
    let find = |name: &str| situation.pods.iter().find(|pod| pod.name == name);
    for (command, words) in plan.commands.iter().zip(text(plan)) {
        let joined = words.join(" ");
        for forbidden in ["FLUSH", "RESET", "DELSLOTS", "SETSLOT", "SHUTDOWN"] {
            prop_assert!(!joined.contains(forbidden), "{}", joined);
        }
        let target = find(&command.pod);
        prop_assert!(
            target.is_some_and(|pod| pod.info().is_some()),
            "{} was not seen",
            command.pod
        );
        for word in &command.words {
            if let Word::IpOf(other) = word {
                prop_assert!(
                    find(other).is_some_and(|pod| !pod.ip.is_empty() && pod.info().is_some()),
                    "{}",
                    other
                );
                prop_assert_ne!(other, &command.pod, "nobody is told to talk to itself");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn replication_plans_are_safe(situation in situation()) {
        let plan = situation.replication();
        is_sane(&situation, &plan)?;
        let find = |name: &str| situation.pods.iter().find(|pod| pod.name == name);

        // At most one master, and only one that says so; nobody is called master while it is being replaced.
        let masters: Vec<&String> = plan.roles.iter().filter(|(_, role)| **role == Role::Master).map(|(pod, _)| pod).collect();
        prop_assert!(masters.len() <= 1);
        if let Some(pod) = masters.first().and_then(|name| find(name)) {
            let says_so = pod.info().is_none_or(|info| info.role == InfoRole::Master);
            prop_assert!(says_so && (pod.info().is_some() || pod.label == Some(Role::Master)));
        }
        let promotes = text(&plan).iter().any(|words| words.join(" ") == "REPLICAOF NO ONE" || words[0] == "FAILOVER");
        prop_assert!(!promotes || masters.is_empty(), "fenced first");

        // Nobody's keys are thrown away for an empty master of another history.
        for command in &plan.commands {
            if let [Word::Text(verb), Word::IpOf(master), _] = command.words.as_slice() && verb == "REPLICAOF" {
                let (to, from) = (find(&command.pod).unwrap().info().unwrap(), find(master).unwrap().info().unwrap());
                prop_assert!(!(from.keys == 0 && to.keys > 0 && !from.related(to)));
            }
        }

        // One voluntary deletion at most, never of a master that could hand over, never of the last copy with data.
        if let Some(deleted) = &plan.delete {
            let pod = find(deleted).unwrap();
            let others_in_sync = plan.in_sync.iter().filter(|name| *name != deleted).count();
            if pod.life == Life::Running && plan.master.as_ref() == Some(deleted) {
                prop_assert_eq!(others_in_sync, 0);
                prop_assert!(situation.persistent || situation.allow_data_loss);
            } else if pod.life == Life::Running {
                prop_assert!(others_in_sync > 0, "somebody else has everything");
            }
            prop_assert_eq!(pod.revision.as_deref(), Some("old"));
        }

        // Fewer pods only with a master that stays and is seen.
        if plan.replicas < PODS {
            let master = plan.master.as_deref().and_then(find).unwrap();
            prop_assert!(master.ordinal < plan.replicas && master.info().is_some());
        }
    }

    #[test]
    fn who_did_not_answer_is_not_replaced_while_a_replica_hears_it(situation in situation()) {
        let mut situation = situation;
        let Some(master) = situation.pods.iter().position(|pod| pod.life == Life::Running) else { return Ok(()) };
        situation.pods[master].seen = Seen::Silent(Silence::NoAnswer);
        let ordinal = situation.pods[master].ordinal;
        situation.memory.master = Some(name(ordinal));
        let Some(hearing) = situation.pods.iter().position(|pod| pod.ordinal != ordinal) else { return Ok(()) };
        let view = says(situation.pods[hearing].ordinal, replica_of(ordinal, "a", 3, 9));
        situation.pods[hearing] = view;
        // Nobody else claims to be the master.
        situation.pods.retain(|pod| pod.info().is_none_or(|info| info.role == InfoRole::Replica));
        let plan = situation.replication();
        prop_assert_eq!(commands(&plan), Vec::<String>::new());
        prop_assert_eq!(plan.delete, None);
        prop_assert_eq!(plan.replicas, situation.live);
    }

    #[test]
    fn the_order_in_which_pods_are_listed_decides_nothing(situation in situation()) {
        let mut reversed = situation.clone();
        reversed.pods.reverse();
        reversed.pods.sort_by_key(|pod| pod.ordinal);
        prop_assert_eq!(situation.replication(), reversed.replication());
        prop_assert_eq!(situation.cluster(), reversed.cluster());
    }

    #[test]
    fn cluster_plans_are_safe(situation in cluster_situation()) {
        let plan = situation.cluster();
        is_sane(&situation, &plan)?;
        if let Some(deleted) = &plan.delete {
            prop_assert_ne!(situation.input().pod(deleted).unwrap().life, Life::Running);
        }
        prop_assert_eq!(plan.replicas, situation.live);
        let joined: Vec<String> = text(&plan).iter().map(|words| words.join(" ")).collect();
        let find = |name: &str| situation.pods.iter().find(|pod| pod.name == name).unwrap();
        let takeovers = joined.iter().filter(|command| command.contains("FAILOVER")).count();
        prop_assert!(takeovers <= 1);
        for (command, joined) in plan.commands.iter().zip(&joined) {
            let pod = find(&command.pod);
            let own = pod.redis().unwrap().table.as_ref().unwrap().own().unwrap().clone();
            if joined.contains("ADDSLOTS") {
                prop_assert!(!situation.memory.formed && own.master);
                prop_assert!(situation.pods.iter().all(|pod| pod.info().is_some_and(|info| info.keys == 0)));
            }
            if joined.contains("REPLICATE") {
                // Only what is empty, or already a replica that lost its link.
                prop_assert!(own.slots.is_empty() || !own.master);
                prop_assert!(!own.master || pod.info().unwrap().keys == 0);
            }
            if joined.contains("FORGET") {
                prop_assert!(situation.pods.iter().all(|pod| pod.info().is_some()), "somebody is away");
            }
            if joined.contains("MEET") {
                let Some(Word::IpOf(other)) = command.words.get(2) else { return Err(TestCaseError::fail("no address")) };
                for met in [pod, find(other)] {
                    let table = met.redis().unwrap().table.as_ref().unwrap();
                    let alone = table.confirmed().count() <= 1;
                    let known = situation.pods.iter().filter(|pod| pod.name != met.name)
                        .filter_map(|pod| pod.redis()?.table.as_ref())
                        .any(|other| other.knows(&table.myself));
                    let speaks = own.slots.is_empty() || !alone;
                    prop_assert!(alone || known || speaks, "{} is neither fresh nor known", met.name);
                }
            }
        }
    }
}

const SHARDS: u32 = 2;

prop_compose! {
    /// A row as somebody may see it.
    fn any_row(ordinal: u32)(
        owns in any::<bool>(), of in 0..SHARDS, failed in prop::bool::weighted(0.2), suspected in prop::bool::weighted(0.2),
        no_address in prop::bool::weighted(0.1), handshake in prop::bool::weighted(0.1), moved in prop::bool::weighted(0.2), epoch in 0u64..9,
    ) -> Row {
        let slots = (owns && ordinal < SHARDS).then(|| share(ordinal, SHARDS));
        let of = (!owns && ordinal >= SHARDS).then_some(of);
        let ip = if moved { "10.9.9.9".to_owned() } else { ip(ordinal) };
        Row { failed, suspected, no_address, handshake, ip, epoch, ..row(ordinal, slots, of) }
    }
}

prop_compose! {
    fn member(ordinal: u32)(
        view in decorated(ordinal), known in prop::collection::vec(any::<bool>(), 4),
        rows in (any_row(0), any_row(1), any_row(2), any_row(3)), slots in any::<bool>(),
    ) -> PodView {
        let rows = [rows.0, rows.1, rows.2, rows.3];
        let mut kept: Vec<Row> = rows.into_iter().zip(known).filter(|(row, known)| *known || row.id == id(ordinal)).map(|(row, _)| row).collect();
        for row in kept.iter_mut().filter(|row| row.id == id(ordinal)) {
            row.handshake = false;
            if !slots { row.slots = SlotSet::default(); }
        }
        match view.info() {
            Some(info) => PodView { label: view.label, terminating: view.terminating, ..node(ordinal, info.clone(), &kept) },
            None => view,
        }
    }
}

prop_compose! {
    fn cluster_situation()(
        pods in (member(0), member(1), member(2), member(3)), formed in any::<bool>(), ids in any::<bool>(),
        waited in prop::option::of(0i64..400), persistent in any::<bool>(),
    ) -> Situation {
        let mut situation = Situation { shards: SHARDS, persistent, ..Situation::of(vec![pods.0, pods.1, pods.2, pods.3]) };
        situation.memory.formed = formed;
        if ids {
            situation.memory.node_ids = (0..PODS).map(|ordinal| (name(ordinal), id(ordinal))).collect();
        }
        match waited {
            Some(seconds) => situation.suspecting("quorum", seconds),
            None => situation,
        }
    }
}
