//! Instances of a service own the partitions of a lease table, as processes of their own: they start, die, pause, are
//! cut off and stop cleanly, and so do coordinators. Users increment counters throughout. Each test checks that no two
//! instances owned the same partition at once, by the clock of the machine, and that each acknowledged request was
//! applied exactly once.

use archon_examples::counter::{Line, Use, boot_clock_ns};
use archon_integration_tests::participants::{Service, ServiceOptions};
use archon_integration_tests::{Network, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PROGRAMS: (&str, &str) = (env!("CARGO_BIN_EXE_archon-under-test"), env!("CARGO_BIN_EXE_counter-under-test"));
const NAMES: [&str; 9] = ["ada", "barbara", "edith", "frances", "grace", "jean", "karen", "lynn", "mary"];
const TIMEOUT: Duration = Duration::from_secs(60);

/// One node is enough for the service's rows.
fn cluster() -> Options {
    Options { coordinators: 1, ..with_quorum() }
}

/// Returns options for tests that stop coordinators.
fn with_quorum() -> Options {
    Options { nodes: vec!["athens"], nodes_min: 1, ..Options::default() }
}

fn service(names: &[&str]) -> Service {
    Service::start(PROGRAMS, &cluster(), ServiceOptions::default(), names)
}

/// Returns the last moment at which an instance certainly owned a partition.
fn last_use(lines: &[Line]) -> u64 {
    let used = lines.iter().filter_map(|line| match line {
        Line::Used { last_ns, .. } => Some(*last_ns),
        _ => None,
    });
    used.max().unwrap_or(0)
}

/// Returns the partitions that an instance has lost since a moment.
fn lost_since(lines: &[Line], since_ns: u64) -> BTreeSet<(u32, u64)> {
    let lost = lines.iter().filter_map(|line| match line {
        Line::Lost { partition, epoch, at_ns } if *at_ns >= since_ns => Some((*partition, *epoch)),
        _ => None,
    });
    lost.collect()
}

/// Returns the last recorded partitions of an instance.
fn owned(lines: &[Line]) -> BTreeSet<(u32, u64)> {
    let used = lines.iter().rev().find_map(|line| match line {
        Line::Used { owned, .. } if owned.len() > 1 => Some(owned.iter().copied().collect()),
        _ => None,
    });
    used.unwrap_or_default()
}

#[test]
fn ninth_instance_gets_its_share_within_limits() {
    let options = ServiceOptions { partitions: 128, partitions_max: 16, ..ServiceOptions::default() };
    let mut service = Service::start(PROGRAMS, &cluster(), options, &NAMES[..8]);
    let acquired = |lines: &[Line]| lines.iter().filter(|line| matches!(line, Line::Acquired { .. })).count();
    let before: usize = NAMES.iter().map(|name| acquired(&service.log(name))).sum();
    service.start_instance(NAMES[8]);
    let took = service.wait_even();
    let after: usize = NAMES.iter().map(|name| acquired(&service.log(name))).sum();
    println!("even after {took:?}; {} of 128 partitions moved", after - before);
    service.progress(100);
    service.judge();
}

#[test]
fn partitions_of_a_killed_instance_are_reassigned() {
    let mut service = service(&NAMES[..4]);
    service.take_instance(NAMES[0]).kill();
    println!("owned by others after {:?}", service.wait_without(NAMES[0]));
    service.progress(100);
    // A new process under the same name is another instance.
    service.start_instance(NAMES[0]);
    println!("even after {:?}", service.wait_even());
    service.progress(100);
    service.judge();
}

#[test]
fn instance_paused_beyond_its_lease_owns_nothing_on_waking() {
    let service = service(&NAMES[..4]);
    let victim = NAMES[1];
    service.instance(victim).pause();
    println!("owned by others after {:?}", service.wait_without(victim));
    let had = owned(&service.log(victim));
    service.progress(100);
    let woken = boot_clock_ns();
    service.instance(victim).resume();
    service.wait_noted(victim, "the loss of all that it had", |lines| lost_since(lines, woken).is_superset(&had));
    println!("even after {:?}", service.wait_even());
    service.progress(100);
    let late: Vec<Line> = service
        .log(victim)
        .into_iter()
        .filter(|line| match line {
            Line::Used { last_ns, owned, .. } => *last_ns >= woken && owned.iter().any(|of| had.contains(of)),
            _ => false,
        })
        .collect();
    assert_eq!(late, [], "used after it woke");
    service.judge();
}

#[test]
fn woken_instance_yields_to_its_replacement_of_same_name() {
    let mut service = service(&NAMES[..3]);
    let mut older = service.take_instance(NAMES[0]);
    older.pause();
    service.wait_without(NAMES[0]);
    service.start_instance(NAMES[0]);
    println!("even after {:?}", service.wait_even());
    let registered = boot_clock_ns();
    older.resume();
    let status = older.wait_exit(TIMEOUT);
    assert!(!status.success() && older.log().contains("another process"), "{status}: {}", older.log());
    service.progress(100);
    service.wait_even();
    let lost = [NAMES[1], NAMES[2]].map(|name| lost_since(&service.log(name), registered).len());
    assert_eq!(lost, [0, 0], "nothing happened to the others");
    service.judge();
}

#[test]
fn cut_off_instance_stops_at_lease_end_and_is_succeeded() {
    let options = ServiceOptions::default();
    let lease_ns = options.lease_ms * 1_000_000;
    let network = Options { network: Network::Proxies, ..cluster() };
    let mut service = Service::start(PROGRAMS, &network, options, &NAMES[..4]);
    let victim = NAMES[2];
    service.cut_off(victim, true);
    let cut = boot_clock_ns();
    println!("owned by others after {:?}", service.wait_without(victim));
    let had = owned(&service.log(victim));
    service.wait_noted(victim, "the loss of all that it had", |lines| lost_since(lines, cut).is_superset(&had));
    let lasted = last_use(&service.log(victim)).saturating_sub(cut);
    println!("it went on for {:?}", Duration::from_nanos(lasted));
    // Its last lease counts from an earlier heartbeat.
    assert!(lasted <= lease_ns, "it used them for {lasted} ns, {lease_ns} ns is its lease");
    service.progress(100);
    service.cut_off(victim, false);
    println!("even after {:?}", service.wait_even());
    service.progress(100);
    service.judge();
}

#[test]
fn handovers_survive_coordinator_leader_changes() {
    let mut service = Service::start(PROGRAMS, &with_quorum(), ServiceOptions::default(), &NAMES[..4]);
    let count =
        |service: &Service, name: &str, of: fn(&Line) -> bool| service.log(name).iter().filter(|line| of(line)).count();
    let acquired = |line: &Line| matches!(line, Line::Acquired { .. });
    let released = |line: &Line| matches!(line, Line::Released { .. });
    for (round, drained) in NAMES.into_iter().take(3).enumerate() {
        let before = count(&service, drained, released);
        let (leader, _) = service.cluster.wait_leader();
        order(&service, "drain", drained);
        service.cluster.take_coordinator(leader).kill();
        let done = count(&service, drained, released) - before;
        println!("{drained} had released {done}; it is empty after {:?}", service.wait_without(drained));
        service.cluster.start_coordinator(leader);

        // The old one comes back, or another takes over.
        let (leader, _) = service.cluster.wait_leader();
        let comes = if round == 1 { NAMES[4] } else { drained };
        let before = count(&service, comes, acquired);
        order(&service, "undrain", drained);
        if round == 1 {
            service.start_instance(comes);
        }
        service.wait_noted(comes, "the first of its share", |lines| {
            lines.iter().filter(|line| acquired(line)).count() > before
        });
        service.cluster.take_coordinator(leader).kill();
        let done = count(&service, comes, acquired) - before;
        println!("{comes} had acquired {done}; even after {:?}", service.wait_even());
        service.cluster.start_coordinator(leader);
        service.progress(50);
    }
    service.judge();
}

fn order(service: &Service, verb: &str, name: &str) {
    let ran = service.cluster.archon(&["node", verb, name]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn without_coordinators_ownership_ends_with_the_lease() {
    let options = ServiceOptions::default();
    let lease_ns = options.lease_ms * 1_000_000;
    let names = &NAMES[..4];
    let mut service = Service::start(PROGRAMS, &with_quorum(), options, names);
    let mut coordinators: Vec<_> = (0..3).map(|index| service.cluster.take_coordinator(index)).collect();
    let epochs = service.uses();
    let begun = boot_clock_ns();
    coordinators.iter_mut().for_each(|process| process.kill());
    let ended = boot_clock_ns();
    for name in names {
        let had = owned(&service.log(name));
        service.wait_noted(name, "the loss of all that it had", |lines| lost_since(lines, begun).is_superset(&had));
        let last = last_use(&service.log(name));
        println!("{name} owned for {:?}", Duration::from_nanos(last.saturating_sub(ended)));
        assert!(last <= ended + lease_ns, "{name} owned for longer than its lease");
        assert!(last >= begun + lease_ns / 2, "{name} gave up before half of its lease");
    }
    let nobody = boot_clock_ns();
    (0..3).for_each(|index| service.cluster.start_coordinator(index));
    service.cluster.wait_leader();
    // The rows may name the same owners in the same epochs, since no other instance owned them: so the instances
    // themselves are asked.
    let again = || {
        let uses = service.uses();
        let unused = |(_, epochs): &(&u32, &BTreeMap<u64, Use>)| epochs.values().all(|used| used.last_ns < nobody);
        let unused: Vec<u32> = uses.by_partition().iter().filter(unused).map(|(partition, _)| *partition).collect();
        check(unused.is_empty(), || format!("nobody owns {unused:?}"))
    };
    println!("owned again after {:?}", wait_for("all to be owned again", TIMEOUT, again).1);
    service.wait_even();
    service.progress(100);
    for (partition, after) in service.uses().by_partition() {
        let before = epochs.by_partition().get(partition).and_then(BTreeMap::last_key_value);
        let after = after.last_key_value();
        assert!(before.map(|(epoch, _)| epoch) <= after.map(|(epoch, _)| epoch), "the epoch of {partition} fell");
    }
    service.judge();
}

#[test]
fn stopping_instance_hands_over_without_lease_wait() {
    // Longer than any wait of this test.
    let options = ServiceOptions { lease_ms: 120_000, ..ServiceOptions::default() };
    let mut service = Service::start(PROGRAMS, &cluster(), options, &NAMES[..3]);
    let victim = NAMES[0];
    let process = service.take_instance(victim);
    let status = process.terminate(TIMEOUT);
    assert!(status.success(), "{status}");
    let took = service.wait_without(victim);
    let lines = service.log(victim);
    println!("owned by others {took:?} after it had ended");
    assert_eq!(lost_since(&lines, 0), BTreeSet::new(), "everything was released");
    service.progress(100);
    service.judge();
}
