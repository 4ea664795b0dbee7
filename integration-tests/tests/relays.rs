//! Heartbeats that nodes carry for each other, on real processes: with `relays_from=2` a cluster of four has two relays.

use archon_client::{AcquireError, Callbacks, Epoch, Grant, Participant, PartitionId, Tls, Why};
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::wait::check;
use archon_integration_tests::{Cluster, Network, Options, Scrape, http, wait_for};
use archon_security::Role;
use archon_skip::skipped;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
const NODES: [&str; 4] = ["athens", "byzantium", "cyrene", "delphi"];
const TIMEOUT: Duration = Duration::from_secs(60);
const RELAYED: &str = "archon_node_heartbeats_relayed_total";
const CARRIED: &str = "archon_node_relay_heartbeats_total";
const TOLD_OVER: &str = "archon_node_lives_told_over_total";
const LAPSED: &str = "archon_node_leases_lapsed_total";

/// Each node holds something.
fn options(network: Network) -> Options {
    // Behind links of their own members tell their metrics to nobody.
    let metrics = network == Network::Loopback;
    Options { nodes: NODES.to_vec(), nodes_min: NODES.len(), metrics, network, alone: true, ..Options::replicated() }
}

fn start_with(options: &Options) -> Cluster {
    let cluster = Cluster::start(EXE, options);
    cluster.wait_whole(3);
    cluster.wait_protocol(2);
    cluster
}

/// With relays.
fn start(network: Network) -> Cluster {
    start_relays(&options(network))
}

fn start_relays(options: &Options) -> Cluster {
    let cluster = start_with(options);
    cluster.done(&["config", "set", "relays_from=2"]);
    cluster
}

fn count(cluster: &Cluster, node: &str, series: &str) -> Result<f64, String> {
    let answer = http::get(cluster.metrics_address(node), "/metrics").map_err(|error| format!("{node}: {error}"))?;
    Ok(Scrape::read(&answer.body)?.get(series))
}

/// Waits until each of these nodes has had `more` answers by a relay.
fn wait_relayed(cluster: &Cluster, nodes: &[&str], more: f64) {
    let before: Vec<f64> = nodes.iter().map(|node| count(cluster, node, RELAYED).unwrap_or(0.0)).collect();
    wait_for("heartbeats to be carried", TIMEOUT, || {
        let now: Result<Vec<f64>, String> = nodes.iter().map(|node| count(cluster, node, RELAYED)).collect();
        let now = now?;
        check(before.iter().zip(&now).all(|(before, now)| now - before >= more), || format!("{before:?}, {now:?}"))
    });
}

/// The nodes that carry heartbeats.
fn relays(cluster: &Cluster) -> Vec<&'static str> {
    NODES.into_iter().filter(|node| count(cluster, node, CARRIED).is_ok_and(|count| count > 0.0)).collect()
}

#[track_caller]
fn assert_no_lease_lapsed(cluster: &Cluster, nodes: &[&str]) {
    for node in nodes {
        assert_eq!(count(cluster, node, LAPSED), Ok(0.0), "{node}");
    }
}

/// Waits until the nodes that are alive are listed with whoever relays for them: one of `relays`, or nobody.
fn wait_listed(cluster: &Cluster, relays: &[&str]) {
    wait_for("the list to say who relays", TIMEOUT, || {
        let listed = cluster.json(&["node", "list"])?;
        let alive = listed.as_array().into_iter().flatten().filter(|node| node["status"] == "alive");
        let right = |node: &serde_json::Value| match node["via"].as_str() {
            Some(relay) => relays.contains(&relay),
            None => relays.is_empty() || node["node"].as_str().is_some_and(|name| relays.contains(&name)),
        };
        check(alive.clone().count() > 1 && alive.clone().all(right), || listed.to_string())
    });
}

#[test]
fn a_killed_relay_costs_nobody_its_lease() {
    kill_a_relay(start(Network::Loopback));
}

#[test]
fn members_that_say_who_they_are_had_no_relays() {
    kill_a_relay(start_relays(&Options { tls: true, ..options(Network::Loopback) }));
}

