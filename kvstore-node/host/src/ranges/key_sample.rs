//! Bounded sample of the keys that operations use.

use archon_types::mixed;
use bytes::Bytes;

/// Maximum number of keys in a sample.
const KEYS_MAX: usize = 512;

/// One key out of each run of operations. A hash picks it, so that clients that take turns do not alias with the
/// sampling. Above [`KEYS_MAX`], every second key is dropped and runs double.
#[derive(Debug)]
pub(crate) struct KeySample {
    keys: Vec<Bytes>,
    run: u64,
    seen: u64,
    next: u64,
}

impl Default for KeySample {
    fn default() -> Self {
        Self { keys: Vec::new(), run: 1, seen: 0, next: 0 }
    }
}

impl KeySample {
    /// Counts an operation on this key.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let taken = self.seen == self.next;
        self.seen += 1;
        if !taken {
            return;
        }
        // The received key would keep the whole message in memory.
        self.keys.push(Bytes::copy_from_slice(key));
        if self.keys.len() >= KEYS_MAX {
            let mut at = 0_usize;
            self.keys.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.run *= 2;
        }
        let run = self.seen.div_ceil(self.run);
        self.next = run * self.run + mixed(run) % self.run;
    }

    /// Returns the number of operations.
    pub(crate) const fn operations(&self) -> u64 {
        self.seen
    }

    /// Returns the keys, in order.
    pub(crate) fn sorted(&self) -> Vec<Bytes> {
        let mut keys = self.keys.clone();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(keys: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut sample = KeySample::default();
        keys.for_each(|key| sample.add(&key.to_be_bytes()));
        sample.sorted().iter().map(|key| u32::from_be_bytes(key[..].try_into().unwrap())).collect()
    }

    #[test]
    fn sample_is_complete_for_few_keys_and_bounded_for_many() {
        assert_eq!(sample(0..200), (0..200).collect::<Vec<_>>());
        for count in [511_u32, 512, 513, 10_000, 1_000_000] {
            let found = sample(0..count);
            assert!(found.len() < KEYS_MAX && found.len() >= (KEYS_MAX / 4).min(count as usize), "{}", found.len());
            // Early and late keys alike.
            let below = found.iter().filter(|key| **key < count / 2).count();
            assert!(below.abs_diff(found.len() / 2) <= found.len() / 8, "{below} of {}", found.len());
        }
    }

    #[test]
    fn sample_includes_all_alternating_clients() {
        for period in [2_u32, 3, 4, 8, 16] {
            let found = sample((0..100_000).map(|number| number % period));
            for key in 0..period {
                let share = found.iter().filter(|found| **found == key).count() as f64 / found.len() as f64;
                let fair = 1.0 / f64::from(period);
                assert!(share > fair / 4.0 && share < fair * 3.0, "{key} of {period}: {share}");
            }
        }
    }
}
