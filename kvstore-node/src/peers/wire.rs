//! Hand-packed replica messages on the wire: a shard sends one part to each peer in a turn, with the messages of all
//! its partitions one after the other, and protobuf's nested messages cost more than the replicas' own work (ADR 0017).
//! The pure replica knows no wire and the protocol crate knows no replica, so this module joins the two.
//!
//! ```text
//! part     = message*
//! message  = kind u8 · partition (table · index) · from · to (placement · node · incarnation, each) · epoch · body
//! body     = adopt: position, start, commit · adopted: position, held · ack: held · behind: position
//!            nack: position refused, position hint, copying u8 · confirm, confirmed: round
//!            append: position before, start, commit, count, then per entry: epoch, bytes
//! position = epoch · seq
//! ```
//!
//! Numbers are LEB128; the bytes of an entry are preceded by their length, and share the memory of the part when read.

use archon_kv::effect::EFFECT_BYTES_MAX;
use archon_proto::convert::kv::fields::{FieldReader, put_bytes, put_number};
use archon_proto::convert::{ConvertError, ids, required};
use archon_proto::v1;
use archon_replica::{Body, Entry, Message, Position, ReplicaAddress};
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{Epoch, Incarnation, NodeId, PartitionId, PlacementId, Seq, TableId};
use bytes::Bytes;

/// Most entries in one message from a peer.
const ENTRIES_MAX: u64 = 65_536;
/// Bytes of a part after which the next message begins another.
const PART_BYTES: usize = 256 * 1024;
/// Longest part, in bytes, with the message that ends it: an append of one longest entry, or of many.
const PART_BYTES_MAX: usize = PART_BYTES + APPEND_BYTES_MAX + EFFECT_BYTES_MAX + 1024;
/// Bytes of entries in an append, unless one alone is longer ([`archon_replica::Limits::append_bytes_max`]).
const APPEND_BYTES_MAX: usize = 1024 * 1024;
/// Approximate bytes of one message on the stream.
pub(super) const BATCH_BYTES_MAX: usize = 1024 * 1024;
// A peer can read the longest batch that is sent, including its last part.
const _: () = assert!(BATCH_BYTES_MAX + PART_BYTES_MAX <= BATCH_BYTES_READ_MAX);
/// Longest message of a peer that is read, in bytes.
pub(crate) const BATCH_BYTES_READ_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// Field named in errors.
const FIELD: &str = "ReplicationBatch.parts";

const ADOPT: u8 = 1;
const ADOPTED: u8 = 2;
const APPEND: u8 = 3;
const ACK: u8 = 4;
const NACK: u8 = 5;
const BEHIND: u8 = 6;
const CONFIRM: u8 = 7;
const CONFIRMED: u8 = 8;

/// Some messages to one peer, packed.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Bytes,
    /// Number of messages in it.
    pub(crate) messages: u64,
}

/// Packs messages to one peer.
#[derive(Debug, Default)]
pub(crate) struct PartPacker {
    out: Vec<u8>,
    messages: u64,
    full: Vec<Part>,
}

impl PartPacker {
    /// Adds a message.
    pub(crate) fn push(&mut self, message: &Message) {
        if self.out.len() >= PART_BYTES {
            self.end_part();
        }
        self.messages += 1;
        self.out.reserve(weight(message));
        put_message(&mut self.out, message);
    }

    /// Takes the parts; the next message begins a new one.
    pub(crate) fn finish(&mut self) -> Vec<Part> {
        if self.messages > 0 {
            self.end_part();
        }
        std::mem::take(&mut self.full)
    }

    fn end_part(&mut self) {
        let bytes = Bytes::from(std::mem::take(&mut self.out));
        self.full.push(Part { bytes, messages: std::mem::take(&mut self.messages) });
    }
}

