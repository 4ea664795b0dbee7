//! Batches cut into frames that a coordinator accepts from an unidentified peer.

use archon_frames::STRANGER_BYTES_MAX;
use archon_proto::convert::members::beats::{BEATS_MAX, Beat};
use archon_proto::v1;
use prost::Message as _;

/// Maximum bytes of heartbeats in one frame.
const FRAME_BYTES: usize = STRANGER_BYTES_MAX / 2;

/// Cuts heartbeats into frames, each within the limit and none empty. Load data may make a heartbeat larger than a
/// frame: it is then removed.
pub(super) fn cut(beats: impl Iterator<Item = Beat>) -> Vec<Vec<v1::Beat>> {
    let mut frames: Vec<Vec<v1::Beat>> = Vec::new();
    let mut bytes = FRAME_BYTES;
    for mut beat in beats.map(v1::Beat::from) {
        let mut needs = encoded_bytes(&beat);
        if needs > FRAME_BYTES {
            beat.load = None;
            needs = encoded_bytes(&beat);
        }
        match frames.last_mut() {
            Some(frame) if bytes + needs <= FRAME_BYTES && frame.len() < BEATS_MAX => {
                frame.push(beat);
                bytes += needs;
            }
            _ => {
                frames.push(vec![beat]);
                bytes = needs;
            }
        }
    }
    frames
}

fn encoded_bytes(beat: &v1::Beat) -> usize {
    // Including tag and length.
    beat.encoded_len() + 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_proto::convert::members::load::{Load, PlacementLoad};
    use archon_types::{Incarnation, NodeId, PlacementId, PushKey, Version};
    use uuid::Uuid;

    fn beat(node: u64, placements: u64) -> Beat {
        let load = |placement| PlacementLoad { placement: PlacementId::new(placement), bytes: 1 << 40, keys: 1 << 30 };
        Beat {
            node: NodeId::new(node),
            incarnation: Incarnation::new(3),
            number: 1,
            table_version: Version::new(7),
            stopping: false,
            push_key: PushKey::new(Uuid::from_u128(5)),
            load: Some(Load { placements: (1..=placements).map(load).collect(), ..Load::default() }),
            doors: None,
            proof: bytes::Bytes::new(),
        }
    }

    #[test]
    fn large_batch_is_cut_into_frames_within_the_limit() {
        let beats: Vec<Beat> = (1..=3_000).map(|node| beat(node, node % 40)).collect();
        let frames = cut(beats.iter().cloned());
        let beats: Vec<_> = beats.into_iter().map(v1::Beat::from).collect();
        assert_eq!(frames.concat(), beats, "none is lost and none comes twice");
        for frame in &frames {
            let bytes: usize = frame.iter().map(encoded_bytes).sum();
            assert!(!frame.is_empty() && bytes <= FRAME_BYTES, "{bytes}");
        }
        assert!(cut(std::iter::empty()).is_empty());
    }

    #[test]
    fn oversized_load_is_removed_from_heartbeat() {
        let frames = cut([beat(1, 10), beat(2, 10_000), beat(3, 10)].into_iter());
        let found: Vec<_> = frames.concat().iter().map(|beat| (beat.node, beat.load.is_some())).collect();
        assert_eq!(found, [(1, true), (2, false), (3, true)]);
    }
}
