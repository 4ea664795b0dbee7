//! Pauses between an abandoned automatic operation and its next attempt.

/// The first pause, in milliseconds; each next one is twice as long.
pub(crate) const REST_MS_MIN: u64 = 10_000;
/// The longest pause, in milliseconds.
pub(crate) const REST_MS_MAX: u64 = 600_000;

/// Returns the pause after this number of consecutive abandoned operations, in milliseconds.
pub(crate) const fn rest_ms(given_up: u32) -> u64 {
    let doublings = if given_up == 0 { 0 } else { given_up - 1 };
    let factor = if doublings < 16 { 1 << doublings } else { 1 << 16 };
    let rest_ms = REST_MS_MIN * factor;
    if rest_ms < REST_MS_MAX { rest_ms } else { REST_MS_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_up_to_its_maximum() {
        let rests: Vec<u64> = [1, 2, 3, 6, 7, 8, 100, u32::MAX].into_iter().map(rest_ms).collect();
        assert_eq!(rests, [10_000, 20_000, 40_000, 320_000, 600_000, 600_000, 600_000, 600_000]);
    }
}
