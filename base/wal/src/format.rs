//! Disk format: segment header, frames, and the steps inside a frame.
//!
//! ```text
//! segment  = header (64 bytes) · snapshot frame · batch frame*     zeros or stale bytes follow
//! frame    = magic u32 · crc u32 · payload bytes u32 · group u32 · batch u64 · generation u32 · chain u32 · payload
//! payload  = step* · zeros to a multiple of 8
//! step     = kind and data bytes u32 · stream u64 · prev u64 · arg u64 · data crc u32 · header sum u32 · data
//! ```
//!
//! All integers are little endian, all checksums CRC32C. A step has its kind in the high 3 bits of its first field, and
//! the bytes of its data in the other 29.
//!
//! * A frame is one batch, so a batch is whole or absent.
//! * A frame's checksum also covers the segment's generation and salt and the frame's own offset: earlier content of
//!   a recycled file, or a record that looks like a frame, never parses.
//! * `group` is the start offset of the write that carried the frame. Everything before it was durable by then; this
//!   distinguishes a torn write from damage.
//! * `chain` is the checksum of the previous frame. The remains of an interrupted write do not continue a later write
//!   in its place.
//! * `prev` is the previous batch that changed the stream; a lost frame shows as a broken chain.
//! * A step has its own checksums, so that one record can be read and checked alone, and a damaged frame can still
//!   name its streams. The checksum of a step's header is masked: a CRC over bytes followed by their own CRC does not
//!   depend on the bytes, so the frame's CRC would not detect a torn write that left steps of an older frame in place
//!   of its own.

use crc32c::{crc32c, crc32c_append};

/// Format of segment files that this program reads and writes.
pub const FORMAT: u32 = 3;

pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"ARCHWAL\n";
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
pub(crate) const FRAME_HEADER_BYTES: usize = 32;
pub(crate) const OP_HEADER_BYTES: usize = 36;
pub(crate) const BATCH_MAGIC: u32 = 0x4241_5721;
pub(crate) const SNAPSHOT_MAGIC: u32 = 0x534e_4121;

pub(crate) const KIND_PUT: u32 = 1;
pub(crate) const KIND_CUT: u32 = 2;
pub(crate) const KIND_META: u32 = 3;
pub(crate) const KIND_DROP: u32 = 4;
pub(crate) const KIND_TRIM: u32 = 5;
pub(crate) const KIND_STREAM: u32 = 6;

/// Bits of a step's first field that hold the bytes of its data. The kind is above them.
pub(crate) const DATA_BYTES_BITS: u32 = 29;
/// Offset of the checksum in a step's header.
const SUM_AT: usize = 32;

/// Frames begin at multiples of eight, which speeds up the search behind a damaged one.
pub(crate) const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

/// Header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) generation: u64,
    /// Random, to distinguish two segments with the same generation.
    pub(crate) salt: u64,
    /// Number of the last batch before this segment.
    pub(crate) base_batch: u64,
    pub(crate) size: u64,
}

/// Reason why the start of a file is not a usable header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Intact, but of another format.
    Format(u32),
    Bad(&'static str),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0u8; SEGMENT_HEADER_BYTES];
        out[0..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.to_le_bytes());
        out[24..32].copy_from_slice(&self.salt.to_le_bytes());
        out[32..40].copy_from_slice(&self.base_batch.to_le_bytes());
        out[40..48].copy_from_slice(&self.size.to_le_bytes());
        let crc = crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        let short = HeaderError::Bad("the file is shorter than a header");
        let header = bytes.get(..SEGMENT_HEADER_BYTES).ok_or(short)?;
        if header[..8] != SEGMENT_MAGIC {
            return Err(HeaderError::Bad("the header does not begin with the log's magic"));
        }
        let (Some(format), Some(crc)) = (u32_at(header, 8), u32_at(header, 60)) else {
            return Err(HeaderError::Bad("the header is cut short"));
        };
        let intact = crc32c(&header[..60]) == crc;
        // Every format keeps the magic, format number and this checksum in place, so that a flipped bit in the number
        // is damage and not a newer version.
        if !intact || format == 0 {
            return Err(HeaderError::Bad("the header fails its checksum"));
        }
        if format != FORMAT {
            return Err(HeaderError::Format(format));
        }
        let field = |at| u64_at(header, at).unwrap_or_default();
        Ok(SegmentHeader { generation: field(16), salt: field(24), base_batch: field(32), size: field(40) })
    }
}

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) snapshot: bool,
    pub(crate) payload_bytes: usize,
    pub(crate) group: u32,
    pub(crate) batch: u64,
    /// Checksum of the previous frame in this segment; zero for the snapshot.
    pub(crate) chain: u32,
}

