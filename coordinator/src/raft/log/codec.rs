//! Encoding of openraft's types, on disk and between coordinators: MessagePack with field names, so that versions may
//! differ, behind a format number that we raise.

use super::msgpack;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// Format of snapshot files. A higher one is refused; the protocol in the state covers new content of the state.
pub(crate) const FORMAT: u32 = 1;

/// Encodes a value.
///
/// # Errors
/// `InvalidData` when the value cannot be represented, which is a defect.
pub(crate) fn encode<T: Serialize>(what: &'static str, value: &T) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(128);
    write(what, value, &mut bytes)?;
    Ok(bytes.into())
}

/// Writes an encoded value.
fn write<T: Serialize>(what: &'static str, value: &T, to: &mut dyn io::Write) -> io::Result<()> {
    msgpack::encode(value, to)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("cannot encode {what}: {error}")))
}

/// Returns the encoded size of a value in bytes.
///
/// # Errors
/// As [`encode`].
pub(crate) fn size<T: Serialize>(what: &'static str, value: &T) -> io::Result<usize> {
    let mut counter = Counter(0);
    write(what, value, &mut counter)?;
    Ok(counter.0)
}

/// Returns the checksum of an encoded value.
///
/// # Errors
/// As [`encode`].
pub(crate) fn checksum<T: Serialize>(what: &'static str, value: &T) -> io::Result<u64> {
    let mut summer = ChecksumWriter { buffer: Vec::with_capacity(SUMMED_AT_ONCE), crc32c: 0, bytes: 0 };
    write(what, value, &mut summer)?;
    Ok(summer.finish())
}

/// Number of bytes summed up at once: an encoder writes a few at a time.
const SUMMED_AT_ONCE: usize = 64 * 1024;

/// Sums up what is written to it.
struct ChecksumWriter {
    buffer: Vec<u8>,
    crc32c: u32,
    bytes: u64,
}

impl ChecksumWriter {
    fn take_in(&mut self) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, &self.buffer);
        self.bytes = self.bytes.wrapping_add(self.buffer.len() as u64);
        self.buffer.clear();
    }

    /// Returns the checksum in the upper half, and the low half of the length in the lower one.
    fn finish(mut self) -> u64 {
        self.take_in();
        (u64::from(self.crc32c) << 32) | (self.bytes & u64::from(u32::MAX))
    }
}

impl io::Write for ChecksumWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > SUMMED_AT_ONCE {
            self.take_in();
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what is written to it.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decodes a value; any bytes are safe to try.
///
/// # Errors
/// `InvalidData`, naming the kind of value.
pub(crate) fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> io::Result<T> {
    msgpack::decode(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("cannot decode {what}: {error}")))
}
