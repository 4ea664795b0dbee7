//! First seeds of long runs.

/// Smallest drawn seed: lower ones are named by people.
pub(crate) const DRAWN_FROM: u64 = 1 << 32;
/// Bits of a drawn seed: repeated draws rarely come near earlier seeds, and the number stays readable.
const DRAWN_BITS: u32 = 48;

/// Returns the first seed for a text such as a commit or a date: the same text gives the same seed.
pub fn first_seed(text: &str) -> u64 {
    // FNV-1a, folded, so that texts that differ in their last letter begin far from each other.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let folded = (hash ^ (hash >> DRAWN_BITS)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - DRAWN_BITS);
    folded.max(DRAWN_FROM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_seeds_of_texts_are_stable_and_far_apart() {
        let days = ["2026-11-21", "2026-11-22", "2026-11-23"].map(first_seed);
        assert_eq!(days, ["2026-11-21", "2026-11-22", "2026-11-23"].map(first_seed));
        for (place, one) in days.iter().enumerate() {
            assert!((DRAWN_FROM..1 << DRAWN_BITS).contains(one));
            assert!(days[..place].iter().all(|other| one.abs_diff(*other) > 1_000_000), "{days:?}");
        }
    }
}
