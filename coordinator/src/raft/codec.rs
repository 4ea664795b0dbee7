//! The one encoding of what openraft's types become on disk and between coordinators: MessagePack with field names,
//! so that versions may differ, behind a format number that is ours to raise.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// Format of snapshot files. A higher one is refused; what is new in the state it holds is told by its protocol.
pub(crate) const FORMAT: u32 = 1;

/// Encodes a value.
///
/// # Errors
/// `InvalidData` when the value cannot be represented, which is a defect.
pub(crate) fn encode<T: Serialize>(what: &'static str, value: &T) -> io::Result<Bytes> {
    rmp_serde::to_vec_named(value)
        .map(Bytes::from)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("cannot encode {what}: {error}")))
}

/// How many bytes a value takes, encoded.
///
/// # Errors
/// As [`encode`].
pub(crate) fn size<T: Serialize>(what: &'static str, value: &T) -> io::Result<usize> {
    let mut counter = Counter(0);
    match rmp_serde::encode::write_named(&mut counter, value) {
        Ok(()) => Ok(counter.0),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("cannot encode {what}: {error}"))),
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
/// `InvalidData`, naming what was being read.
pub(crate) fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> io::Result<T> {
    rmp_serde::from_slice(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("cannot decode {what}: {error}")))
}
