//! Mixing function that spreads adjacent numbers.

/// Returns a number uncorrelated with its neighbours': the output of SplitMix64 (Steele, Lea and Flood 2014) for this
/// state.
pub const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First numbers of the reference implementation for the seed 0.
    #[test]
    fn mixed_matches_splitmix64() {
        let gamma = 0x9e37_79b9_7f4a_7c15_u64;
        let found = [0, 1, 2].map(|step| mixed(gamma.wrapping_mul(step)));
        assert_eq!(found, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }
}
