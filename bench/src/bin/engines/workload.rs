//! What is written: batches that come again with their seed and number.

use archon_integration_tests::dice::Dice;
use archon_kvstore_node::engine::Change;
use archon_types::PlacementId;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

const SPACES: u64 = 3;
const KEYS_PER_SPACE: u64 = 400;
const CHANGES_MAX: u64 = 40;

/// A row's place.
pub(crate) type Place = (PlacementId, Bytes);
/// A row's contents: the batch that wrote it and its place in it, or nothing if it was removed.
pub(crate) type Contents = Option<(u64, u64)>;

/// Every batch of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    seed: u64,
}

impl Workload {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn dice(&self, batch: u64) -> Dice {
        let mut dice = Dice::new(self.seed.wrapping_mul(0x9E37_79B9).wrapping_add(batch.wrapping_mul(0x1_0001)));
        dice.roll(2);
        dice
    }

    /// Whether the engine is synced after this batch; every eighth one surely is.
    pub(crate) fn is_synced(&self, batch: u64) -> bool {
        batch.is_multiple_of(8) || self.dice(batch).roll(5) == 0
    }

    /// The rows of a batch in order, with what each is to hold.
    pub(crate) fn rows(&self, batch: u64) -> Vec<(Place, Contents)> {
        let mut dice = self.dice(batch);
        let count = 1 + dice.roll(CHANGES_MAX);
        (0..count)
            .map(|index| {
                let space = PlacementId::new(1 + dice.roll(SPACES));
                let mut key = vec![1];
                key.extend_from_slice(format!("key-{:05}", dice.roll(KEYS_PER_SPACE)).as_bytes());
                let contents = (dice.roll(7) != 0).then_some((batch, index));
                ((space, key.into()), contents)
            })
            .collect()
    }

    /// A batch as the engine takes it.
    pub(crate) fn changes(&self, batch: u64) -> Vec<Change> {
        let rows = self.rows(batch).into_iter();
        rows.map(|((space, key), contents)| Change { space, key, value: contents.map(|at| self.value(at)) }).collect()
    }

    /// The value that a batch wrote: small mostly, some of several pages, some longer than 128 KiB. Its first bytes name
    /// it.
    pub(crate) fn value(&self, (batch, index): (u64, u64)) -> Bytes {
        let mut dice = Dice::new(self.seed ^ batch.rotate_left(20) ^ index.rotate_left(50));
        let length = match dice.roll(200) {
            0 => 1_000_000,
            1..=6 => 100_000 + dice.roll(100_000),
            7..=30 => 4_000 + dice.roll(4_000),
            _ => 16 + dice.roll(400),
        };
        let mut value = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 8);
        value.extend_from_slice(&batch.to_le_bytes());
        value.extend_from_slice(&index.to_le_bytes());
        while (value.len() as u64) < length {
            value.extend_from_slice(&dice.roll(u64::MAX).to_le_bytes());
        }
        value.into()
    }

    /// What a stored value says it is, if it is that, whole.
    pub(crate) fn recognise(&self, value: &[u8]) -> Option<(u64, u64)> {
        let (batch, rest) = value.split_first_chunk::<8>()?;
        let (index, _) = rest.split_first_chunk::<8>()?;
        let at = (u64::from_le_bytes(*batch), u64::from_le_bytes(*index));
        (self.value(at) == value).then_some(at)
    }
}

/// What the rows may hold after a power failure: what was synced, or anything that was under way.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    synced: BTreeMap<Place, Contents>,
    upto: u64,
}

impl Expected {
    /// The last batch that was synced.
    pub(crate) const fn synced_upto(&self) -> u64 {
        self.upto
    }

    /// Everything up to this batch was synced.
    pub(crate) fn sync(&mut self, workload: &Workload, upto: u64) {
        for batch in self.upto + 1..=upto {
            self.synced.extend(workload.rows(batch));
        }
        self.upto = self.upto.max(upto);
    }

    /// Every row that there may be, with everything that it may hold.
    pub(crate) fn allowed(&self, workload: &Workload) -> BTreeMap<Place, BTreeSet<Contents>> {
        let mut allowed: BTreeMap<Place, BTreeSet<Contents>> =
            self.synced.iter().map(|(place, contents)| (place.clone(), BTreeSet::from([*contents]))).collect();
        // The next sync but one cannot have been reached.
        let mut syncs = 0;
        let mut batch = self.upto;
        while syncs < 2 {
            batch += 1;
            for (place, contents) in workload.rows(batch) {
                allowed.entry(place).or_insert_with(|| BTreeSet::from([None])).insert(contents);
            }
            syncs += u32::from(workload.is_synced(batch));
        }
        allowed
    }
}