fn kill_a_relay(mut cluster: Cluster) {
    wait_relayed(&cluster, &NODES, 5.0);
    let relays = relays(&cluster);
    wait_listed(&cluster, &relays);
    let victim = relays[0];
    println!("relays: {relays:?}; killed: {victim}");
    cluster.take_node(victim).kill();
    cluster.wait_node(victim, "failed");
    let left: Vec<&str> = NODES.into_iter().filter(|node| *node != victim).collect();
    wait_relayed(&cluster, &left, 5.0);
    assert_no_lease_lapsed(&cluster, &left);
    // Nobody relays any more: everybody goes straight.
    cluster.done(&["config", "set", "relays_from=0"]);
    let sum = |series| left.iter().map(|node| count(&cluster, node, series)).sum::<Result<f64, String>>();
    let look = || Ok::<_, String>((sum("archon_node_heartbeats_total")?, sum(CARRIED)?));
    let (mut beats, mut carried) = look().expect("counts");
    wait_for("heartbeats of which none is carried", TIMEOUT, || {
        let (beats_now, carried_now) = look()?;
        let (sent, passed_on) = (beats_now - beats, carried_now - carried);
        if sent >= 30.0 {
            (beats, carried) = (beats_now, carried_now);
        }
        check(sent >= 30.0 && passed_on == 0.0, || format!("{sent} heartbeats, {passed_on} carried"))
    });
    wait_listed(&cluster, &[]);
    assert_no_lease_lapsed(&cluster, &left);
}

/// Its streams stay open, and nothing comes on them.
#[test]
fn a_paused_relay_costs_nobody_else_its_lease() {
    let cluster = start(Network::Loopback);
    wait_relayed(&cluster, &NODES, 5.0);
    let relays = relays(&cluster);
    let (victim, other) = (relays[0], relays[1]);
    wait_listed(&cluster, &relays);
    cluster.node(victim).pause();
    cluster.wait_node(victim, "failed");
    let left: Vec<&str> = NODES.into_iter().filter(|node| *node != victim).collect();
    wait_relayed(&cluster, &left, 5.0);
    // With three nodes left two relay again: the other one, and another.
    wait_for("members to show another relay", TIMEOUT, || {
        let listed = cluster.json(&["node", "list"])?;
        let mut via = listed.as_array().into_iter().flatten().filter(|row| row["status"] == "alive");
        check(via.all(|row| row["via"] != victim), || format!("{other} relays on: {listed}"))
    });
    assert_no_lease_lapsed(&cluster, &left);
    cluster.node(victim).resume();
    cluster.wait_node(victim, "alive");
    assert_no_lease_lapsed(&cluster, &left);
}

#[test]
fn whoever_leads_next_hears_everybody_by_the_relays() {
    let mut cluster = start(Network::Loopback);
    wait_relayed(&cluster, &NODES, 5.0);
    let (leader, _) = cluster.wait_leader();
    cluster.take_coordinator(leader).kill();
    cluster.wait_leader();
    wait_relayed(&cluster, &NODES, 5.0);
    for node in NODES {
        cluster.wait_node(node, "alive");
    }
}

const TABLE_VERSION: &str = "archon_node_table_version";
const PUSHES: &str = "archon_coordinator_pushes_total";
const NEWS: &str = "archon_coordinator_news_total";

/// What all coordinators have counted.
fn coordinators_count(cluster: &Cluster, series: &str) -> f64 {
    [0, 1, 2].map(coordinator_name).iter().map(|name| count(cluster, name, series).unwrap_or(0.0)).sum()
}

/// Changes the row of a node, and returns the version that everybody is to hold then.
fn change_a_row(cluster: &Cluster, node: &str, weight: usize) -> f64 {
    cluster.done(&["node", "set", node, "--weight", &weight.to_string()]);
    let status = cluster.json(&["status"]).expect("a status");
    status["table_version"].as_f64().expect("a version")
}

/// Waits until these nodes hold everything up to a version. Returns how long that took.
fn wait_held(cluster: &Cluster, nodes: &[&str], version: f64) -> Duration {
    let begun = Instant::now();
    wait_for("all to hold it", TIMEOUT, || {
        let held: Result<Vec<f64>, String> = nodes.iter().map(|node| count(cluster, node, TABLE_VERSION)).collect();
        let held = held?;
        check(held.iter().all(|held| *held >= version), || format!("{held:?}, of {version}"))
    });
    begun.elapsed()
}

/// Changes rows one after the other, each once everybody holds the one before, and returns how many pushes that took, how many answers
/// brought something, and how long the longest took.
fn change_rows(cluster: &Cluster, changes: usize) -> (f64, f64, Duration) {
    let counts = || (coordinators_count(cluster, PUSHES), coordinators_count(cluster, NEWS));
    let (pushes, news) = counts();
    let took =
        (0..changes).map(|change| wait_held(cluster, &NODES, change_a_row(cluster, NODES[change % 4], 50 + change)));
    let slowest = took.max().unwrap_or_default();
    let (pushes_now, news_now) = counts();
    (pushes_now - pushes, news_now - news, slowest)
}

