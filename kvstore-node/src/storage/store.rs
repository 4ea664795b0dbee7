//! Format of a placement in the write-ahead log: one stream per placement, with a few small values beside its entries.

use archon_kv::numbers::{NUMBER_BYTES_MAX, put_number, take_number};
use archon_replica::{Entry, Position};
use archon_types::{Epoch, PartitionId, PlacementId, Seq, TableId};
use archon_wal::{StreamId, WalBatch};
use bytes::{BufMut, Bytes, BytesMut};

/// The partition that the placement is a copy of.
pub(crate) const META_PARTITION: u32 = 1;
/// The highest epoch accepted.
pub(crate) const META_EPOCH: u32 = 2;
/// The position before the first entry kept.
pub(crate) const META_BASE: u32 = 3;
/// The position up to which the engine is known to be complete on disk.
pub(crate) const META_COMPLETE: u32 = 4;
/// A position up to which everything is committed.
pub(crate) const META_COMMIT: u32 = 5;

const FORMAT: u8 = 1;

/// A stored value that differs from what was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} of {bytes} bytes is malformed or of a newer format")]
pub(crate) struct StoreError {
    what: &'static str,
    bytes: usize,
}

/// Returns the stream of a placement.
pub(crate) const fn stream(placement: PlacementId) -> StreamId {
    StreamId(placement.get())
}

/// Returns the placement of a stream.
pub(crate) const fn placement(stream: StreamId) -> PlacementId {
    PlacementId::new(stream.0)
}

/// Writes an entry: its epoch, then the bytes that every replica carries unchanged.
pub(crate) fn put_entry(batch: &mut WalBatch, placement: PlacementId, entry: Entry) {
    let mut epoch = [0; NUMBER_BYTES_MAX];
    let mut room = &mut epoch[..];
    put_number(&mut room, entry.at.epoch.get());
    let unused = room.len();
    batch.put_headed(stream(placement), entry.at.seq.get(), &epoch[..NUMBER_BYTES_MAX - unused], entry.bytes);
}

/// Reads an entry from a record of the log.
pub(crate) fn read_entry(seq: u64, record: &Bytes) -> Result<Entry, StoreError> {
    let mut rest = &record[..];
    let epoch = take_number(&mut rest).map_err(|_| StoreError { what: "a log entry", bytes: record.len() })?;
    let bytes = record.slice(record.len() - rest.len()..);
    Ok(Entry { at: Position::new(Epoch::new(epoch), Seq::new(seq)), bytes })
}

/// Notes the partition of a stream. The first write to a stream.
pub(crate) fn put_partition(batch: &mut WalBatch, placement: PlacementId, partition: PartitionId) {
    let mut value = BytesMut::with_capacity(13);
    value.put_u8(FORMAT);
    value.put_u64(partition.table.get());
    value.put_u32(partition.index);
    batch.meta(stream(placement), META_PARTITION, value.freeze());
}

/// Returns the partition noted by [`put_partition`].
pub(crate) fn read_partition(value: &[u8]) -> Result<PartitionId, StoreError> {
    let error = StoreError { what: "a partition's name", bytes: value.len() };
    let [FORMAT, rest @ ..] = value else { return Err(error) };
    let Some((table, index)) = rest.split_first_chunk::<8>() else { return Err(error) };
    let index = <[u8; 4]>::try_from(index).map_err(|_| error)?;
    Ok(PartitionId::new(TableId::new(u64::from_be_bytes(*table)), u32::from_be_bytes(index)))
}

/// Records the highest epoch accepted.
pub(crate) fn put_epoch(batch: &mut WalBatch, placement: PlacementId, epoch: Epoch) {
    batch.meta(stream(placement), META_EPOCH, Bytes::copy_from_slice(&epoch.get().to_be_bytes()));
}

/// Returns the epoch noted by [`put_epoch`].
pub(crate) fn read_epoch(value: &[u8]) -> Result<Epoch, StoreError> {
    let bytes = <[u8; 8]>::try_from(value).map_err(|_| StoreError { what: "an epoch", bytes: value.len() })?;
    Ok(Epoch::new(u64::from_be_bytes(bytes)))
}

/// Notes a position under `key`.
pub(crate) fn put_position(batch: &mut WalBatch, placement: PlacementId, key: u32, position: Position) {
    let mut value = BytesMut::with_capacity(16);
    value.put_u64(position.epoch.get());
    value.put_u64(position.seq.get());
    batch.meta(stream(placement), key, value.freeze());
}

/// Returns a position noted by [`put_position`].
pub(crate) fn read_position(value: &[u8]) -> Result<Position, StoreError> {
    let error = StoreError { what: "a position", bytes: value.len() };
    let Some((epoch, seq)) = value.split_first_chunk::<8>() else { return Err(error) };
    let seq = <[u8; 8]>::try_from(seq).map_err(|_| error)?;
    Ok(Position::new(Epoch::new(u64::from_be_bytes(*epoch)), Seq::new(u64::from_be_bytes(seq))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_values_are_errors() {
        for length in 0..32 {
            let bytes = vec![9; length];
            assert!(read_partition(&bytes).is_err());
            assert_eq!(read_epoch(&bytes).is_ok(), length == 8);
            assert_eq!(read_position(&bytes).is_ok(), length == 16);
            assert_eq!(read_entry(1, &Bytes::from(bytes)).is_ok(), length > 0);
        }
        assert!(read_entry(1, &Bytes::from_static(&[0x80])).is_err());
        assert!(read_entry(1, &Bytes::from_static(&[0x80, 0x00])).is_err(), "an epoch has one encoding");
        let most = [&[0xff; 9][..], &[1], b"data"].concat();
        let entry = read_entry(1, &Bytes::from(most)).unwrap();
        assert_eq!((entry.at.epoch, &entry.bytes[..]), (Epoch::new(u64::MAX), &b"data"[..]));
    }
}
