//! Replica messages on the wire. The pure replica knows no protobuf and the protocol crate knows no replica, so the two
//! meet here.

use archon_proto::convert::{ConvertError, ids, required};
use archon_proto::v1;
use archon_replica::{Body, Entry, Message, Position, ReplicaAddress};
use archon_types::{Epoch, Incarnation, NodeId, PartitionId, PlacementId, Seq};

/// Most entries in one message from a peer.
const ENTRIES_MAX: usize = 65_536;

/// A message as it travels.
pub(crate) fn to_wire(message: Message) -> v1::ReplicaMessage {
    use v1::replica_message::Message as Wire;
    let body = match message.body {
        Body::Adopt { at, start, commit } => {
            Wire::Adopt(v1::MsgAdopt { at: Some(position(at)), start: start.get(), commit: commit.get() })
        }
        Body::Adopted { at, held } => Wire::Adopted(v1::MsgAdopted { at: Some(position(at)), held: held.get() }),
        Body::Append { before, entries, start, commit } => Wire::Append(v1::MsgAppend {
            before: Some(position(before)),
            entries: entries
                .into_iter()
                .map(|entry| v1::LogEntry { epoch: entry.at.epoch.get(), entry: entry.bytes })
                .collect(),
            start: start.get(),
            commit: commit.get(),
        }),
        Body::Ack { held } => Wire::Ack(v1::MsgAck { held: held.get() }),
        Body::Nack { refused, hint, copying } => {
            Wire::Nack(v1::MsgNack { refused: Some(position(refused)), hint: Some(position(hint)), copying })
        }
        Body::Behind { base } => Wire::Behind(v1::MsgBehind { base: Some(position(base)) }),
        Body::Confirm { round } => Wire::Confirm(v1::MsgConfirm { round }),
        Body::Confirmed { round } => Wire::Confirmed(v1::MsgConfirmed { round }),
    };
    v1::ReplicaMessage {
        partition: Some(message.partition.into()),
        from: Some(address(message.from)),
        to: Some(address(message.to)),
        epoch: message.epoch.get(),
        message: Some(body),
    }
}

/// A message from the wire, every field checked.
///
/// # Errors
/// [`ConvertError`] naming the field.
pub(crate) fn from_wire(wire: v1::ReplicaMessage) -> Result<Message, ConvertError> {
    use v1::replica_message::Message as Wire;
    let body = match required(wire.message, "ReplicaMessage.message")? {
        Wire::Adopt(body) => Body::Adopt {
            at: read_position(body.at, "MsgAdopt.at")?,
            start: Seq::new(body.start),
            commit: Seq::new(body.commit),
        },
        Wire::Adopted(body) => {
            Body::Adopted { at: read_position(body.at, "MsgAdopted.at")?, held: Seq::new(body.held) }
        }
        Wire::Append(body) => {
            let before = read_position(body.before, "MsgAppend.before")?;
            Body::Append {
                before,
                entries: entries(before.seq, body.entries)?,
                start: Seq::new(body.start),
                commit: Seq::new(body.commit),
            }
        }
        Wire::Ack(body) => Body::Ack { held: Seq::new(body.held) },
        Wire::Nack(body) => Body::Nack {
            refused: read_position(body.refused, "MsgNack.refused")?,
            hint: read_position(body.hint, "MsgNack.hint")?,
            copying: body.copying,
        },
        Wire::Behind(body) => Body::Behind { base: read_position(body.base, "MsgBehind.base")? },
        Wire::Confirm(body) => Body::Confirm { round: body.round },
        Wire::Confirmed(body) => Body::Confirmed { round: body.round },
    };
    Ok(Message {
        partition: PartitionId::try_from(required(wire.partition, "ReplicaMessage.partition")?)?,
        from: read_address(wire.from, "ReplicaMessage.from")?,
        to: read_address(wire.to, "ReplicaMessage.to")?,
        epoch: Epoch::new(wire.epoch),
        body,
    })
}

/// Bytes of payload in a message, about.
pub(crate) fn weight(message: &Message) -> usize {
    const OVERHEAD: usize = 96;
    match &message.body {
        Body::Append { entries, .. } => OVERHEAD + entries.iter().map(|entry| entry.bytes.len() + 16).sum::<usize>(),
        _ => OVERHEAD,
    }
}