impl Frame {
    pub(crate) fn bytes(&self) -> usize {
        padded(FRAME_HEADER_BYTES + self.payload_bytes)
    }
}

fn frame_crc(frame: &[u8], generation: u64, salt: u64, offset: u32) -> u32 {
    let mut seed = [0u8; 20];
    seed[..8].copy_from_slice(&generation.to_le_bytes());
    seed[8..16].copy_from_slice(&salt.to_le_bytes());
    seed[16..].copy_from_slice(&offset.to_le_bytes());
    let crc = crc32c_append(crc32c(&seed), &frame[..4]);
    crc32c_append(crc, &frame[8..])
}

/// Fills in the header of the frame from `start` to the end of `buffer`, pads the frame, and returns its checksum.
/// `offset` is its future position in the segment.
pub(crate) fn seal_frame(buffer: &mut Vec<u8>, start: usize, offset: u32, frame: Frame, header: &SegmentHeader) -> u32 {
    let unpadded = buffer.len() - start;
    buffer.resize(start + padded(unpadded), 0);
    let magic = if frame.snapshot { SNAPSHOT_MAGIC } else { BATCH_MAGIC };
    let bytes = &mut buffer[start..];
    bytes[0..4].copy_from_slice(&magic.to_le_bytes());
    bytes[8..12].copy_from_slice(&(frame.payload_bytes as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&frame.group.to_le_bytes());
    bytes[16..24].copy_from_slice(&frame.batch.to_le_bytes());
    // The low half only rejects stale frames quickly; the checksum covers the whole number.
    bytes[24..28].copy_from_slice(&(header.generation as u32).to_le_bytes());
    bytes[28..32].copy_from_slice(&frame.chain.to_le_bytes());
    let crc = frame_crc(bytes, header.generation, header.salt, offset);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Reads the header at `offset` without checking the frame's checksum: only for looking inside a damaged frame.
pub(crate) fn peek_frame(segment: &[u8], offset: usize, generation: u64) -> Option<Frame> {
    let magic = u32_at(segment, offset)?;
    if magic != BATCH_MAGIC && magic != SNAPSHOT_MAGIC {
        return None;
    }
    if u32_at(segment, offset + 24)? != generation as u32 {
        return None;
    }
    let frame = Frame {
        snapshot: magic == SNAPSHOT_MAGIC,
        payload_bytes: u32_at(segment, offset + 8)? as usize,
        group: u32_at(segment, offset + 12)?,
        batch: u64_at(segment, offset + 16)?,
        chain: u32_at(segment, offset + 28)?,
    };
    (offset.checked_add(frame.bytes())? <= segment.len()).then_some(frame)
}

/// Returns the frame at `offset` and its checksum, if it is a whole frame of this segment.
pub(crate) fn read_frame(segment: &[u8], offset: usize, header: &SegmentHeader) -> Option<(Frame, u32)> {
    let frame = peek_frame(segment, offset, header.generation)?;
    let bytes = &segment[offset..offset + frame.bytes()];
    let crc = frame_crc(bytes, header.generation, header.salt, u32::try_from(offset).ok()?);
    (u32_at(bytes, 4)? == crc).then_some((frame, crc))
}

/// Masks a checksum that is stored among bytes with the same kind of checksum (LevelDB, `util/crc32c.h`).
const fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A stored step header; `data` follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: u32,
    pub(crate) stream: u64,
    pub(crate) prev: u64,
    pub(crate) arg: u64,
    pub(crate) data_bytes: usize,
    pub(crate) data_crc: u32,
}

impl Step {
    /// Reads and checks only the header.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Step> {
        let header = bytes.get(..OP_HEADER_BYTES)?;
        if u32_at(header, SUM_AT)? != masked(crc32c(&header[..SUM_AT])) {
            return None;
        }
        let (kind, data_bytes) = read_first_field(u32_at(header, 0)?);
        Some(Step {
            kind,
            stream: u64_at(header, 4)?,
            prev: u64_at(header, 12)?,
            arg: u64_at(header, 20)?,
            data_bytes,
            data_crc: u32_at(header, 28)?,
        })
    }
}

