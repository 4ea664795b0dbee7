//! Frames of the streams between clients and nodes, and between nodes.

use crate::target::{Target, Verdict};
use archon_frames::{FrameKind, cut};
use archon_testkit::Random;
use bytes::{BufMut, BytesMut};

/// Maximum payload; longer announced lengths are refused.
const BYTES_MAX: usize = 4_096;

/// Cuts all frames, whole and then byte by byte: both must give the same frames.
fn cut_all(input: &[u8]) -> Verdict {
    let at_once = frames([input].into_iter());
    let in_pieces = frames(input.chunks(1));
    assert_eq!(at_once, in_pieces, "how the bytes arrived makes a difference");
    match at_once {
        Ok(kinds) => Verdict::Accepted(format!("{:?}", &kinds[..kinds.len().min(6)])),
        Err(error) => Verdict::Refused(error),
    }
}

fn frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<FrameKind>, String> {
    let (mut received, mut kinds) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        received.put_slice(piece);
        while let Some(frame) = cut(&mut received, BYTES_MAX).map_err(|error| error.to_string())? {
            assert!(frame.payload.len() <= BYTES_MAX, "longer than the limit");
            kinds.push(frame.kind);
        }
        assert!(received.capacity() <= 16 * BYTES_MAX.max(piece.len()), "room for more than a frame may have");
    }
    Ok(kinds)
}

fn generate(_: &str, random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.index(5) {
        let length = if random.index(20) == 0 { random.index(2 * BYTES_MAX) } else { random.index(60) };
        out.put_u8(random.index(5) as u8);
        out.put_u32_le(length as u32);
        out.put_bytes(7, length);
    }
    out
}

pub(super) fn targets() -> Vec<Target> {
    vec![Target { generate: Some(generate), ..Target::new("wire/frames", cut_all, Vec::new) }]
}
