//! Tests of the output for various clusters.

use super::*;
use crate::documents::Node;
use crate::documents::testing::{self, status};
use crate::output::Format;
use archon_client::{Reason, ReasonCode, Subject};

fn output() -> Output {
    Output::plain(Format::Table)
}

fn node(name: &str, partitions: u32) -> Node {
    testing::node(1, name, partitions)
}

fn reason(code: ReasonCode, subject: Subject, message: &str, remedy: &str) -> Reason {
    Reason {
        code: code.into(),
        severity: code.severity().into(),
        subject,
        facts: Default::default(),
        message: message.into(),
        began_at_ms: None,
        remedy: Some(remedy.into()),
    }
}

#[test]
fn healthy_cluster_fits_on_one_screen() {
    let text = screen(&status(), &[node("athens", 9), node("ephesus", 0)], &output());
    assert_eq!(
        text,
        "\
cluster     6f1e
quorum      coordinator 2 leads in term 4, 2 of 3 reachable
            1  127.0.0.1:7101  follower, 3 entries behind
            2  127.0.0.1:7102  leader
            3  127.0.0.1:7103  unreachable
nodes       2 alive
            athens 9 · ephesus 0
partitions  9 of 9 online, between 0 and 9 replicas per serving node
table       version 41
moves       none running
next        start coordinator 3 again with its data directory"
    );
    let mut whole = status();
    whole.coordinators.pop();
    let text = screen(&whole, &[node("athens", 9), node("ephesus", 0)], &output());
    assert!(text.ends_with("next        spread the partitions: `archon rebalance plan`"), "{text}");
}

#[test]
fn direct_heartbeats_are_named_beside_relayed_ones() {
    let by = |name: &str, relay: Option<&str>| Node { via: relay.map(str::to_owned), ..node(name, 9) };
    let nodes = [by("athens", None), by("byzantium", Some("athens")), by("cyrene", Some("athens"))];
    let text = screen(&status(), &nodes, &output());
    assert!(text.contains("\n            heartbeats through 1 relay\n"), "{text}");
    let text = screen(&status(), &[by("athens", None), by("byzantium", None)], &output());
    assert!(!text.contains("heartbeats"), "{text}");
    let nodes = [by("athens", None), by("byzantium", Some("athens")), by("cyrene", Some("delos")), by("ephesus", None)];
    let text = screen(&status(), &nodes, &output());
    assert!(text.contains("\n            heartbeats through 2 relays, directly from 1 node\n"), "{text}");
}

#[test]
fn status_shows_splits_in_progress() {
    let mut splits = status();
    splits.coordinators.pop();
    splits.reshapings_running = 2;
    let text = screen(&splits, &[node("athens", 9), node("ephesus", 0)], &output());
    assert!(text.contains("moves       none running; 2 splits and merges under way\n"), "{text}");
    assert!(text.ends_with("next        watch the splits and merges: `archon rebalance status`"), "{text}");
}

#[test]
fn drained_node_is_named_and_no_empty_plan_is_advised() {
    let mut whole = status();
    whole.coordinators.pop();
    let mut empty = Node { goal: NodeGoal::Drain.into(), ..node("ephesus", 0) };
    let text = screen(&whole, &[node("athens", 9), empty.clone()], &output());
    assert!(text.contains("athens 9 · ephesus 0 (drained)"), "{text}");
    assert!(text.contains("between 9 and 9 replicas per serving node"), "{text}");
    assert!(text.ends_with("ephesus is drained: stop it, then `archon node remove ephesus`"), "{text}");
    empty.status = NodeStatus::Failed.into();
    whole.nodes_failed = 1;
    let text = screen(&whole, &[node("athens", 9), empty.clone()], &output());
    assert!(text.ends_with("was drained and has stopped; remove it: `archon node remove ephesus`"), "{text}");
    let busy = Node { copies_held: 3, status: NodeStatus::Alive.into(), ..empty };
    whole.nodes_failed = 0;
    let text = screen(&whole, &[node("athens", 9), busy], &output());
    assert!(text.contains("ephesus 3 (being drained)"), "{text}");
    assert!(text.ends_with("watch it: `archon node describe ephesus`"), "{text}");
}

