//! How long something that goes on by itself is left alone once it was given up.

/// After the first time, in milliseconds; each time in turn twice as long.
pub(crate) const REST_MS_MIN: u64 = 10_000;
/// The longest, in milliseconds.
pub(crate) const REST_MS_MAX: u64 = 600_000;

/// How long it is left alone after it was given up so many times, in milliseconds.
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
    fn it_is_left_alone_twice_as_long_each_time_and_not_for_ever() {
        let rests: Vec<u64> = [1, 2, 3, 6, 7, 8, 100, u32::MAX].into_iter().map(rest_ms).collect();
        assert_eq!(rests, [10_000, 20_000, 40_000, 320_000, 600_000, 600_000, 600_000, 600_000]);
    }
}
