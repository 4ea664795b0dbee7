//! A segment file of the write-ahead log with arbitrary content.

use crate::target::{Target, Verdict};
use archon_wal::disk::{Disk, MemoryDisk};
use archon_wal::{StreamId, Wal, WalBatch, WalConfig};
use std::sync::Arc;
use std::time::Duration;

const FIRST: &str = "wal-0000000000000001.seg";
const TIMEOUT: Duration = Duration::from_secs(20);

fn config() -> WalConfig {
    WalConfig { segment_bytes: 4096, ..WalConfig::default() }
}

fn segment(input: &[u8]) -> Verdict {
    let disk = MemoryDisk::new();
    let name = segment_name();
    let Ok(file) = disk.create(&name) else { return Verdict::Refused("no file".into()) };
    if file.write_at(0, input).and_then(|()| file.sync()).and_then(|()| disk.sync_directory()).is_err() {
        return Verdict::Refused("no room".into());
    }
    let (wal, recovered) = match Wal::open_on(Arc::new(disk.clone()), config()) {
        Ok(opened) => opened,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let damaged = recovered.damaged_streams();
    let mut records = 0;
    for stream in wal.streams() {
        let Some(bounds) = wal.bounds(stream) else { continue };
        if damaged.contains(&stream) {
            let refused = wal.append_wait(one(stream, bounds.last.saturating_add(1)));
            assert!(refused.is_err(), "a damaged {stream:?} takes records");
            continue;
        }
        match wal.read(stream, bounds.first, 1024 * 1024) {
            Ok(found) => records += found.len(),
            Err(error) => panic!("a stream that is whole cannot be read: {error}"),
        }
        if let Some(next) = bounds.last.checked_add(1) {
            wal.append_wait(one(stream, next)).expect("a stream that is whole takes the next record");
        }
    }
    wal.close(TIMEOUT).expect("an opened log can be closed");
    let torn = recovered.torn_bytes_cut > 0;
    let some = ["no", "one", "two", "some"];
    Verdict::Accepted(format!(
        "{} damaged, torn {torn}, {} streams damaged, {} streams, {} records",
        !recovered.damaged.is_empty(),
        some[damaged.len().min(3)],
        some[recovered.streams.len().min(3)],
        some[records.min(3)],
    ))
}

fn one(stream: StreamId, seq: u64) -> WalBatch {
    let mut batch = WalBatch::new();
    batch.put(stream, seq, "next".into());
    batch
}

fn real() -> (String, Vec<u8>) {
    let disk = MemoryDisk::new();
    let (wal, _) = Wal::open_on(Arc::new(disk.clone()), config()).expect("an empty log opens");
    for seq in 1..=3 {
        let mut batch = WalBatch::new();
        batch.put(StreamId(1), seq, "first".into()).put(StreamId(2), seq, "second".into());
        batch.meta(StreamId(1), 7, "epoch".into());
        wal.append_wait(batch).expect("an empty log takes records");
    }
    let mut batch = WalBatch::new();
    batch.cut(StreamId(2), 1).drop_stream(StreamId(9));
    wal.append_wait(batch).expect("a log takes a cut");
    wal.close(TIMEOUT).expect("it closes");
    let files = disk.list().expect("a list of files");
    let name = files.into_iter().map(|(name, _)| name).find(|name| name.starts_with("wal-")).unwrap_or(FIRST.into());
    let bytes = disk.contents(&name).unwrap_or_default();
    (name, bytes)
}

fn segment_name() -> String {
    static NAME: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| real().0);
    NAME.clone()
}

fn segments() -> Vec<Vec<u8>> {
    vec![real().1]
}

/// Fixes the header's checksum, and that of every frame that can be found from the front.
fn fix_checksums(input: &mut [u8]) {
    const HEADER: usize = 64;
    const FRAME: usize = 32;
    if input.len() < HEADER + FRAME {
        return;
    }
    let sum = crc32c::crc32c(&input[..60]);
    input[60..64].copy_from_slice(&sum.to_le_bytes());
    let identity: [u8; 16] = input[16..32].try_into().unwrap_or_default();
    let (mut at, mut chain) = (HEADER, 0u32);
    while at + FRAME <= input.len() {
        let payload = u32::from_le_bytes([input[at + 8], input[at + 9], input[at + 10], input[at + 11]]) as usize;
        let end = (at + FRAME + payload).next_multiple_of(8);
        if input[at..at + 4] == [0; 4] || end > input.len() {
            return;
        }
        fix_steps_checksums(&mut input[at + FRAME..at + FRAME + payload]);
        input[at + 28..at + 32].copy_from_slice(&chain.to_le_bytes());
        let mut sum = crc32c::crc32c(&[&identity[..], &(at as u32).to_le_bytes()[..]].concat());
        sum = crc32c::crc32c_append(sum, &input[at..at + 4]);
        sum = crc32c::crc32c_append(sum, &input[at + 8..end]);
        input[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        chain = sum;
        at = end;
    }
}

/// Kind (3 bits) and data bytes (29): 4 bytes; stream, prev, arg: 8 each; data checksum, masked header checksum: 4 each; data.
fn fix_steps_checksums(payload: &mut [u8]) {
    let mut at = 0;
    while at + 36 <= payload.len() {
        let first = u32::from_le_bytes([payload[at], payload[at + 1], payload[at + 2], payload[at + 3]]);
        let bytes = (first & 0x1fff_ffff) as usize;
        let Some(data) = payload.get(at + 36..(at + 36).saturating_add(bytes)) else { return };
        let sum = crc32c::crc32c(data);
        payload[at + 28..at + 32].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32c::crc32c(&payload[at..at + 32]).rotate_right(15).wrapping_add(0xa282_ead8);
        payload[at + 32..at + 36].copy_from_slice(&sum.to_le_bytes());
        at += 36 + bytes;
    }
}

pub(super) fn targets() -> Vec<Target> {
    vec![Target { fix_checksums: Some(fix_checksums), ..Target::new("log/segment", segment, segments) }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixing_a_valid_segment_changes_nothing() {
        let (_, bytes) = real();
        let mut fixed = bytes.clone();
        fix_checksums(&mut fixed);
        assert!(fixed == bytes, "the layout written here is not that of the log");
    }

    #[test]
    fn fixed_segment_passes_its_checksums() {
        let (_, mut bytes) = real();
        let at = bytes.windows(5).position(|window| window == b"first").expect("a record");
        bytes[at] = b'F';
        assert!(matches!(segment(&bytes), Verdict::Accepted(text) if text.starts_with("true")), "damage is seen");
        fix_checksums(&mut bytes);
        assert!(matches!(segment(&bytes), Verdict::Accepted(text) if text.starts_with("false")), "and can be fixed");
    }
}