/// Returns the first field of a step.
fn first_field(kind: u32, data_bytes: usize) -> u32 {
    debug_assert!(data_bytes >> DATA_BYTES_BITS == 0, "batches and metas are bounded");
    kind << DATA_BYTES_BITS | data_bytes as u32
}

/// Returns the kind of a step and the bytes of its data.
const fn read_first_field(field: u32) -> (u32, usize) {
    (field >> DATA_BYTES_BITS, (field & ((1 << DATA_BYTES_BITS) - 1)) as usize)
}

/// Appends one step to a frame's payload and returns its offset in `buffer`.
pub(crate) fn push_step(buffer: &mut Vec<u8>, kind: u32, stream: u64, prev: u64, arg: u64, data: &[u8]) -> usize {
    push_headed_step(buffer, (kind, stream, prev, arg), &[], data)
}

/// As [`push_step`], with the data in two pieces. The tuple is kind, stream, prev and arg.
pub(crate) fn push_headed_step(
    buffer: &mut Vec<u8>,
    (kind, stream, prev, arg): (u32, u64, u64, u64),
    head: &[u8],
    data: &[u8],
) -> usize {
    let start = buffer.len();
    let mut header = [0u8; OP_HEADER_BYTES];
    header[0..4].copy_from_slice(&first_field(kind, head.len() + data.len()).to_le_bytes());
    header[4..12].copy_from_slice(&stream.to_le_bytes());
    header[12..20].copy_from_slice(&prev.to_le_bytes());
    header[20..28].copy_from_slice(&arg.to_le_bytes());
    header[28..32].copy_from_slice(&crc32c_append(crc32c(head), data).to_le_bytes());
    let sum = masked(crc32c(&header[..SUM_AT]));
    header[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    buffer.extend_from_slice(&header);
    buffer.extend_from_slice(head);
    buffer.extend_from_slice(data);
    start
}

/// Iterates over the steps of a payload, each with the offset of its header. Yields `None` once and ends at an
/// invalid header.
pub(crate) struct Steps<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Steps<'a> {
        Steps { payload, at: 0 }
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = Option<(usize, Step, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.payload.len() {
            return None;
        }
        let at = self.at;
        let step = Step::decode(&self.payload[at..]).and_then(|step| {
            let data = at + OP_HEADER_BYTES;
            Some((at, step, self.payload.get(data..data.checked_add(step.data_bytes)?)?))
        });
        self.at = match &step {
            Some((_, _, data)) => at + OP_HEADER_BYTES + data.len(),
            None => self.payload.len(),
        };
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader { generation: 7, salt: 99, base_batch: 41, size: 4096 };

    fn sample(header: &SegmentHeader, offset: u32) -> Vec<u8> {
        let mut buffer = vec![0u8; FRAME_HEADER_BYTES];
        push_step(&mut buffer, KIND_PUT, 3, 40, 5, b"hello");
        push_step(&mut buffer, KIND_CUT, 4, 0, 9, b"");
        let payload_bytes = buffer.len() - FRAME_HEADER_BYTES;
        let frame = Frame { snapshot: false, payload_bytes, group: offset, batch: 42, chain: 0 };
        seal_frame(&mut buffer, 0, offset, frame, header);
        buffer
    }

    #[test]
    fn header_round_trip_and_every_bit_counts() {
        let bytes = HEADER.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn other_format_is_distinguished_from_damage() {
        for format in [FORMAT - 1, FORMAT + 1] {
            let mut bytes = HEADER.encode();
            bytes[8..12].copy_from_slice(&format.to_le_bytes());
            assert!(matches!(SegmentHeader::decode(&bytes), Err(HeaderError::Bad(_))), "a flipped bit");
            let crc = crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Format(format)));
        }
    }

    #[test]
    fn step_has_its_documented_layout() {
        let mut bytes = Vec::new();
        push_headed_step(&mut bytes, (KIND_TRIM, 0x0102, 7, 9), b"he", b"llo");
        let expected = [
            &[5, 0, 0, 5 << 5][..],
            &[2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
            &crc32c(b"hello").to_le_bytes(),
        ];
        assert_eq!((FORMAT, bytes.len(), &bytes[..32], &bytes[36..]), (3, 41, &expected.concat()[..], &b"hello"[..]));
        let step = Step::decode(&bytes).unwrap();
        assert_eq!((step.kind, step.stream, step.prev, step.arg, step.data_bytes), (KIND_TRIM, 0x0102, 7, 9, 5));
    }

    #[test]
    fn first_field_holds_every_kind_and_length() {
        assert_eq!(first_field(KIND_STREAM, 0x1fff_ffff), 0xdfff_ffff);
        for kind in 0..8 {
            for bytes in [0, 1, (1 << 29) - 1] {
                assert_eq!(read_first_field(first_field(kind, bytes)), (kind, bytes));
            }
        }
    }

    /// Blocks of a file become durable in any order, and a recycled file holds frames of the same layout.
    #[test]
    fn frame_with_steps_of_older_frame_is_rejected() {
        let frame = |kind, prev: u64, data: &[u8]| {
            let mut buffer = vec![0u8; FRAME_HEADER_BYTES];
            for stream in 0..3 {
                push_step(&mut buffer, kind, stream, prev, prev + 1, data);
            }
            let payload_bytes = buffer.len() - FRAME_HEADER_BYTES;
            let frame = Frame { snapshot: false, payload_bytes, group: 0, batch: prev + 10, chain: 0 };
            seal_frame(&mut buffer, 0, 0, frame, &HEADER);
            buffer
        };
        for (kind, data) in [(KIND_TRIM, &b""[..]), (KIND_PUT, b"the same")] {
            let (older, newer) = (frame(kind, 40, data), frame(kind, 90, data));
            for torn in (FRAME_HEADER_BYTES..newer.len()).step_by(8) {
                let mixed = [&newer[..torn], &older[torn..]].concat();
                assert!(mixed == newer || read_frame(&mixed, 0, &HEADER).is_none(), "kind {kind} torn at {torn}");
            }
        }
    }

    #[test]
    fn frame_parses_only_where_and_when_it_was_written() {
        let mut segment = vec![0u8; 64];
        segment.extend_from_slice(&sample(&HEADER, 64));
        let (frame, _) = read_frame(&segment, 64, &HEADER).unwrap();
        assert_eq!((frame.batch, frame.group, frame.snapshot), (42, 64, false));
        let steps: Vec<_> = Steps::new(&segment[96..96 + frame.payload_bytes]).collect();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].unwrap().2, b"hello");

        let other = SegmentHeader { salt: 100, ..HEADER };
        assert!(read_frame(&segment, 64, &other).is_none(), "another salt");
        let other = SegmentHeader { generation: 8, ..HEADER };
        assert!(read_frame(&segment, 64, &other).is_none(), "another generation");
        segment.splice(0..0, [0u8; 8]);
        assert!(read_frame(&segment, 72, &HEADER).is_none(), "another offset");
    }

    #[test]
    fn every_flipped_bit_of_a_frame_is_detected() {
        let clean = sample(&HEADER, 0);
        for bit in 0..clean.len() * 8 {
            let mut bad = clean.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read_frame(&bad, 0, &HEADER).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let clean = sample(&HEADER, 0);
        for cut in 0..clean.len() {
            assert!(read_frame(&clean[..cut], 0, &HEADER).is_none());
            let _ = Steps::new(&clean[cut..]).count();
            let _ = SegmentHeader::decode(&clean[cut..]);
        }
    }
}
