//! Encoder of a leader's messages, written independently of the product: the tests check the format, not a round trip.

use super::{Fake, PARTITION};
use archon_proto::convert::kv::fields::{FieldReader, put_bytes, put_number};
use archon_proto::v1;
use archon_types::NodeId;
use bytes::Bytes;

/// Placement, node and incarnation of the leader, which the test plays.
pub const LEADER: u64 = 3;
pub const LEADER_NODE: NodeId = NodeId::new(98);
pub const LEADER_LIFE: u64 = 5;

const APPEND: u8 = 3;
const NACK: u8 = 5;
const BEHIND: u8 = 6;

/// Epoch and number of an entry.
pub type EntryPosition = (u64, u64);

/// Message of a leader.
#[derive(Clone, Debug)]
pub enum LeaderMessage {
    /// Entries, each with its epoch, after the one at `before`.
    Append { before: EntryPosition, start: u64, commit: u64, entries: Vec<(u64, Bytes)> },
    /// The log does not reach back further than `base`.
    Behind { base: EntryPosition },
}

/// Returns a message of a stream to athens, the first or a later one.
pub fn batch(fake: &Fake, epoch: u64, said: &[LeaderMessage]) -> v1::ReplicationBatch {
    batch_from(fake, [LEADER, LEADER_NODE.get(), LEADER_LIFE], epoch, said)
}

/// As [`batch`], from a sender that claims this placement, node and incarnation.
pub fn batch_from(fake: &Fake, from: [u64; 3], epoch: u64, said: &[LeaderMessage]) -> v1::ReplicationBatch {
    let known = fake.known("athens").unwrap();
    let mut part = Vec::new();
    for said in said {
        part.push(match said {
            LeaderMessage::Append { .. } => APPEND,
            LeaderMessage::Behind { .. } => BEHIND,
        });
        let to = [1, known.id.get(), known.incarnation.get()];
        let head = [PARTITION.table.get(), u64::from(PARTITION.index)].into_iter().chain(from).chain(to).chain([epoch]);
        head.for_each(|number| put_number(&mut part, number));
        match said {
            LeaderMessage::Append { before, start, commit, entries } => {
                let numbers = [before.0, before.1, *start, *commit, entries.len() as u64];
                numbers.into_iter().for_each(|number| put_number(&mut part, number));
                for (epoch, entry) in entries {
                    put_number(&mut part, *epoch);
                    put_bytes(&mut part, entry);
                }
            }
            LeaderMessage::Behind { base } => {
                [base.0, base.1].into_iter().for_each(|number| put_number(&mut part, number))
            }
        }
    }
    v1::ReplicationBatch {
        cluster: Some(fake.cluster.into()),
        sender: Some(v1::Sender { id: from[1], incarnation: from[2] }),
        receiver: known.id.get(),
        receiver_incarnation: known.incarnation.get(),
        parts: if said.is_empty() { vec![] } else { vec![Bytes::from(part)] },
        ..Default::default()
    }
}

/// Returns the position at which a copy continues, if a part begins with a refusal.
pub fn hint(part: Bytes) -> Option<u64> {
    let mut reader = FieldReader::new(part, "part");
    let nack = reader.byte().unwrap() == NACK;
    // Partition, both addresses, epoch, and the refused position.
    let rest = || reader.number().unwrap();
    let numbers: Vec<u64> = std::iter::repeat_with(rest).take(if nack { 2 + 6 + 1 + 2 + 2 } else { 0 }).collect();
    numbers.last().copied()
}
