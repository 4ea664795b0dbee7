//! Relayed traffic other than heartbeats of nodes, on real processes: heartbeats of participants, and reports.

use crate::EXE;
use archon_client::{Participant, Tls};
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::relaying::{NODES, TIMEOUT, options, start};
use archon_integration_tests::{Cluster, Network, Options};
use archon_local_cluster::IdleService;
use archon_security::Role;
use archon_testkit::{check, skipped, wait_for};
use serde_json::Value;
use tokio::runtime::Runtime;

/// It lives by a relay, and coordinators call it; its own calls to coordinators fail.
#[test]
fn isolated_leader_drops_silent_follower_through_its_relay() {
    lead_without_coordinators(&options(Network::Namespaces));
}

#[test]
fn isolated_tls_leader_drops_silent_follower_through_relay() {
    lead_without_coordinators(&Options { tls: true, ..options(Network::Namespaces) });
}

/// Returns a relayed node that leads a key, the key, and a node with a copy of it that relays for no other: without
/// that one the leader keeps both of its relays. Relays and leaders are chosen randomly for each cluster.
fn carried_leader(cluster: &Cluster) -> (&'static str, &'static str, String) {
    let named = |value: &Value| NODES.into_iter().find(|node| value == *node);
    let (found, _) = wait_for(
        "a key of a leader that is carried, and of which one that relays for nobody has a copy",
        TIMEOUT,
        || {
            let listed = cluster.asked(&["node", "list"])?;
            let rows = || listed.as_array().into_iter().flatten();
            let relays: Vec<&str> = rows().filter_map(|row| named(&row["via"])).collect();
            let carried: Vec<&str> =
                rows().filter(|row| named(&row["via"]).is_some()).filter_map(|row| named(&row["node"])).collect();
            let led = cluster.partitions("default").into_iter().find_map(|row| {
                let leader = named(&row["leader"]).filter(|leader| carried.contains(leader))?;
                let copies = row["copies"].as_array().into_iter().flatten().filter_map(|copy| named(&copy["node"]));
                let mut silent = copies.filter(|node| *node != leader && !relays.contains(node));
                Some((leader, silent.next()?, row["partition"].clone()))
            });
            let (leader, follower, partition) = led.ok_or_else(|| listed.to_string())?;
            let holds = |key: &str| {
                cluster.asked(&["partition", "locate", key]).is_ok_and(|found| found["partition"] == partition)
            };
            let key = (0..200).map(|number| format!("key-{number}")).find(|key| holds(key));
            key.map(|key| (leader, follower, key)).ok_or_else(|| format!("none of 200 keys is in {partition}"))
        },
    );
    found
}

fn lead_without_coordinators(options: &Options) {
    if !Network::Namespaces.available() {
        return skipped("no node is kept from calling coordinators: that needs root and network namespaces");
    }
    let mut cluster = start(EXE, options);
    let (victim, follower, key) = carried_leader(&cluster);
    cluster.done(&["kv", "put", &key, "before"]);
    for coordinator in [0, 1, 2].map(coordinator_name) {
        cluster.links().shut(victim, &coordinator);
    }
    println!("{victim} calls no coordinator; then {follower} hears it no more");
    cluster.links().cut_both(victim, follower);
    // The follower is reported, leaves the in-sync set, and a push notifies the leader.
    cluster.done(&["kv", "put", &key, "after", "--timeout", "30s"]);
    assert_eq!((cluster.done(&["kv", "get", &key]), cluster.leader_of(&key)), ("after".to_owned(), victim.to_owned()));
    cluster.wait_node(victim, "alive");
    cluster.links().mend_everything();
    cluster.wait_whole(3);
}

/// Returns the relay of this participant, as coordinators see it.
fn carrier(cluster: &Cluster, participant: &str) -> Result<Option<String>, String> {
    let listed = cluster.asked(&["node", "list"])?;
    let of_it = |node: &&serde_json::Value| node["node"] == participant;
    let row = listed.as_array().into_iter().flatten().find(of_it).ok_or_else(|| listed.to_string())?;
    Ok(row["via"].as_str().map(str::to_owned))
}

#[test]
fn participants_use_relays() {
    carry_a_participant(start(EXE, &options(Network::Loopback)), false);
}

#[test]
fn participants_use_relays_with_tls() {
    carry_a_participant(start(EXE, &Options { tls: true, ..options(Network::Loopback) }), true);
}

/// Its relay is killed, a node is removed, and finally no node relays.
fn carry_a_participant(mut cluster: Cluster, tls: bool) {
    let (runtime, name) = (Runtime::new().expect("a runtime"), "w1");
    cluster.done(&["table", "create", "jobs", "--partitions", "4", "--lease"]);
    let builder =
        Participant::builder(cluster.coordinator_addresses()).table("jobs").name(name).address("w1.example:80");
    let builder = match tls {
        true => builder.tls(Tls::open(&cluster.credentials(Role::Participant, name)).expect("credentials")),
        false => builder,
    };
    if tls {
        // Rights to own came with protocol 2: every participant has the right on tables that existed before.
        cluster.wait_protocol(2);
        cluster.archon(&["access", "revoke", "own", "--every-participant", "--table", "jobs"]);
        let refused = runtime.block_on(builder.clone().start(IdleService)).expect_err("it was granted nothing");
        let grant = "access grant own --participant w1 --table jobs";
        assert!(refused.to_string().contains(grant), "{refused}");
        cluster.done(&grant.split(' ').collect::<Vec<_>>());
    }
    let participant = runtime.block_on(builder.start(IdleService)).expect("a participant");
    let wait_carried = |why: &str, more: u64| {
        let begun = participant.stats().heartbeats_relayed;
        wait_for(why, TIMEOUT, || {
            let now = participant.stats();
            check(now.heartbeats_relayed >= begun + more && participant.owned().len() == 4, || format!("{now:?}"))
        });
    };
    wait_carried("heartbeats of a participant to be carried", 10);
    let first =
        wait_for("a coordinator to see who carries them", TIMEOUT, || carrier(&cluster, name)?.ok_or_else(String::new))
            .0;
    println!("carried by {first}, which is killed");
    cluster.take_node(&first).kill();
    cluster.wait_node(&first, "failed");
    wait_carried("its other relay to carry them", 10);
    // From then on nodes know that some numbers are retired. The participant's is not one of them.
    cluster.done(&["node", "lost", &first, "--accept-data-loss"]);
    wait_for("its row to be removed", TIMEOUT, || {
        let removed = cluster.archon(&["node", "remove", &first]);
        check(removed.code == 0, || removed.stderr)
    });
    wait_carried("heartbeats to be carried after a node was removed", 20);
    cluster.done(&["config", "set", "relays_from=0"]);
    let mut before = participant.stats();
    wait_for("heartbeats of which none is carried", TIMEOUT, || {
        let now = participant.stats();
        let (sent, carried) = (now.heartbeats - before.heartbeats, now.heartbeats_relayed - before.heartbeats_relayed);
        if sent >= 10 {
            before = now;
        }
        check(sent >= 10 && carried == 0, || format!("{sent} heartbeats, {carried} carried"))
    });
    let stats = participant.stats();
    assert_eq!((stats.registrations, stats.leases_lapsed, stats.losses), (1, 0, 0), "{stats:?}");
    assert!(runtime.block_on(participant.stop(TIMEOUT)));
}
