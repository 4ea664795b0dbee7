//! Heartbeats and their answers, and the updates of tables and nodes in these.

use super::wire::{conversion, deltas, shape};
use crate::protobuf;
use crate::target::{Target, Verdict};
use archon_proto::convert::members::beats;
use archon_proto::convert::members::load;
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_proto::v1;
use archon_testkit::Random;
use archon_types::limits::VERSIONS_AHEAD_MAX;
use archon_types::{
    Assembly, AssemblyResult, ClusterId, DoorFailure, DoorReport, Epoch, ErrorDetail, ErrorKind, FencingProof,
    Incarnation, NodeId, PartitionId, PartitionTable, PushKey, ShutDoor, TableId, TableList, Version,
};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The incarnation that reads updates.
const LIFE: Incarnation = Incarnation::new(12);

/// Heartbeats with a push key: chance does not hit one, and heartbeats without are refused.
fn heartbeats() -> Vec<Vec<u8>> {
    let shut =
        ShutDoor { node: NodeId::new(2), incarnation: Incarnation::new(7), how: DoorFailure::Refused, since_ms: 1_900 };
    let beat = |node, load| beats::Beat {
        node: NodeId::new(node),
        incarnation: Incarnation::new(7),
        number: 12,
        table_version: Version::new(9),
        stopping: node == 2,
        push_key: PushKey::new(Uuid::from_u128(5)),
        load,
        doors: (node == 3).then(|| DoorReport { members: 2, reached: 1, shut: vec![shut] }),
        proof: Bytes::from_static(&[7; 32]),
    };
    let load = load::Load { bytes_stored: 4_096, operations_per_second: 3, ..load::Load::default() };
    let cluster = ClusterId::new(Uuid::from_u128(1));
    let alone = beats::Beats { cluster, batch: 12, beats: vec![beat(1, Some(load.clone()))], relay: None };
    let relay = Some((NodeId::new(9), Incarnation::new(4)));
    let carried =
        beats::Beats { cluster, batch: 3, beats: vec![beat(1, None), beat(2, Some(load)), beat(3, None)], relay };
    [alone, carried].map(|beats| v1::Beats::from(beats).encode_to_vec()).into()
}

fn beat_answers() -> Vec<Vec<u8>> {
    let answer = |node, outcome| beats::BeatAnswer {
        proof: Bytes::from_static(&[8; 32]),
        news: (node == 1).then(|| beats::NewsFor { place: 0, proof: Bytes::from_static(&[9; 32]) }),
        ..beats::BeatAnswer::new(NodeId::new(node), Incarnation::new(7), 12, outcome)
    };
    let withdrawn = vec![(PartitionId::new(TableId::new(1), 5), Epoch::new(2))];
    let over = || ErrorDetail::new(ErrorKind::StaleIncarnation, "that life is over");
    let granted = answer(1, Ok(beats::LeaseGrant { lease_ms: 1_000, withdrawn }));
    let now =
        beats::ClusterNow { replication_timeout_ms: 1_000, protocol: 2, term: 3, relays: 23, door_every_ms: 1_000 };
    let judged = beats::HeartbeatAnswers {
        next_departure_ms: Some(190),
        news: vec![Bytes::from_static(b"news")],
        ..beats::HeartbeatAnswers::new(vec![granted, answer(2, Err(over()))], now)
    };
    let elsewhere = ErrorDetail::new(ErrorKind::NotCoordinatorLeader, "another one leads");
    let elsewhere = elsewhere.with_leader(Some("127.0.0.1:7101".to_owned()));
    let ended = FencingProof { node: NodeId::new(2), incarnation: Incarnation::new(7), version: Version::new(81) };
    let answers = [
        beats::BeatAnswers::new(12, Ok(judged)),
        beats::BeatAnswers::new(12, Err(elsewhere)),
        beats::BeatAnswers::over(12, ended),
    ];
    answers.map(|answers| v1::BeatAnswers::from(answers).encode_to_vec()).into()
}

/// Updates for a node: a table, its nodes, and the existing tables.
fn news() -> Vec<Vec<u8>> {
    let tables = TableList { version: Version::new(9), last: TableId::new(4), tables: vec![TableId::new(1)] };
    let empty = TableUpdates {
        deltas: Vec::new(),
        nodes: None,
        tables: None,
        complete: Version::new(9),
        newest: Version::new(9),
        coordinators: vec!["127.0.0.1:7101".into()],
    };
    let whole = TableUpdates { tables: Some(tables), ..empty.clone() };
    let deltas = deltas().into_iter().map(Bytes::from).collect();
    [empty.with_encoded(Vec::new(), Bytes::new()), whole.with_encoded(deltas, Bytes::new())]
        .map(|news| news.to_vec())
        .into()
}

/// Generates updates from real messages, not yet encoded: chance does not hit one.
fn generate_news(_: &str, random: &mut Random) -> Vec<u8> {
    let mut news = v1::News::decode(protobuf::generate("News", random).as_slice()).unwrap_or_default();
    let parts = random.index(3);
    news.deltas = (0..parts).map(|_| protobuf::generate("TableDelta", random).into()).collect();
    news.nodes = if random.index(2) == 0 { Bytes::new() } else { protobuf::generate("NodeDelta", random).into() };
    // Otherwise almost none has a valid version.
    if random.index(3) > 0 {
        news.newest = LIFE.get() + VERSIONS_AHEAD_MAX;
    }
    news.encode_to_vec()
}

/// Applies updates to a node without tables: no resulting version exceeds that of the source, and applying them again
/// changes nothing.
fn taken_news(input: &[u8]) -> Verdict {
    let news = match TableUpdates::read(input, LIFE) {
        Ok(news) => news,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let newest = news.newest;
    assert!(newest.get() <= LIFE.get() + VERSIONS_AHEAD_MAX && news.complete <= newest, "a version that cannot be");
    let (mut tables, mut arriving) = (BTreeMap::new(), None);
    let first = take_in(&mut tables, &mut arriving, &news);
    let held = tables.clone();
    let again = take_in(&mut tables, &mut arriving, &news);
    assert!(
        tables.values().all(|table: &PartitionTable| table.version() <= newest),
        "newer than what it was made from"
    );
    assert!(!first || again, "what left no gap leaves one when it comes again");
    assert!(!first || tables == held, "what comes again changes something");
    Verdict::Accepted(format!("whole: {first}, {}", shape(&news)))
}

/// Merges each table. Returns true if none left a gap.
fn take_in(
    tables: &mut BTreeMap<TableId, PartitionTable>,
    arriving: &mut Option<Assembly>,
    news: &TableUpdates,
) -> bool {
    let mut whole = true;
    for piece in news.deltas.iter().cloned() {
        whole &= match Assembly::take(arriving, piece) {
            AssemblyResult::Whole(delta) => match tables.get_mut(&delta.table.id) {
                Some(table) => table.merge(delta),
                None => match PartitionTable::from_whole(delta) {
                    Some(table) => tables.insert(table.table().id, table).is_none(),
                    None => false,
                },
            },
            AssemblyResult::More(_) => true,
            AssemblyResult::Gap => false,
        };
    }
    whole
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target { seeds: heartbeats, ..conversion!(Beats => beats::Beats) },
        Target { seeds: beat_answers, ..conversion!(BeatAnswers => beats::BeatAnswers) },
        Target { seeds: news, generate: Some(generate_news), ..conversion!(News => TableUpdates) },
        Target { generate: Some(generate_news), ..Target::new("wire/news-of-a-life", taken_news, news) },
    ]
}
