//! Small mutations of bytes, of the kinds that break decoders.

use archon_testkit::Random;

/// Maximum size of an input.
const BYTES_MAX: usize = 64 * 1024;

/// Values at which arithmetic goes wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// Mutates `input` in one to six places. Some mutations insert a piece of `other`.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.index(6) {
        mutate_once(input, other, random);
    }
    input.truncate(BYTES_MAX);
}

fn mutate_once(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.index(input.len() + 1);
    match random.index(10) {
        0 | 1 => flip_bit(input, at, random),
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.number() as u8;
            }
        }
        3 => write_edge(input, at, random),
        4 => insert_varint(input, at, random),
        5 => input.truncate(at),
        6 => {
            let count = random.index(9);
            let fresh = random.bytes(count);
            input.splice(at..at, fresh);
        }
        7 => {
            let end = (at + 1 + random.index(16)).min(input.len());
            if at < end {
                input.drain(at..end);
            }
        }
        8 => {
            let end = (at + 1 + random.index(32)).min(input.len());
            if at < end {
                let piece = input[at..end].to_vec();
                let to = random.index(input.len() + 1);
                input.splice(to..to, piece);
            }
        }
        _ => {
            let from = random.index(other.len() + 1);
            let end = (from + random.index(64)).min(other.len());
            input.splice(at..at, other[from..end].iter().copied());
        }
    }
}

fn flip_bit(input: &mut [u8], at: usize, random: &mut Random) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << random.index(8);
    }
}

/// Writes an edge value over 1, 2, 4 or 8 bytes, in either order.
fn write_edge(input: &mut [u8], at: usize, random: &mut Random) {
    let width = *random.pick(&[1, 2, 4, 8]);
    let value = *random.pick(&EDGES);
    let little = value.to_le_bytes();
    let mut piece = little[..width].to_vec();
    if random.once_in(2) {
        piece.reverse();
    }
    if let Some(place) = input.get_mut(at..at + width) {
        place.copy_from_slice(&piece);
    }
}

/// Inserts an edge value as a protobuf varint.
fn insert_varint(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let mut value = *random.pick(&EDGES);
    let mut piece = Vec::new();
    while value >= 0x80 {
        piece.push(value as u8 | 0x80);
        value >>= 7;
    }
    piece.push(value as u8);
    input.splice(at..at, piece);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_mutations() {
        let run = |seed| {
            let mut random = Random::new(seed);
            let mut input = b"some input to begin from".to_vec();
            for _ in 0..200 {
                mutate(&mut input, b"another", &mut random);
            }
            input
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
