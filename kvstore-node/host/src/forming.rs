//! How a copy of a new partition is formed: step by step, so that whoever writes the engine can do other work between.

use crate::form::FormJob;
use archon_kv::engine::{Change, Engine, EngineError, PageLimit, Row};
use archon_kv::row;
use archon_types::{KeyRange, PlacementId, ScanOrder};
use bytes::Bytes;
use std::ops::Bound;

/// A copy that is being formed: its space is emptied, then it gets users' rows of the range, and last the rows that a pulled
/// copy has of its own: log time and position. Nothing else of the source goes along, above all no records of clients. One that
/// a crash interrupted is formed anew.
#[derive(Clone, Debug)]
pub struct Forming {
    job: FormJob,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// What the space held is removed.
    Emptying,
    /// Rows from here on are copied.
    Copying(Bound<Bytes>),
    /// All is written.
    Written,
}

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormStep {
    /// Bytes of keys and values written.
    pub bytes: usize,
    /// Everything is written: once the engine has brought it to the disk, the copy is formed.
    pub written: bool,
}

impl Forming {
    /// A job that begins.
    pub fn new(job: FormJob) -> Self {
        Self { job, stage: Stage::Emptying }
    }

    /// The job.
    pub const fn job(&self) -> &FormJob {
        &self.job
    }

    /// Whether everything is written.
    pub const fn is_written(&self) -> bool {
        matches!(self.stage, Stage::Written)
    }

    /// Whether clearing these keys of a space takes away what is to be copied: then it must be given up.
    pub fn is_spoilt_by(&self, space: PlacementId, keys: &KeyRange) -> bool {
        self.job.from == space && !keys.clone().and(&self.job.range).is_empty()
    }

    /// Removes up to `clear_rows` rows, or writes a page of `limit`.
    ///
    /// # Errors
    /// [`EngineError`] as for [`Engine::write`].
    pub fn step(&mut self, engine: &dyn Engine, clear_rows: usize, limit: PageLimit) -> Result<FormStep, EngineError> {
        let (begin, end) = row::value_bounds(&self.job.range);
        let mut bytes = 0;
        self.stage = match std::mem::replace(&mut self.stage, Stage::Written) {
            Stage::Emptying => match engine.clear(self.job.to, clear_rows)?.done {
                true => Stage::Copying(Bound::Included(begin)),
                false => Stage::Emptying,
            },
            Stage::Copying(from) => {
                let keys = (from.as_ref().map(|key| &key[..]), Bound::Excluded(&end[..]));
                let mut page = engine.page(self.job.from, keys, ScanOrder::Ascending, limit)?;
                let next = page.rows.last().filter(|_| page.more).map(|row| Bound::Excluded(row.key.clone()));
                if next.is_none() {
                    self.add_own(engine, &mut page.rows)?;
                }
                bytes = self.write(engine, page.rows)?;
                next.map_or(Stage::Written, Stage::Copying)
            }
            Stage::Written => Stage::Written,
        };
        Ok(FormStep { bytes, written: self.is_written() })
    }

    /// Rows of a copy's own, written with the last page: before it the space is nobody's.
    fn add_own(&self, engine: &dyn Engine, rows: &mut Vec<Row>) -> Result<(), EngineError> {
        let time = engine.get(self.job.from, row::LOG_TIME_KEY)?;
        rows.extend(time.map(|value| Row { key: Bytes::from_static(row::LOG_TIME_KEY), value }));
        row::note_copied(rows, self.job.at.seq);
        Ok(())
    }