#[test]
fn participants_are_not_counted_as_nodes() {
    let mut whole = status();
    whole.coordinators.pop();
    let participant = |name: &str, owned| Node { serves: vec!["jobs".into()], ..node(name, owned) };
    let failed = |name: &str| Node { status: NodeStatus::Failed.into(), ..participant(name, 0) };
    let mut members = [node("athens", 9), node("ephesus", 9), participant("ada", 6), failed("grace")];
    let text = screen(&whole, &members, &output());
    assert!(
        text.contains("            athens 9 · ephesus 9\n            participants: ada 6 · grace 0 (failed)\n"),
        "{text}"
    );
    assert!(text.contains("between 9 and 9 replicas per serving node"), "{text}");
    assert!(text.ends_with("next        nothing to do"), "{text}");
    // A drained participant that has ended is not counted as a failed node.
    members[3].goal = NodeGoal::Drain.into();
    members[1].status = NodeStatus::Failed.into();
    let text = screen(&Status { nodes_failed: 1, ..whole }, &members, &output());
    assert!(text.ends_with("start ephesus again with its data directory"), "{text}");
}

#[test]
fn unloaded_certificate_is_a_next_step() {
    let mut whole = status();
    whole.coordinators.pop();
    let waits = reason(ReasonCode::CertificateNotTaken, Subject::Cluster, "m", "its log says why");
    let nodes = [node("athens", 9), node("ephesus", 9)];
    let text = screen(&Status { reasons: vec![waits], ..whole }, &nodes, &output());
    assert!(text.ends_with("next        its log says why"), "{text}");
}

#[test]
fn unreached_node_is_marked() {
    let mut whole = Status { nodes_unreached: 1, ..status() };
    whole.coordinators.pop();
    whole.reasons = vec![reason(ReasonCode::NodeUnreached, Subject::Cluster, "m", "look whether it can be reached")];
    let text = screen(&whole, &[node("athens", 9), node("ephesus", 9)], &output());
    assert!(text.contains("nodes       2 alive, 1 of them unreached\n"), "{text}");
    assert!(text.ends_with("next        look whether it can be reached"), "{text}");
}

#[test]
fn restarting_failed_nodes_comes_before_replacing() {
    let mut fewer = Status { nodes_alive: 1, nodes_min: 3, nodes_failed: 2, ..status() };
    let away = |name: &str, status: NodeStatus| Node { status: status.into(), ..node(name, 3) };
    let nodes = [
        away("athens", NodeStatus::Failed),
        away("byzantium", NodeStatus::Failed),
        node("cyrene", 3),
        away("delphi", NodeStatus::Lost),
    ];
    let text = screen(&fewer, &nodes, &output());
    assert!(text.contains("athens 3 (failed) · byzantium 3 (failed) · cyrene 3 · delphi 3 (lost)"), "{text}");
    let step = "next        start athens, byzantium again, each with its data directory, or start others: ";
    assert!(text.contains(step), "{text}");
    fewer = Status { nodes_alive: 3, nodes_failed: 1, ..fewer };
    let text = screen(&fewer, &nodes[1..], &output());
    assert!(text.ends_with("next        start byzantium again with its data directory"), "{text}");
    let unknown = screen(&fewer, &[], &output());
    assert!(unknown.contains("see which node failed: `archon node list`"), "{unknown}");
}

#[test]
fn lost_data_comes_before_an_unrelated_failed_node() {
    let reasons = vec![
        reason(ReasonCode::NodeFailed, Subject::Cluster, "m", "start ephesus again with its data directory"),
        reason(ReasonCode::DataLost, Subject::Cluster, "m", "see what is left: `archon partition describe 3`"),
    ];
    let empty = Node { status: NodeStatus::Failed.into(), ..node("ephesus", 0) };
    let lost = Status { nodes_failed: 1, partitions_online: 8, reasons, ..status() };
    let text = screen(&lost, &[node("athens", 8), empty], &output());
    assert!(text.ends_with("next        see what is left: `archon partition describe 3`"), "{text}");
}

