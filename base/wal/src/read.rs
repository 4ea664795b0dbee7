//! Reading of records: looked up under the lock, fetched and checked without it.

use std::sync::Arc;

use bytes::Bytes;
use crc32c::crc32c;

use crate::batch::StreamId;
use crate::disk::DiskFile;
use crate::error::WalError;
use crate::format::{KIND_PUT, OP_HEADER_BYTES, Step};
use crate::index::{Index, Location};

/// Maximum gap between records that are fetched by one read.
const GAP_BYTES_MAX: u32 = 4 * 1024;
/// Maximum bytes of one read, unless a single record is larger.
const SPAN_BYTES_MAX: u32 = 1024 * 1024;

/// One stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number in the stream.
    pub seq: u64,
    /// Its content.
    pub data: Bytes,
}

/// Neighbouring records of one file.
struct Span {
    segment: u64,
    file: Arc<dyn DiskFile>,
    start: u32,
    end: u32,
    locations: Vec<Location>,
}

/// Byte ranges to fetch for one call.
pub(crate) struct Plan {
    stream: u64,
    first: u64,
    spans: Vec<Span>,
}

impl Plan {
    pub(crate) fn new(index: &Index, stream: StreamId, from: u64, bytes_max: usize) -> Result<Plan, WalError> {
        let mut plan = Plan { stream: stream.0, first: from, spans: Vec::new() };
        let Some(entry) = index.streams.get(&stream.0) else { return Ok(plan) };
        let first = if entry.tail.is_empty() { entry.tail.floor } else { entry.visible_first() };
        if from < first {
            let held = match entry.tail.is_empty() {
                true => format!("nothing below {first}"),
                false => format!("{first} to {}", entry.tail.next - 1),
            };
            return Err(WalError::Missing { stream, seq: from, held });
        }
        let skip = usize::try_from(from - entry.base.min(from)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        // A start beyond the end yields nothing.
        for location in entry.entries.range(skip.min(entry.entries.len())..) {
            let step_bytes = OP_HEADER_BYTES + location.data_bytes as usize;
            if bytes > 0 && bytes + step_bytes > bytes_max {
                break;
            }
            bytes += step_bytes;
            plan.add(index, *location)?;
        }
        Ok(plan)
    }

    fn add(&mut self, index: &Index, location: Location) -> Result<(), WalError> {
        let end = location.offset.saturating_add(OP_HEADER_BYTES as u32 + location.data_bytes);
        if let Some(span) = self.spans.last_mut()
            && span.segment == location.segment
            && location.offset >= span.end
            && location.offset - span.end <= GAP_BYTES_MAX
            && end - span.start <= SPAN_BYTES_MAX
        {
            span.end = end;
            span.locations.push(location);
            return Ok(());
        }
        let segment = location.segment;
        let Some(found) = index.segments.get(&segment) else {
            let (offset, what) = (u64::from(location.offset), "the segment is gone".to_owned());
            return Err(WalError::Corrupt { segment, offset, what });
        };
        self.spans.push(Span {
            segment,
            file: found.file.clone(),
            start: location.offset,
            end,
            locations: vec![location],
        });
        Ok(())
    }

    pub(crate) fn fetch(self) -> Result<Vec<Record>, WalError> {
        let mut records = Vec::with_capacity(self.spans.iter().map(|s| s.locations.len()).sum());
        let mut seq = self.first;
        for span in self.spans {
            let mut buffer = vec![0u8; (span.end - span.start) as usize];
            span.file.read_at(u64::from(span.start), &mut buffer).map_err(|source| {
                let path = crate::segment::segment_name(span.segment);
                WalError::Io { action: "read", path, source }
            })?;
            let buffer = Bytes::from(buffer);
            for location in span.locations {
                let at = (location.offset - span.start) as usize;
                let end = at + OP_HEADER_BYTES + location.data_bytes as usize;
                let data = buffer.slice(at + OP_HEADER_BYTES..end);
                let sound = Step::decode(&buffer[at..]).is_some_and(|step| {
                    step.kind == KIND_PUT
                        && (step.stream, step.arg) == (self.stream, seq)
                        && step.data_bytes == data.len()
                        && step.data_crc == crc32c(&data)
                });
                if !sound {
                    let (segment, offset) = (span.segment, u64::from(location.offset));
                    let what = format!("record {seq} of stream {} fails its checksum", self.stream);
                    return Err(WalError::Corrupt { segment, offset, what });
                }
                records.push(Record { seq, data });
                seq += 1;
            }
        }
        Ok(records)
    }
}