    fn write(&self, engine: &dyn Engine, rows: Vec<Row>) -> Result<usize, EngineError> {
        let bytes = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let change = |Row { key, value }| Change { space: self.job.to, key, value: Some(value) };
        engine.write(&rows.into_iter().map(change).collect::<Vec<_>>())?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_kv::{MemoryEngine, Seal};
    use archon_replica::Position;
    use archon_types::{ClientId, Epoch, Millis, Seq, Version};

    const FROM: PlacementId = PlacementId::new(1);
    const TO: PlacementId = PlacementId::new(2);

    fn job(begin: &'static [u8], end: Option<&'static [u8]>) -> FormJob {
        let range = KeyRange { begin: Bytes::from_static(begin), end: end.map(Bytes::from_static) };
        FormJob { attempt: 7, from: FROM, to: TO, range, at: Position::new(Epoch::new(2), Seq::new(40)) }
    }

    fn put(engine: &MemoryEngine, space: PlacementId, key: Bytes, value: &[u8]) {
        engine.write(&[Change { space, key, value: Some(Bytes::copy_from_slice(value)) }]).unwrap();
    }

    fn all(engine: &MemoryEngine, space: PlacementId) -> Vec<(Bytes, Bytes)> {
        let keys = (Bound::Unbounded, Bound::Unbounded);
        let page = engine.page(space, keys, ScanOrder::Ascending, PageLimit::bytes(usize::MAX)).unwrap();
        page.rows.into_iter().map(|row| (row.key, row.value)).collect()
    }

    /// Every sort of row of a partition that is split, and remains of an earlier attempt.
    fn engine() -> MemoryEngine {
        let engine = MemoryEngine::new();
        for number in 0..100_u8 {
            put(&engine, FROM, row::value_key(&[number]), &[number; 10]);
        }
        let client = ClientId::new(uuid::Uuid::from_u128(5));
        put(&engine, FROM, row::client_outcome_key(client, 1), b"outcome");
        let seal = Seal {
            attempt: Version::new(7),
            at: Bytes::new(),
            end: None,
            position: Position::new(Epoch::new(2), Seq::new(40)),
        };
        put(&engine, FROM, Bytes::from_static(row::SEAL_KEY), &seal.encode());
        put(&engine, FROM, Bytes::from_static(row::LOG_TIME_KEY), &row::encode_millis(Millis::new(9)));
        put(&engine, FROM, Bytes::from_static(row::POSITION_KEY), &row::encode_position(Seq::new(50)));
        (0..10).for_each(|number| put(&engine, TO, row::value_key(&[number]), b"of an earlier attempt"));
        engine
    }

    /// A range, and the numbers of the rows that are in it.
    type Sought = (&'static [u8], Option<&'static [u8]>, std::ops::Range<u8>);

    #[test]
    fn it_gets_users_rows_of_the_range_and_its_own_and_nothing_else() {
        let ranges: [Sought; 4] =
            [(&[30], Some(&[60]), 30..60), (&[95], None, 95..100), (b"", Some(&[1]), 0..1), (&[200], None, 0..0)];
        for (begin, end, numbers) in ranges {
            let engine = engine();
            let before = all(&engine, FROM);
            let mut forming = Forming::new(job(begin, end));
            let limit = PageLimit { rows_max: 7, bytes_max: usize::MAX };
            let (mut steps, mut bytes) = (0, 0);
            loop {
                let step = forming.step(&engine, 4, limit).unwrap();
                (steps, bytes) = (steps + 1, bytes + step.bytes);
                assert_eq!(step.written, forming.is_written());
                assert!(step.written || engine.get(TO, row::POSITION_KEY).unwrap().is_none(), "it is not formed yet");
                if step.written {
                    break;
                }
            }
            assert_eq!(steps, 3 + numbers.len().div_ceil(7).max(1), "each of a few rows");
            let mut expected: Vec<_> =
                numbers.map(|number| (row::value_key(&[number]), Bytes::from(vec![number; 10]))).collect();
            expected.push((Bytes::from_static(row::POSITION_KEY), row::encode_position(Seq::new(40))));
            expected.push((Bytes::from_static(row::LOG_TIME_KEY), row::encode_millis(Millis::new(9))));
            assert_eq!(all(&engine, TO), expected);
            assert_eq!(bytes, expected.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>());
            assert_eq!(all(&engine, FROM), before);
            assert_eq!(forming.step(&engine, 4, limit).unwrap(), FormStep { bytes: 0, written: true });
        }
    }

    #[test]
    fn one_that_was_interrupted_anywhere_is_formed_anew() {
        let limit = PageLimit { rows_max: 7, bytes_max: usize::MAX };
        let formed = |engine: &MemoryEngine, steps: usize| {
            let mut forming = Forming::new(job(&[30], Some(&[60])));
            (0..steps).any(|_| forming.step(engine, 4, limit).unwrap().written)
        };
        for steps in 0..9 {
            let engine = engine();
            let rows = all(&engine, FROM).into_iter().filter(|(key, _)| key[0] == row::KIND_VALUE && key[1] >= 30);
            let rows: Vec<_> = rows.filter(|(key, _)| key[1] < 60).collect();
            formed(&engine, steps);
            assert!(formed(&engine, 100));
            assert_eq!(all(&engine, TO)[..30], rows, "after {steps} steps");
            assert_eq!(all(&engine, TO).len(), 32);
        }
    }

    #[test]
    fn it_is_spoilt_by_whatever_clears_its_keys_at_the_source() {
        let forming = Forming::new(job(&[30], Some(&[60])));
        let keys = |begin: &'static [u8], end: Option<&'static [u8]>| job(begin, end).range;
        assert!(forming.is_spoilt_by(FROM, &KeyRange::ALL) && forming.is_spoilt_by(FROM, &keys(&[59], None)));
        assert!(
            !forming.is_spoilt_by(FROM, &keys(&[60], None)) && !forming.is_spoilt_by(FROM, &keys(b"", Some(&[30])))
        );
        assert!(!forming.is_spoilt_by(TO, &KeyRange::ALL));
    }
}
