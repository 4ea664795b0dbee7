//! Every event has a sentence, and the commands in it are commands of this program.

use super::fault;
use super::samples::{NODE, node, partition, table, text};
use archon_client::{Cause, Event, EventCode, KeyText, NodeGoal, RangeLimits, Right, Setting, SettingChanged, Subject};
use archon_types::{EventFacts, Millis, NodeTraits, RecordedEvent, TableTraits};
use std::collections::BTreeSet;

/// Returns events of nodes, with their sentences.
fn of_nodes() -> Vec<(Subject, EventFacts, &'static str)> {
    let traits = |weight| NodeTraits { zone: None, weight, partitions_max: None };
    let failed =
        |stopped| EventFacts::NodeFailed { incarnation: 4, stopped, leaderships_ended: 3, leaderships_handed_on: 2 };
    let goal = |goal: NodeGoal| EventFacts::GoalChanged { goal: goal.into() };
    vec![
        (node(), EventFacts::NodeRegistered { incarnation: 1 }, "registered in incarnation 1"),
        (node(), EventFacts::NodeReturned { incarnation: 2 }, "returned in incarnation 2"),
        (node(), failed(false), "failed in incarnation 4; 3 leaderships ended, 2 handed on"),
        (node(), failed(true), "stopped in incarnation 4; 3 leaderships ended, 2 handed on"),
        (
            node(),
            EventFacts::NodeUnreached { shut_to: vec![text("byzantium"), text("corinth")], unreached_for_ms: 3_000 },
            "sends heartbeats, but was unreachable to byzantium and corinth for 3 s; other nodes took over its \
             leaderships",
        ),
        (node(), EventFacts::NodeReached { unreached_for_ms: 90_000 }, "is reachable again, after 1 min 30 s"),
        (node(), EventFacts::NodeLost {}, "lost its data: a new data directory took over its name"),
        (
            node(),
            EventFacts::NodeDeclaredLost { copies_discarded: 5, partitions_lost: 1 },
            "declared lost; 5 replicas discarded, 1 of them the last of their partition",
        ),
        (node(), EventFacts::NodeRemoved { copies_discarded: 0 }, "removed"),
        (node(), EventFacts::NodeRemoved { copies_discarded: 3 }, "removed with 3 replicas that were not in sync"),
        (node(), EventFacts::NodeDraining { copies_held: 9 }, "is being drained of 9 replicas"),
        (node(), EventFacts::NodeDrained {}, "drained: it holds no replicas"),
        (node(), goal(NodeGoal::Serve), "serves again"),
        (node(), goal(NodeGoal::Cordon), "cordoned: it receives no new replicas"),
        (node(), goal(NodeGoal::Drain), "drain started"),
        (node(), goal(NodeGoal::Maintain), "in maintenance"),
        (
            node(),
            EventFacts::NodeAltered { before: traits(100), after: traits(50) },
            "changed from weight 100, any number of replicas, no zone to weight 50, any number of replicas, no zone",
        ),
        (
            node(),
            EventFacts::MaintenanceBegun { ends_at_ms: 1_600_000, why: text("new disk") },
            "in maintenance for 10 min at most: new disk",
        ),
        (node(), EventFacts::MaintenanceOver {}, "maintenance ended"),
    ]
}

/// Returns events of replicas, with their sentences.
fn of_replicas() -> Vec<(Subject, EventFacts, &'static str)> {
    let (placement_id, node, why) = (3, || text(NODE), || text("a test"));
    vec![
        (
            partition(),
            EventFacts::CopyDamaged { placement_id, node: node(), why: why() },
            "placement 3 on athens is damaged and left the in-sync set: a test",
        ),
        (
            partition(),
            EventFacts::DataDisputed {
                placement_id,
                node: node(),
                committed: 90,
                epoch: 8,
                leader_placement_id: 4,
                leader: Some(text("byzantium")),
                agreed: 80,
            },
            "placement 3 on athens knows entry 90 as committed, which placement 4 on byzantium, leader of epoch 8, lacks \
             (they agree up to 80 at most): one of them lost data; keep both data directories and compare them",
        ),
        (
            partition(),
            EventFacts::EpochSurpassed { epoch: 9, epoch_granted: 7 },
            "a replica knew epoch 9, but only 7 had been granted; the next leader uses a higher one",
        ),
        (
            partition(),
            EventFacts::ReplicaLost { placement_id, node: node(), why: why() },
            "placement 3 on athens is lost and left the in-sync set: a test",
        ),
        (
            partition(),
            EventFacts::RepairStarted { placement_id, node: node(), why: why() },
            "placement 3 is being loaded on athens: a test",
        ),
        (partition(), EventFacts::RepairDone { placement_id, node: node() }, "placement 3 on athens is in sync"),
        (
            partition(),
            EventFacts::CopyRetired { placement_id, node: node(), why: why() },
            "placement 3 on athens is to be deleted: a test",
        ),
        (partition(), EventFacts::MoveOver { move_id: 12, outcome: text("done") }, "move 12 ended: done"),
        (
            partition(),
            EventFacts::DataLossAccepted { leader: Some(node()), copies_retired: 2 },
            "data loss accepted; athens leads, 2 other replicas retired",
        ),
        (
            partition(),
            EventFacts::DataLossAccepted { leader: None, copies_retired: 0 },
            "data loss accepted; it starts empty, 0 other replicas retired",
        ),
    ]
}

