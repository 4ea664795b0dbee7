//! Fields of messages that are packed by hand: numbers as LEB128, byte strings preceded by their length.

use crate::convert::ConvertError;
use bytes::Bytes;

/// Bytes of the longest number.
const NUMBER_BYTES_MAX: usize = 10;

/// Reads packed fields, each checked against the end of the message. Byte strings share its memory.
#[derive(Debug)]
pub struct FieldReader {
    bytes: Bytes,
    at: usize,
    field: &'static str,
}

impl FieldReader {
    /// Creates a reader of `bytes`, which errors call `field`.
    pub const fn new(bytes: Bytes, field: &'static str) -> Self {
        Self { bytes, at: 0, field }
    }

    /// Returns true if everything was read.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Returns the number of bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Skips the rest.
    pub fn end(&mut self) {
        self.at = self.bytes.len();
    }

    /// Returns an error about this message.
    pub fn error(&self, problem: String) -> ConvertError {
        ConvertError::new(self.field, problem)
    }

    fn short(&self) -> ConvertError {
        self.error(format!("{} bytes end in the middle of something", self.bytes.len()))
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// [`ConvertError`] at the end of the message.
    pub fn byte(&mut self) -> Result<u8, ConvertError> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.short())?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads a number.
    ///
    /// # Errors
    /// [`ConvertError`] if the message ends in it, or it has more than 64 bits.
    #[inline]
    pub fn number(&mut self) -> Result<u64, ConvertError> {
        let rest = self.rest();
        match *rest {
            // Most numbers are small.
            [byte @ ..0x80, ..] => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => match parse_number(rest) {
                Some((number, length)) => {
                    self.at += length;
                    Ok(number)
                }
                None => Err(self.malformed_number()),
            },
        }
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    #[cold]
    fn malformed_number(&self) -> ConvertError {
        if self.rest().len() < NUMBER_BYTES_MAX {
            return self.short();
        }
        self.error("a number of more than 64 bits".to_owned())
    }

    /// Reads the next `length` bytes.
    ///
    /// # Errors
    /// [`ConvertError`] if there are fewer.
    pub fn raw(&mut self, length: usize) -> Result<Bytes, ConvertError> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or_else(|| self.short())?;
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    /// Reads a byte string.
    ///
    /// # Errors
    /// [`ConvertError`] if the message ends in it.
    pub fn take(&mut self) -> Result<Bytes, ConvertError> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_| self.short())?;
        self.raw(length)
    }
}

/// Returns the number at the beginning of `rest` and its length; `None` if it is cut short or has more than 64 bits.
fn parse_number(rest: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    for (at, byte) in rest.iter().take(NUMBER_BYTES_MAX).enumerate() {
        let part = u64::from(byte & 0x7F);
        number |= part << (7 * at);
        if *byte < 0x80 {
            // The tenth byte has room for one bit.
            return (at + 1 < NUMBER_BYTES_MAX || part <= 1).then_some((number, at + 1));
        }
    }
    None
}

/// Adds a number.
#[inline]
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Adds a byte string.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps small numbers of either sign to small unsigned ones.
pub const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Returns the argument of [`zigzag`].
pub const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}
