//! Proven content of relayed heartbeats and answers, in clusters with authentication: the bytes over which both ends
//! compute the proof. Fields are named one by one, so that a newer one unknown to the other end changes nothing.

use super::beats::{Beat, BeatAnswer, ClusterNow, LeaseGrant};
use archon_types::{DoorFailure, DoorReport, Incarnation, NodeId};

/// First byte of a heartbeat.
const BEAT: u8 = 1;
/// First byte of a lease.
const GRANTED: u8 = 2;
/// First byte of a refusal.
const REFUSED: u8 = 3;
/// First byte of table updates.
const NEWS: u8 = 4;

/// Returns the proven content of a heartbeat: all but the load, which a relay may leave out if it is large.
pub fn beat_statement(beat: &Beat) -> Vec<u8> {
    let mut statement = begun(BEAT, [beat.node.get(), beat.incarnation.get(), beat.number, beat.table_version.get()]);
    statement.push(u8::from(beat.stopping));
    statement.extend_from_slice(beat.push_key.get().as_bytes());
    if let Some(DoorReport { members, reached, shut }) = &beat.doors {
        let counts = [u64::from(*members), u64::from(*reached)];
        let shut = shut.iter().flat_map(|door| {
            let refused = u64::from(door.how == DoorFailure::Refused);
            [door.node.get(), door.incarnation.get(), refused, door.since_ms]
        });
        add(&mut statement, counts.into_iter().chain(shut));
    }
    statement
}

/// Returns the proven content of an answer: the lease, or the kind of the refusal, and the facts about the cluster.
pub fn answer_statement(answer: &BeatAnswer, now: &ClusterNow) -> Vec<u8> {
    let (node, incarnation, number) = (answer.node.get(), answer.incarnation.get(), answer.number);
    let of_cluster = [now.replication_timeout_ms, now.protocol.into(), now.term, now.relays.into(), now.door_every_ms];
    let (begin, told) = match &answer.outcome {
        Ok(LeaseGrant { lease_ms, .. }) => (GRANTED, *lease_ms),
        Err(detail) => (REFUSED, u64::from(detail.kind.code())),
    };
    let mut statement = begun(begin, [node, incarnation, number, told].into_iter().chain(of_cluster));
    if let Ok(LeaseGrant { withdrawn, .. }) = &answer.outcome {
        for (partition, epoch) in withdrawn {
            add(&mut statement, [partition.table.get(), partition.index.into(), epoch.get()]);
        }
    }
    statement
}

/// Returns the proven content of table updates: their recipient and their digest.
pub fn news_statement(node: NodeId, incarnation: Incarnation, digest: &[u8]) -> Vec<u8> {
    let mut statement = begun(NEWS, [node.get(), incarnation.get()]);
    statement.extend_from_slice(digest);
    statement
}

fn begun(begin: u8, words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut statement = vec![begin];
    add(&mut statement, words);
    statement
}

fn add(statement: &mut Vec<u8>, words: impl IntoIterator<Item = u64>) {
    words.into_iter().for_each(|word| statement.extend_from_slice(&word.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Epoch, ErrorDetail, ErrorKind, PartitionId, PushKey, TableId, Version};
    use bytes::Bytes;
    use std::collections::BTreeSet;
    use uuid::Uuid;

    fn beat() -> Beat {
        Beat {
            node: NodeId::new(2),
            incarnation: Incarnation::new(3),
            number: 4,
            table_version: Version::new(5),
            stopping: false,
            push_key: PushKey::new(Uuid::from_u128(6)),
            load: None,
            doors: None,
            proof: Bytes::new(),
        }
    }

    #[test]
    fn table_updates_are_bound_to_one_incarnation() {
        let (node, life) = (NodeId::new(2), Incarnation::new(3));
        let others = [
            news_statement(node, life, &[1; 32]),
            news_statement(node, life, &[2; 32]),
            news_statement(NodeId::new(9), life, &[1; 32]),
            news_statement(node, Incarnation::new(9), &[1; 32]),
        ];
        assert_eq!(others.iter().collect::<BTreeSet<_>>().len(), others.len());
        assert!(others.iter().all(|statement| statement[0] == NEWS && statement.len() == 1 + 16 + 32));
    }

    #[test]
    fn heartbeat_proof_covers_every_field() {
        let others = [
            beat(),
            Beat { node: NodeId::new(9), ..beat() },
            Beat { incarnation: Incarnation::new(9), ..beat() },
            Beat { number: 9, ..beat() },
            Beat { table_version: Version::new(9), ..beat() },
            Beat { stopping: true, ..beat() },
            Beat { doors: Some(DoorReport { members: 2, reached: 1, shut: vec![] }), ..beat() },
            Beat { doors: Some(DoorReport { members: 2, reached: 2, shut: vec![] }), ..beat() },
            Beat { push_key: PushKey::new(Uuid::from_u128(9)), ..beat() },
        ];
        let statements: BTreeSet<Vec<u8>> = others.iter().map(beat_statement).collect();
        assert_eq!(statements.len(), others.len());
    }

    #[test]
    fn answer_proof_covers_every_field() {
        let now = ClusterNow { replication_timeout_ms: 900, protocol: 2, term: 6, relays: 7, door_every_ms: 1_000 };
        let led = |index, epoch| (PartitionId::new(TableId::new(1), index), Epoch::new(epoch));
        let granted = |lease_ms, withdrawn| Ok(LeaseGrant { lease_ms, withdrawn });
        let refused = |kind| Err(ErrorDetail::new(kind, "why"));
        let answer = |outcome| BeatAnswer::new(NodeId::new(2), Incarnation::new(3), 4, outcome);
        let first = || answer(granted(1_000, vec![led(1, 1)]));
        let others = [
            (first(), now),
            (BeatAnswer { node: NodeId::new(9), ..first() }, now),
            (BeatAnswer { incarnation: Incarnation::new(9), ..first() }, now),
            (BeatAnswer { number: 9, ..first() }, now),
            (answer(granted(9, vec![led(1, 1)])), now),
            (answer(granted(1_000, vec![])), now),
            (answer(granted(1_000, vec![led(1, 1), led(2, 1)])), now),
            (answer(granted(1_000, vec![led(2, 1)])), now),
            (answer(granted(1_000, vec![led(1, 2)])), now),
            (answer(refused(ErrorKind::StaleIncarnation)), now),
            (answer(refused(ErrorKind::NoQuorum)), now),
            (first(), ClusterNow { replication_timeout_ms: 9, ..now }),
            (first(), ClusterNow { protocol: 9, ..now }),
            (first(), ClusterNow { term: 9, ..now }),
            (first(), ClusterNow { relays: 9, ..now }),
            (first(), ClusterNow { door_every_ms: 9, ..now }),
        ];
        let statements: BTreeSet<Vec<u8>> = others.iter().map(|(answer, now)| answer_statement(answer, now)).collect();
        assert_eq!(statements.len(), others.len());
    }
}