/// Returns events of tables and partitions, with their sentences.
fn of_tables() -> Vec<(Subject, EventFacts, &'static str)> {
    let at = || KeyText::new("m");
    let begun =
        |outgrown_bytes, outgrown_rate| EventFacts::SplitBegun { right: 8, at: at(), outgrown_bytes, outgrown_rate };
    let traits = |replication| TableTraits { replication, limits: RangeLimits::NONE };
    let dropped =
        |moves_abandoned| EventFacts::TableDropped { partitions_total: 16, copies_condemned: 48, moves_abandoned };
    vec![
        (
            partition(),
            EventFacts::LeadershipBumped { epoch: 8, why: String::new() },
            "a new epoch after 8 was requested",
        ),
        (
            table(),
            EventFacts::MemberBarred { excluded: text(NODE), why: text("a test") },
            "athens is excluded from it: a test",
        ),
        (table(), EventFacts::BarLifted { excluded: text(NODE) }, "athens is no longer excluded from it"),
        (partition(), EventFacts::PartitionOffline { why: text("a test") }, "taken offline: a test"),
        (partition(), EventFacts::PartitionOnline {}, "brought online"),
        (table(), EventFacts::TableCreated {}, "created"),
        (table(), EventFacts::TableAltered { before: traits(1), after: traits(3) }, "replication changed to 3, was 1"),
        (table(), dropped(0), "dropped with its 16 partitions; 48 replicas are to be deleted"),
        (table(), dropped(2), "dropped with its 16 partitions; 48 replicas are to be deleted; 2 moves are abandoned"),
        (partition(), begun(None, None), "is being split at \"m\": keys from there on move to orders/8"),
        (
            partition(),
            begun(Some(1 << 30), None),
            "is being split automatically, since it holds 1.0 GiB, at \"m\": keys from there on move to orders/8",
        ),
        (
            partition(),
            begun(None, Some(900)),
            "is being split automatically, since it gets 900 operations per second, at \"m\": keys from there on move to \
             orders/8",
        ),
        (partition(), EventFacts::SplitCut { right: 8 }, "gives up the keys of orders/8, whose replicas hold them"),
        (
            partition(),
            EventFacts::Parted { right: 8, at: at(), leader: text(NODE) },
            "is split: orders/8 has the keys from \"m\" on, and athens leads it",
        ),
        (
            partition(),
            EventFacts::SplitAbandoned { right: 8, why: text("a test") },
            "keeps its keys: the split into orders/8 was abandoned: a test",
        ),
        (
            partition(),
            EventFacts::MergeBegun { right: 8, undersized_bytes: None },
            "is being merged with orders/8, whose keys it receives",
        ),
        (
            partition(),
            EventFacts::MergeBegun { right: 8, undersized_bytes: Some(1 << 20) },
            "is being merged automatically, since the two hold 1.0 MiB together with orders/8, whose keys it receives",
        ),
        (
            partition(),
            EventFacts::Merged { right: 8, at: at() },
            "is merged: it has the keys of orders/8, from \"m\" on, and orders/8 is deleted",
        ),
        (
            partition(),
            EventFacts::MergeAbandoned { right: 8, why: text("a test") },
            "is not merged with orders/8, which keeps its keys: the merge was abandoned: a test",
        ),
    ]
}