#[test]
fn reasons_of_waits_are_listed_and_bounded() {
    let table = Subject::Table { table_id: 1, table: "default".into() };
    let reason = reason(ReasonCode::NotEnoughNodes, table, "have 1, need 3", "start 2 more nodes");
    let status = Status { nodes_alive: 1, nodes_min: 3, partitions_online: 0, reasons: vec![reason; 20], ..status() };
    let text = screen(&status, &[], &output());
    assert!(text.contains("waiting     NotEnoughNodes: have 1, need 3 (table default)"), "{text}");
    assert!(text.contains("… and 12 more"), "{text}");
    assert!(text.contains("1 alive, at least 3 needed"), "{text}");
    assert!(text.ends_with("start more nodes: `archon node --help`"), "{text}");
    assert!(text.lines().count() <= 40);
}

#[test]
fn full_disk_is_a_next_step() {
    let mut whole = status();
    whole.coordinators.pop();
    let athens = Subject::Node { node_id: 1, node: "athens".into() };
    let reason = reason(ReasonCode::DiskFull, athens, "athens takes no writes", "free disk space on athens");
    let text = screen(&Status { reasons: vec![reason], ..whole }, &[node("athens", 9)], &output());
    assert!(text.contains("waiting     DiskFull: athens takes no writes (node athens)"), "{text}");
    assert!(text.ends_with("next        free disk space on athens"), "{text}");
}

#[test]
fn reasons_with_a_remedy_are_a_next_step() {
    let mut whole = status();
    whole.coordinators.pop();
    for code in [ReasonCode::NodesAtLimit, ReasonCode::LeaderHearsTooFew, ReasonCode::OwnerStays] {
        let reason = reason(code, Subject::Copies, "why", "what to do");
        let waits = Status { reasons: vec![reason], ..whole.clone() };
        let text = screen(&waits, &[node("athens", 9)], &output());
        assert!(text.ends_with("next        what to do"), "{text}");
    }
}

#[test]
fn missing_replicas_are_counted_and_are_the_next_step() {
    let mut whole = status();
    whole.coordinators.pop();
    let short = Status { partitions_under_replicated: 4, ..whole };
    let text = screen(&short, &[node("athens", 9), node("ephesus", 9)], &output());
    assert!(text.contains("9 of 9 online, 4 under-replicated, between 9 and 9"), "{text}");
    assert!(text.ends_with("replicas are being loaded; see `archon partition list`"), "{text}");
    let maintained = Node { goal: NodeGoal::Maintain.into(), ..node("athens", 9) };
    let text = screen(&short, &[maintained, node("ephesus", 9)], &output());
    assert!(text.contains("next        athens is in maintenance") && !text.contains("being loaded"), "{text}");
    let reason = reason(ReasonCode::UnderReplicated, Subject::Copies, "4 of 9", "add a node, or uncordon one");
    let text = screen(&Status { reasons: vec![reason], ..short }, &[], &output());
    assert!(text.ends_with("next        add a node, or uncordon one"), "{text}");
}

#[test]
fn waiting_partitions_are_the_next_step() {
    let orders = Subject::Table { table_id: 2, table: "orders".into() };
    let reason = reason(ReasonCode::NotEnoughNodes, orders, "3 of 7 nodes have registered", "start 4 more nodes");
    let reason = Reason { began_at_ms: Some(1), ..reason };
    let mut whole = status();
    whole.coordinators.pop();
    let waiting = Status { partitions_online: 8, reasons: vec![reason], ..whole.clone() };
    let text = screen(&waiting, &[], &output());
    assert!(text.ends_with("next        start 4 more nodes"), "{text}");
    assert!(text.contains("(table orders, for "), "{text}");
    let unexplained = Status { partitions_online: 8, ..whole };
    assert!(screen(&unexplained, &[], &output()).ends_with("`archon partition list`"));
}

#[test]
fn warnings_of_check_are_a_next_step() {
    let mut whole = status();
    whole.coordinators.pop();
    let few = |code| Status {
        reasons: vec![reason(code, Subject::Coordinators, "two coordinators vote", "have others join")],
        ..whole.clone()
    };
    let next = |status: &Status| screen(status, &[node("athens", 9)], &output());
    let text = next(&few(ReasonCode::TooFewVoters));
    assert!(text.ends_with("next        have others join"), "{text}");
    assert!(text.contains("waiting     TooFewVoters: two coordinators vote"), "{text}");
    // Transient states need no action.
    let text = next(&few(ReasonCode::QuorumChanging));
    assert!(text.ends_with("next        nothing to do"), "{text}");
}