#[test]
fn each_change_of_a_row_was_pushed_to_every_node_that_a_relay_hears() {
    let cluster = start_with(&options(Network::Loopback));
    let changes = 10;
    let (pushes, news, slowest) = change_rows(&cluster, changes);
    println!("without relays: {pushes} pushes, {news} answers with news, {slowest:?} at most");
    assert!(pushes >= 4.0 * changes as f64 && news == 0.0, "{pushes} pushes, {news} answers");
    cluster.done(&["config", "set", "relays_from=2"]);
    wait_relayed(&cluster, &NODES, 5.0);
    let (pushes, news, slowest) = change_rows(&cluster, changes);
    println!("with relays: {pushes} pushes, {news} answers with news, {slowest:?} at most");
    assert!(pushes <= changes as f64 && news >= 3.0 * changes as f64, "{pushes} pushes, {news} answers");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

#[test]
fn members_that_say_who_they_are_took_no_tables_from_relays() {
    let cluster = start_relays(&Options { tls: true, ..options(Network::Loopback) });
    wait_relayed(&cluster, &NODES, 5.0);
    let (pushes, news, slowest) = change_rows(&cluster, 5);
    println!("by TLS: {pushes} pushes, {news} answers with news, {slowest:?} at most");
    assert!(pushes <= 5.0 && news >= 15.0, "{pushes} pushes, {news} answers");
    for node in NODES {
        assert_eq!(count(&cluster, node, "archon_node_news_refused_total"), Ok(0.0), "{node}");
    }
}

#[test]
fn a_relay_that_was_killed_kept_a_change_from_its_members() {
    let mut cluster = start(Network::Loopback);
    wait_relayed(&cluster, &NODES, 5.0);
    let victim = relays(&cluster)[0];
    let left: Vec<&str> = NODES.into_iter().filter(|node| *node != victim).collect();
    cluster.take_node(victim).kill();
    let version = change_a_row(&cluster, left[0], 77);
    let took = wait_held(&cluster, &left, version);
    println!("killed: {victim}; the others held the change after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_no_lease_lapsed(&cluster, &left);
}

/// What a node prints that was told by a node, and what one prints that a coordinator refused.
const TOLD_BY_NODE: &str = "that this life ended at version";
const TOLD_BY_COORDINATOR: &str = "the coordinator has ended this incarnation";

/// Pauses a node until it is failed and others lead what it led, and wakes it. Returns its log from then on until it has registered anew, and
/// how long that took. What it serves meanwhile is what others wrote, or nothing.
fn woken(cluster: &Cluster, victim: &str, before_waking: impl FnOnce()) -> (String, Duration) {
    let key = (0..200).map(|number| format!("paused-{number}")).find(|key| cluster.leader_of(key) == victim);
    let key = key.expect("it leads one of 200 keys");
    cluster.done(&["kv", "put", &key, "before"]);
    cluster.node(victim).pause();
    cluster.wait_node(victim, "failed");
    cluster.done(&["kv", "put", &key, "after", "--timeout", "30s"]);
    before_waking();
    let (slept, registered) = (cluster.node(victim).log().len(), |log: &str| log.contains(" registered "));
    let (woken, took, read) = std::thread::scope(|scope| {
        // This read waits in the sleeper's socket.
        let via = ["kv", "--via", cluster.node_address(victim), "get", &key, "--timeout", "5s"];
        let read = scope.spawn(move || cluster.archon_at("127.0.0.1:1", &via));
        let begun = Instant::now();
        cluster.node(victim).resume();
        let log = || cluster.node(victim).log().get(slept..).unwrap_or_default().to_owned();
        wait_for("it to register anew", TIMEOUT, || check(registered(&log()), log));
        (log(), begun.elapsed(), read.join().expect("a read ends"))
    });
    assert!(read.code != 0 || read.stdout == "after", "{victim} answered {:?}", read.stdout);
    (woken, took)
}

/// How often members have heard from relays that their life is over.
fn told_by(cluster: &Cluster, relays: &[&str]) -> f64 {
    let told = |relay: &&str| count(cluster, relay, "archon_node_relay_lives_over_total").unwrap_or(0.0);
    relays.iter().map(told).sum()
}

#[test]
fn a_paused_node_is_told_by_its_relay_that_it_is_failed_and_registers_anew_as_it_wakes() {
    let cluster = start(Network::Loopback);
    wait_relayed(&cluster, &NODES, 5.0);
    let relays = relays(&cluster);
    let victim = NODES.into_iter().find(|node| !relays.contains(node)).expect("half of them relay");
    for _ in 0..5 {
        wait_relayed(&cluster, &[victim], 3.0);
        let (before, told_before) = (count(&cluster, victim, TOLD_OVER).expect("a count"), told_by(&cluster, &relays));
        let mut told = false;
        let (log, took) = woken(&cluster, victim, || {
            let until = Instant::now() + Duration::from_secs(3);
            while !told && Instant::now() < until {
                told = told_by(&cluster, &relays) > told_before;
            }
        });
        cluster.wait_node(victim, "alive");
        if !told {
            println!("{victim} fell asleep when it asked the coordinators itself");
            continue;
        }
        // The word was there before it could ask anybody; another node that it calls may have been as fast.
        println!("{victim} registered {took:?} after it woke");
        let teller = log.lines().find_map(|line| line.split_once("told by ")?.1.split_once(TOLD_BY_NODE));
        let (teller, _) = teller.unwrap_or_else(|| panic!("nobody told it: {log}"));
        assert!(NODES.contains(&teller.trim()), "told by {teller}");
        assert!(!log.contains(TOLD_BY_COORDINATOR) && took < Duration::from_secs(3), "{took:?}: {log}");
        assert_eq!(count(&cluster, victim, TOLD_OVER), Ok(before + 1.0));
        cluster.wait_whole(3);
        return;
    }
    panic!("no relay told {victim}");
}

/// Whoever comes first tells it: a coordinator to which it turns, or a node that hears it.
#[test]
fn a_paused_node_without_relays_is_told_when_it_calls() {
    let cluster = start_with(&options(Network::Loopback));
    let (log, took) = woken(&cluster, NODES[1], || ());
    let by_node = log.contains(TOLD_BY_NODE);
    println!("{} registered {took:?} after it woke, told by a node: {by_node}", NODES[1]);
    assert!(by_node || log.contains(TOLD_BY_COORDINATOR), "{log}");
    assert_eq!(count(&cluster, NODES[1], TOLD_OVER), Ok(f64::from(u8::from(by_node))));
    cluster.wait_node(NODES[1], "alive");
}

/// No coordinator can tell it, and what it leads is led by others, who hear it.
#[test]
fn a_node_that_is_cut_off_from_the_coordinators_alone_is_told_by_those_who_hear_it() {
    if !Network::Namespaces.available() {
        return skipped("no node is cut off from the coordinators: that needs root and network namespaces");
    }
    let mut cluster = start_with(&options(Network::Namespaces));
    let victim = NODES[1];
    for coordinator in [0, 1, 2].map(coordinator_name) {
        cluster.links().cut_both(victim, &coordinator);
    }
    wait_for("a node to tell it", TIMEOUT, || {
        let log = cluster.node(victim).log();
        check(log.contains(TOLD_BY_NODE), || log)
    });
    cluster.links().mend_everything();
    cluster.wait_node(victim, "alive");
    cluster.wait_whole(3);
    let log = cluster.node(victim).log();
    assert!(!log.contains(TOLD_BY_COORDINATOR), "{log}");
}

/// Whether it relays itself or not: its own relay says that no coordinator answers, and the other one reaches one.
#[test]
fn a_node_that_no_coordinator_hears_directly_lives_by_a_relay() {
    if !Network::Namespaces.available() {
        return skipped("no node is cut off from the coordinators: that needs root and network namespaces");
    }
    let mut cluster = start(Network::Namespaces);
    for victim in NODES {
        wait_for("its heartbeats to be carried", TIMEOUT, || {
            let log = cluster.node(victim).log();
            let last = log.lines().rev().find(|line| line.contains("heartbeats"));
            let last = last.unwrap_or_default();
            check(last.contains("are carried by a relay"), || last.to_owned())
        });
        println!("cut off from all coordinators: {victim}");
        let logged = NODES.map(|node| (node, cluster.node(node).log().len()));
        for coordinator in [0, 1, 2].map(coordinator_name) {
            cluster.links().cut_both(victim, &coordinator);
        }
        // Three failure time-outs.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            let nodes = cluster.json(&["node", "list"]).expect("a list");
            let row = nodes.as_array().and_then(|rows| rows.iter().find(|row| row["node"] == victim)).cloned();
            assert_eq!(row.as_ref().map(|row| &row["status"]), Some(&"alive".into()), "{victim}: {nodes}");
        }
        // Neither its own, nor those of whom it carries, if it does.
        for (node, before) in logged {
            let log = cluster.node(node).log();
            assert!(!log.get(before..).unwrap_or_default().contains("lease lapsed"), "{node}: {log}");
        }
        cluster.links().mend_everything();
    }
}

/// It lives by a relay, and coordinators call it; what it calls comes to nothing.
#[test]
fn a_leader_that_could_call_no_coordinator_waited_for_a_silent_follower_for_ever() {
    lead_without_coordinators(&options(Network::Namespaces));
}

#[test]
fn by_tls_nobody_passes_on_what_a_leader_cannot_tell_itself() {
    lead_without_coordinators(&Options { tls: true, ..options(Network::Namespaces) });
}

fn lead_without_coordinators(options: &Options) {
    if !Network::Namespaces.available() {
        return skipped("no node is kept from calling coordinators: that needs root and network namespaces");
    }
    let mut cluster = start_relays(options);
    // Whom the others choose is theirs: two may have the same relay.
    let ((victim, relay), _) = wait_for("the list to say who is carried", TIMEOUT, || {
        let listed = cluster.json(&["node", "list"])?;
        let carried = listed.as_array().into_iter().flatten().find_map(|row| {
            let named = |key: &str| NODES.into_iter().find(|node| row[key] == *node);
            Some((named("node")?, named("via")?))
        });
        carried.ok_or_else(|| listed.to_string())
    });
    let follower = NODES.into_iter().find(|node| ![victim, relay].contains(node)).expect("there are four");
    let is_copied = |row: &&serde_json::Value| {
        let copies = row["copies"].as_array().into_iter().flatten();
        row["leader"] == victim && copies.into_iter().any(|copy| copy["node"] == follower)
    };
    let partitions = cluster.partitions("default");
    let wanted: Vec<_> = partitions.iter().filter(is_copied).map(|row| row["partition"].clone()).collect();
    let holds = |key: &str| {
        let found = cluster.json(&["partition", "locate", key]).expect("partition locate");
        wanted.contains(&found["partition"])
    };
    let key = (0..200).map(|number| format!("key-{number}")).find(|key| holds(key));
    let key = key.expect("it leads one of 200 keys of which the other one has a copy");
    cluster.done(&["kv", "put", &key, "before"]);
    for coordinator in [0, 1, 2].map(coordinator_name) {
        cluster.links().shut(victim, &coordinator);
    }
    println!("{victim} calls no coordinator; then {follower} hears it no more");
    cluster.links().cut_both(victim, follower);
    // The follower is told of, counts no more, and a push says so to the leader.
    cluster.done(&["kv", "put", &key, "after", "--timeout", "30s"]);
    assert_eq!((cluster.done(&["kv", "get", &key]), cluster.leader_of(&key)), ("after".to_owned(), victim.to_owned()));
    cluster.wait_node(victim, "alive");
    cluster.links().mend_everything();
    cluster.wait_whole(3);
}

/// A service that takes what it is given.
struct Jobs;

impl Callbacks for Jobs {
    async fn acquire(&self, _: Grant) -> Result<(), AcquireError> {
        Ok(())
    }

    async fn release(&self, _: Grant, _: Why) {}

    fn lost(&self, _: PartitionId, _: Epoch) {}
}

/// Who carries the heartbeats of this participant, as coordinators see it.
fn carrier(cluster: &Cluster, participant: &str) -> Result<Option<String>, String> {
    let listed = cluster.json(&["node", "list"])?;
    let of_it = |node: &&serde_json::Value| node["node"] == participant;
    let row = listed.as_array().into_iter().flatten().find(of_it).ok_or_else(|| listed.to_string())?;
    Ok(row["via"].as_str().map(str::to_owned))
}

#[test]
fn participants_asked_the_coordinators_themselves_though_nodes_relay() {
    carry_a_participant(start(Network::Loopback), false);
}

#[test]
fn participants_that_say_who_they_are_asked_the_coordinators_themselves() {
    carry_a_participant(start_relays(&Options { tls: true, ..options(Network::Loopback) }), true);
}

/// Its relay is killed, a node is removed, and in the end nobody relays.
fn carry_a_participant(mut cluster: Cluster, tls: bool) {
    let (runtime, name) = (Runtime::new().expect("a runtime"), "w1");
    cluster.done(&["table", "create", "jobs", "--partitions", "4", "--lease"]);
    let builder =
        Participant::builder(cluster.coordinator_addresses()).table("jobs").name(name).address("w1.example:80");
    let builder = match tls {
        true => builder.tls(Tls::open(&cluster.credentials(Role::Participant, name)).expect("credentials")),
        false => builder,
    };
    let participant = runtime.block_on(builder.start(Jobs)).expect("a participant");
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
    // From then on nodes know that some numbers are nobody's any more. The participant's is not one of them.
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