/// Returns events of the cluster and of its coordinators, with their sentences.
fn of_the_cluster() -> Vec<(Subject, EventFacts, &'static str)> {
    let (cluster, quorum) = (|| Subject::Cluster, || Subject::Coordinators);
    let changes = vec![SettingChanged { setting: Setting::ReplaceAfterMs.into(), before: 300_000, after: 60_000 }];
    let access = |client: Option<&str>, before: Option<Right>, after: Option<Right>| EventFacts::AccessChanged {
        client: client.map(text),
        before: before.map(Into::into),
        after: after.map(Into::into),
        weight_max: None,
    };
    let identity = || text("admin/alice");
    let change = || text("add coordinator 4");
    vec![
        (cluster(), EventFacts::Bootstrapped {}, "bootstrapped"),
        (cluster(), EventFacts::SettingsChanged { changes }, "settings changed: replace_after_ms from 300000 to 60000"),
        (table(), access(Some("shop"), None, Some(Right::Write)), "client/shop may write to it"),
        (cluster(), access(None, Some(Right::Write), Some(Right::Read)), "every client may read every table only"),
        (table(), access(Some("shop"), Some(Right::Read), None), "client/shop has no right to it any longer"),
        (
            table(),
            EventFacts::AccessChanged {
                client: Some(text("worker")),
                before: None,
                after: Some(Right::Own.into()),
                weight_max: Some(50),
            },
            "participant/worker may own partitions of it up to weight 50",
        ),
        (
            cluster(),
            EventFacts::CertificatesWithdrawn { identity: identity(), begin_before_at_ms: Some(1_803_303_900_000) },
            "certificates of admin/alice that begin before Mon, 22 Feb 2027 13:45:00 +0000 are revoked",
        ),
        (
            cluster(),
            EventFacts::CertificatesWithdrawn { identity: identity(), begin_before_at_ms: None },
            "all certificates of admin/alice are accepted again",
        ),
        (
            quorum(),
            EventFacts::QuorumChangeBegun { change: change() },
            "a change of the quorum started: add coordinator 4",
        ),
        (
            quorum(),
            EventFacts::QuorumChanged { change: change(), voters: vec![1, 2, 4] },
            "the quorum is changed: add coordinator 4; the voters are coordinators 1, 2, 4",
        ),
        (
            quorum(),
            EventFacts::QuorumChangeCancelled { change: change() },
            "the change of the quorum is cancelled: add coordinator 4",
        ),
        (
            quorum(),
            EventFacts::RecoveryBegun { generation: 2, base_index: 40 },
            "the quorum was recovered from less than a majority: generation 2 continues from entry 40 and waits for the \
             reports of all nodes",
        ),
        (
            quorum(),
            EventFacts::RecoveryTookOver { generation: 2, ordered: true },
            "generation 2 replaces the former coordinators, as ordered by an operator although they still worked",
        ),
        (
            quorum(),
            EventFacts::RecoveryTookOver { generation: 2, ordered: false },
            "generation 2 replaces the former coordinators, which have no majority",
        ),
        (
            quorum(),
            EventFacts::RecoverySettled { generation: 2, changes_lost: false },
            "the quorum is recovered: generation 2 continues with the data of the nodes",
        ),
        (
            quorum(),
            EventFacts::RecoverySettled { generation: 2, changes_lost: true },
            "the quorum is recovered: generation 2 continues with the data of the nodes, although changes known to nodes \
             were lost",
        ),
        (
            cluster(),
            EventFacts::ProtocolRaised { before: 1, after: 2 },
            "protocol raised from 1 to 2; members of older versions are refused",
        ),
        (
            cluster(),
            EventFacts::ProtocolHeld { held: true },
            "protocol held: it does not rise until it is finalized or released",
        ),
        (
            cluster(),
            EventFacts::ProtocolHeld { held: false },
            "protocol released: it rises once every member supports the next one",
        ),
        (Subject::Rebalance, EventFacts::PlanStarted { moves_total: 6 }, "started, 6 moves"),
        (Subject::Rebalance, EventFacts::PlanCancelled { moves_left: 2 }, "cancelled, 2 moves left"),
    ]
}

/// An event that names a command names one that exists, with its options and as many operands as it takes.
#[test]
fn every_event_has_a_sentence_with_valid_commands() {
    let all = [of_nodes(), of_replicas(), of_tables(), of_the_cluster()].concat();
    let codes: BTreeSet<EventCode> = all.iter().map(|(_, facts, _)| facts.code()).collect();
    let missing: Vec<_> = EventCode::ALL.iter().filter(|code| !codes.contains(code)).collect();
    assert!(missing.is_empty(), "without a sample: {missing:?}");
    let by = Cause::Coordinator { coordinator_id: 1 };
    for (subject, facts, sentence) in all {
        let at = Millis::new(1_000_000);
        let event = Event::from(RecordedEvent { index: 1, at, by: by.clone(), subject, facts: facts.clone() });
        assert_eq!(event.message, sentence);
        assert_eq!((event.code, event.severity), (facts.code().into(), facts.code().severity().into()));
        for (command, _) in sentence.split("`archon ").skip(1).filter_map(|rest| rest.split_once('`')) {
            assert_eq!(fault(command), None, "{}: `archon {command}`", facts.code());
        }
    }
}