fn put_message(out: &mut Vec<u8>, message: &Message) {
    out.push(match &message.body {
        Body::Adopt { .. } => ADOPT,
        Body::Adopted { .. } => ADOPTED,
        Body::Append { .. } => APPEND,
        Body::Ack { .. } => ACK,
        Body::Nack { .. } => NACK,
        Body::Behind { .. } => BEHIND,
        Body::Confirm { .. } => CONFIRM,
        Body::Confirmed { .. } => CONFIRMED,
    });
    put_number(out, message.partition.table.get());
    put_number(out, u64::from(message.partition.index));
    put_address(out, message.from);
    put_address(out, message.to);
    put_number(out, message.epoch.get());
    match &message.body {
        Body::Adopt { at, start, commit } => {
            put_position(out, *at);
            put_number(out, start.get());
            put_number(out, commit.get());
        }
        Body::Adopted { at, held } => {
            put_position(out, *at);
            put_number(out, held.get());
        }
        Body::Append { before, entries, start, commit } => {
            put_position(out, *before);
            put_number(out, start.get());
            put_number(out, commit.get());
            // The entries follow directly after `before`, so they carry no numbers of their own.
            put_number(out, entries.len() as u64);
            for entry in entries {
                put_number(out, entry.at.epoch.get());
                put_bytes(out, &entry.bytes);
            }
        }
        Body::Ack { held } => put_number(out, held.get()),
        Body::Nack { refused, hint, copying } => {
            put_position(out, *refused);
            put_position(out, *hint);
            out.push(u8::from(*copying));
        }
        Body::Behind { base } => put_position(out, *base),
        Body::Confirm { round } | Body::Confirmed { round } => put_number(out, *round),
    }
}

fn put_address(out: &mut Vec<u8>, address: ReplicaAddress) {
    put_number(out, address.placement.get());
    put_number(out, address.node.get());
    put_number(out, address.incarnation.get());
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    put_number(out, position.epoch.get());
    put_number(out, position.seq.get());
}

/// Returns the messages of a part, every field checked; ends after the first error.
pub(crate) fn unpack(part: Bytes) -> impl Iterator<Item = Result<Message, ConvertError>> {
    let mut reader = FieldReader::new(part, FIELD);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let message = read_message(&mut reader);
        if message.is_err() {
            reader.end();
        }
        Some(message)
    })
}

fn read_message(reader: &mut FieldReader) -> Result<Message, ConvertError> {
    let kind = reader.byte()?;
    let partition = read_partition(reader)?;
    let (from, to) = (read_address(reader)?, read_address(reader)?);
    let epoch = Epoch::new(reader.number()?);
    let body = match kind {
        ADOPT => Body::Adopt { at: take_position(reader)?, start: take_seq(reader)?, commit: take_seq(reader)? },
        ADOPTED => Body::Adopted { at: take_position(reader)?, held: take_seq(reader)? },
        APPEND => {
            let (before, start, commit) = (take_position(reader)?, take_seq(reader)?, take_seq(reader)?);
            Body::Append { before, entries: read_entries(reader, before.seq)?, start, commit }
        }
        ACK => Body::Ack { held: take_seq(reader)? },
        NACK => Body::Nack {
            refused: take_position(reader)?,
            hint: take_position(reader)?,
            copying: match reader.byte()? {
                0 => false,
                1 => true,
                other => return Err(reader.error(format!("{other} where a replica says whether it is copying"))),
            },
        },
        BEHIND => Body::Behind { base: take_position(reader)? },
        CONFIRM => Body::Confirm { round: reader.number()? },
        CONFIRMED => Body::Confirmed { round: reader.number()? },
        other => return Err(reader.error(format!("a message of kind {other}, which this version does not know"))),
    };
    Ok(Message { partition, from, to, epoch, body })
}

fn read_partition(reader: &mut FieldReader) -> Result<PartitionId, ConvertError> {
    let (table, index) = (ids::non_zero(reader.number()?, FIELD)?, reader.number()?);
    let index =
        u32::try_from(index).map_err(|_| reader.error(format!("partition {index}; the highest is {}", u32::MAX)))?;
    Ok(PartitionId::new(TableId::new(table), index))
}

fn read_address(reader: &mut FieldReader) -> Result<ReplicaAddress, ConvertError> {
    Ok(ReplicaAddress {
        placement: PlacementId::new(ids::non_zero(reader.number()?, FIELD)?),
        node: NodeId::new(ids::non_zero(reader.number()?, FIELD)?),
        incarnation: Incarnation::new(ids::non_zero(reader.number()?, FIELD)?),
    })
}