/// A position as it travels.
pub(crate) fn position(position: Position) -> v1::Position {
    v1::Position { epoch: position.epoch.get(), seq: position.seq.get() }
}

/// A position from the wire.
///
/// # Errors
/// [`ConvertError`] naming `field` if it is absent.
pub(crate) fn read_position(wire: Option<v1::Position>, field: &'static str) -> Result<Position, ConvertError> {
    let wire = required(wire, field)?;
    Ok(Position::new(Epoch::new(wire.epoch), Seq::new(wire.seq)))
}

fn entries(before: Seq, wire: Vec<v1::LogEntry>) -> Result<Vec<Entry>, ConvertError> {
    if wire.len() > ENTRIES_MAX {
        let problem = format!("{} entries; the limit is {ENTRIES_MAX}", wire.len());
        return Err(ConvertError::new("MsgAppend.entries", problem));
    }
    let mut seq = before;
    let mut entries = Vec::with_capacity(wire.len());
    for entry in wire {
        seq = seq.next().ok_or_else(|| ConvertError::new("MsgAppend.before", "the log has no room after it"))?;
        entries.push(Entry { at: Position::new(Epoch::new(entry.epoch), seq), bytes: entry.entry });
    }
    Ok(entries)
}

fn address(address: ReplicaAddress) -> v1::ReplicaAddress {
    v1::ReplicaAddress {
        placement: address.placement.get(),
        node: address.node.get(),
        incarnation: address.incarnation.get(),
    }
}

fn read_address(wire: Option<v1::ReplicaAddress>, field: &'static str) -> Result<ReplicaAddress, ConvertError> {
    let wire = required(wire, field)?;
    Ok(ReplicaAddress {
        placement: PlacementId::new(ids::non_zero(wire.placement, field)?),
        node: NodeId::new(ids::non_zero(wire.node, field)?),
        incarnation: Incarnation::new(ids::non_zero(wire.incarnation, field)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::TableId;
    use bytes::Bytes;

    fn message(body: Body) -> Message {
        let address = |number| ReplicaAddress {
            placement: PlacementId::new(number),
            node: NodeId::new(number),
            incarnation: Incarnation::new(number + 10),
        };
        Message {
            partition: PartitionId::new(TableId::new(1), 4),
            from: address(1),
            to: address(2),
            epoch: Epoch::new(3),
            body,
        }
    }

    #[test]
    fn every_body_round_trips() {
        let at = Position::new(Epoch::new(2), Seq::new(5));
        let entry = Entry { at: Position::new(Epoch::new(3), Seq::new(6)), bytes: Bytes::from_static(b"entry") };
        let seq = Seq::new(5);
        for body in [
            Body::Adopt { at, start: seq, commit: seq },
            Body::Adopted { at, held: seq },
            Body::Append { before: at, entries: vec![entry], start: seq, commit: seq },
            Body::Ack { held: seq },
            Body::Nack { refused: at, hint: Position::ZERO, copying: true },
            Body::Behind { base: at },
            Body::Confirm { round: 7 },
            Body::Confirmed { round: 7 },
        ] {
            assert_eq!(from_wire(to_wire(message(body.clone()))), Ok(message(body)));
        }
    }

    #[test]
    fn what_is_missing_or_out_of_range_is_named() {
        let good = to_wire(message(Body::Ack { held: Seq::new(1) }));
        let missing = v1::ReplicaMessage { from: None, ..good.clone() };
        assert_eq!(from_wire(missing).map_err(|error| error.field), Err("ReplicaMessage.from"));
        let empty = v1::ReplicaMessage { message: None, ..good };
        assert_eq!(from_wire(empty).map_err(|error| error.field), Err("ReplicaMessage.message"));
        let end = Position::new(Epoch::new(1), Seq::new(u64::MAX));
        let entry = Entry { at: end, bytes: Bytes::new() };
        let append = Body::Append { before: end, entries: vec![entry], start: Seq::ZERO, commit: Seq::ZERO };
        assert_eq!(from_wire(to_wire(message(append))).map_err(|error| error.field), Err("MsgAppend.before"));
    }
}
