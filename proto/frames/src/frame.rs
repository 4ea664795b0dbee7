//! Parsing of frames from received bytes.

use crate::FrameError;
use bytes::{Buf, Bytes, BytesMut};

/// Size of a frame's head, in bytes.
pub const HEAD_BYTES: usize = 5;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// A message of the stream.
    Message,
    /// The error that ends the stream.
    Error,
    /// Keepalive.
    Alive,
}

impl FrameKind {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Message => 1,
            Self::Error => 2,
            Self::Alive => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Message),
            2 => Some(Self::Error),
            3 => Some(Self::Alive),
            _ => None,
        }
    }
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Kind.
    pub kind: FrameKind,
    /// Content; shares the memory of the received bytes.
    pub payload: Bytes,
}

/// Splits the first frame off the received bytes; `None` while it is incomplete. A payload has at most `bytes_max`
/// bytes.
///
/// # Errors
/// [`FrameError::Unreadable`] if the bytes do not begin a frame of this version; the rest cannot be parsed either.
pub fn cut(received: &mut BytesMut, bytes_max: usize) -> Result<Option<Frame>, FrameError> {
    let Some((head, _)) = received.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [kind, length @ ..] = *head;
    let Some(kind) = FrameKind::from_code(kind) else {
        return Err(FrameError::Unreadable(format!("a frame of kind {kind}, which this version does not know")));
    };
    let length = u32::from_le_bytes(length);
    let length = match usize::try_from(length) {
        Ok(length) if length <= bytes_max => length,
        _ => return Err(FrameError::Unreadable(format!("a frame of {length} bytes; the limit is {bytes_max}"))),
    };
    if received.len() - HEAD_BYTES < length {
        return Ok(None);
    }
    received.advance(HEAD_BYTES);
    Ok(Some(Frame { kind, payload: received.split_to(length).freeze() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;
    use proptest::prelude::*;

    fn framed(frames: &[(u8, Vec<u8>)]) -> BytesMut {
        let mut out = BytesMut::new();
        for (kind, payload) in frames {
            out.put_u8(*kind);
            out.put_u32_le(payload.len() as u32);
            out.put_slice(payload);
        }
        out
    }

    proptest! {
        #[test]
        fn frames_are_parsed_from_chunks_of_any_size(
            frames in prop::collection::vec((1_u8..=3, prop::collection::vec(any::<u8>(), 0..200)), 0..8),
            step in 1_usize..100,
        ) {
            let all = framed(&frames);
            let (mut received, mut seen) = (BytesMut::new(), Vec::new());
            for bytes in all.chunks(step) {
                received.put_slice(bytes);
                while let Some(frame) = cut(&mut received, 200).unwrap() {
                    seen.push((frame.kind.code(), frame.payload.to_vec()));
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert!(received.is_empty());
        }
    }

    #[test]
    fn oversized_or_unknown_frame_is_rejected_at_once() {
        let problem = |bytes: &[u8]| cut(&mut BytesMut::from(bytes), 1_000).unwrap_err().to_string();
        assert!(problem(&[1, 0xFF, 0xFF, 0xFF, 0xFF]).contains("a frame of 4294967295 bytes; the limit is 1000"));
        assert!(problem(&[1, 0xE9, 3, 0, 0, 7]).contains("a frame of 1001 bytes"));
        assert!(problem(&[0, 0, 0, 0, 0]).contains("of kind 0"));
        assert!(problem(b"HTTP/1.1 400").contains("of kind 72"));
    }
}