fn read_entries(reader: &mut FieldReader, before: Seq) -> Result<Vec<Entry>, ConvertError> {
    let count = reader.number()?;
    if count > ENTRIES_MAX {
        return Err(reader.error(format!("{count} entries; the limit is {ENTRIES_MAX}")));
    }
    // An entry takes two bytes at least, so a false count cannot reserve more than the part's length.
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut entries = Vec::with_capacity(count.min(reader.remaining() / 2));
    let mut seq = before;
    for _ in 0..count {
        seq = seq.next().ok_or_else(|| reader.error(format!("the log has no room after {before}")))?;
        let epoch = Epoch::new(reader.number()?);
        entries.push(Entry { at: Position::new(epoch, seq), bytes: reader.take()? });
    }
    Ok(entries)
}

fn take_position(reader: &mut FieldReader) -> Result<Position, ConvertError> {
    Ok(Position::new(Epoch::new(reader.number()?), take_seq(reader)?))
}

fn take_seq(reader: &mut FieldReader) -> Result<Seq, ConvertError> {
    reader.number().map(Seq::new)
}

/// Returns the approximate bytes of a message, at least its packed size.
pub(crate) fn weight(message: &Message) -> usize {
    // A kind, thirteen numbers at most, and a flag.
    const OVERHEAD: usize = 144;
    const ENTRY_OVERHEAD: usize = 20;
    match &message.body {
        Body::Append { entries, .. } => {
            OVERHEAD + entries.iter().map(|entry| entry.bytes.len() + ENTRY_OVERHEAD).sum::<usize>()
        }
        _ => OVERHEAD,
    }
}

/// Converts a position for messages outside of parts.
pub(crate) fn position(position: Position) -> v1::Position {
    v1::Position { epoch: position.epoch.get(), seq: position.seq.get() }
}

/// Reads a position from the wire.
///
/// # Errors
/// [`ConvertError`] naming `field` if it is absent.
pub(crate) fn read_position(wire: Option<v1::Position>, field: &'static str) -> Result<Position, ConvertError> {
    let wire = required(wire, field)?;
    Ok(Position::new(Epoch::new(wire.epoch), Seq::new(wire.seq)))
}

/// Returns one message of every kind, for tests and the fuzzer.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn samples() -> Vec<Message> {
    let address = |number| ReplicaAddress {
        placement: PlacementId::new(number),
        node: NodeId::new(number),
        incarnation: Incarnation::new(number + 1_000),
    };
    let (at, seq) = (Position::new(Epoch::new(2), Seq::new(5)), Seq::new(5));
    let entry = |seq| Entry { at: Position::new(Epoch::new(3), Seq::new(seq)), bytes: Bytes::from_static(b"entry") };
    let bodies = [
        Body::Adopt { at, start: seq, commit: seq },
        Body::Adopted { at, held: seq },
        Body::Append { before: at, entries: vec![entry(6), entry(7)], start: seq, commit: seq },
        Body::Append { before: at, entries: Vec::new(), start: seq, commit: seq },
        Body::Ack { held: seq },
        Body::Nack { refused: at, hint: Position::ZERO, copying: true },
        Body::Behind { base: at },
        Body::Confirm { round: 7 },
        Body::Confirmed { round: u64::MAX },
    ];
    let message = |body| Message {
        partition: PartitionId::new(TableId::new(1), 4),
        from: address(1),
        to: address(2),
        epoch: Epoch::new(3),
        body,
    };
    bodies.into_iter().map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(messages: &[Message]) -> Vec<Part> {
        let mut packer = PartPacker::default();
        messages.iter().for_each(|message| packer.push(message));
        packer.finish()
    }

    fn unpacked(parts: &[Part]) -> Vec<Result<Message, ConvertError>> {
        parts.iter().flat_map(|part| unpack(part.bytes.clone())).collect()
    }

    #[test]
    fn every_message_round_trips_within_its_weight() {
        let parts = pack(&samples());
        assert_eq!((parts.len(), parts[0].messages), (1, samples().len() as u64));
        assert_eq!(unpacked(&parts), samples().into_iter().map(Ok).collect::<Vec<_>>());
        for message in samples() {
            assert!(pack(std::slice::from_ref(&message))[0].bytes.len() <= weight(&message), "{message:?}");
        }
        assert!(pack(&[]).is_empty());
    }

    /// An append of `count` entries of `bytes` each.
    fn append(count: usize, bytes: usize) -> Message {
        let mut message = samples().remove(2);
        let Body::Append { before, entries, .. } = &mut message.body else { panic!("an append") };
        let entry = |seq| {
            let at = Position::new(Epoch::new(3), Seq::new(before.seq.get() + seq));
            Entry { at, bytes: Bytes::from(vec![7; bytes]) }
        };
        *entries = (1..=count as u64).map(entry).collect();
        message
    }

    #[test]
    fn appends_at_the_bounds_of_replicas_are_read() {
        let limits = archon_replica::Limits::default();
        assert_eq!(limits.append_bytes_max, APPEND_BYTES_MAX);
        let most = limits.append_entries_max;
        for count in [most - 1, most, most + 1, ENTRIES_MAX as usize] {
            let message = append(count, 1);
            assert_eq!(unpacked(&pack(std::slice::from_ref(&message))), [Ok(message)], "{count} entries");
        }
        assert!(unpacked(&pack(&[append(ENTRIES_MAX as usize + 1, 1)]))[0].is_err());
        // Behind a part that is nearly full.
        let small = append(1, PART_BYTES - 200);
        for large in
            [append(1, EFFECT_BYTES_MAX), append(2, APPEND_BYTES_MAX / 2), append(most, APPEND_BYTES_MAX / most)]
        {
            let parts = pack(&[small.clone(), large.clone()]);
            assert!(parts.iter().all(|part| part.bytes.len() <= PART_BYTES_MAX));
            assert_eq!(unpacked(&parts), [Ok(small.clone()), Ok(large)]);
        }
    }

    #[test]
    fn long_turn_becomes_several_parts_without_loss() {
        let mut message = samples().remove(2);
        let Body::Append { entries, .. } = &mut message.body else { panic!("an append") };
        entries[0].bytes = Bytes::from(vec![7; 100_000]);
        let messages = vec![message; 10];
        let parts = pack(&messages);
        assert!(parts.len() > 1 && parts.iter().all(|part| part.bytes.len() < PART_BYTES + 101_000));
        assert_eq!(parts.iter().map(|part| part.messages).sum::<u64>(), 10);
        assert_eq!(unpacked(&parts), messages.into_iter().map(Ok).collect::<Vec<_>>());
    }

    #[test]
    fn unpack_ends_at_first_invalid_message() {
        let part = pack(&samples()).remove(0);
        let ends: Vec<usize> =
            (1..=samples().len()).map(|count| pack(&samples()[..count]).remove(0).bytes.len()).collect();
        for length in 1..part.bytes.len() {
            let found: Vec<_> = unpack(part.bytes.slice(..length)).collect();
            let whole = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(found.iter().filter(|message| message.is_ok()).count(), whole, "of {length} bytes");
            assert_eq!(found.len() - whole, usize::from(!ends.contains(&length)), "of {length} bytes");
        }
        let one = |bytes: &[u8]| unpack(Bytes::copy_from_slice(bytes)).next().unwrap().unwrap_err().to_string();
        assert!(one(&[9, 1, 4, 1, 1, 1, 2, 2, 2, 3]).contains("of kind 9"));
        assert!(one(&[ACK, 0, 4, 1, 1, 1, 2, 2, 2, 3, 5]).contains("is 0"));
        assert!(one(&[ACK, 1, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1, 1, 2, 2, 2, 3, 5]).contains("partition 4294967296"));
        let append = [APPEND, 1, 4, 1, 1, 1, 2, 2, 2, 3, 2, 5, 5, 5];
        assert!(one(&[&append[..], &[0x81, 0x80, 4]].concat()).contains("65537 entries"));
        let end = [&append[..11], &[0xFF; 9], &[1, 5, 5, 1, 3, 0]].concat();
        assert!(one(&end).contains("no room after"));
    }
}
