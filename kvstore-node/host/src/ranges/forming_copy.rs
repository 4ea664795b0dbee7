//! Forming of a copy of a new partition, in small steps, so that the engine's writer can do other work in between.

use crate::ranges::form::FormJob;
use archon_kv::engine::{Change, Engine, EngineError, PageLimit, Row};
use archon_kv::row;
use archon_replica::Position;
use archon_types::{KeyRange, PlacementId, ScanOrder};
use bytes::Bytes;
use std::ops::Bound;

/// A copy being formed. Its space is cleared, then it gets the user rows of the range while the source keeps serving:
/// writes to keys already copied are mirrored. Once the end is known it gets the same own rows as a pulled copy: log
/// time and position. Nothing else of the source is copied, in particular no client records. After a crash, forming
/// starts over.
#[derive(Clone, Debug)]
pub struct FormingCopy {
    job: FormJob,
    stage: Stage,
    end: Option<Position>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// The space is being cleared.
    Emptying,
    /// The space is empty.
    Empty,
    /// Rows between the two bounds are still to be copied. The upper bound was the last row when copying began: later
    /// rows beyond it are mirrored at once, so that copying need not chase a writer that appends in key order.
    Copying(Bound<Bytes>, Bytes),
    /// Every row is copied.
    Mirroring,
    /// Everything is written.
    Written,
}

/// Result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormStep {
    /// Bytes of keys and values written.
    pub bytes: usize,
    /// Part completed by this step; effective once the engine has flushed it.
    pub done: Option<FormedPart>,
}

/// Milestone of a copy being formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormedPart {
    /// All rows are there; writes to the source are mirrored.
    Rows,
    /// The whole copy.
    Copy,
}

impl FormingCopy {
    /// Starts a job.
    pub const fn new(job: FormJob) -> Self {
        Self { job, stage: Stage::Emptying, end: None }
    }

    /// Returns the job.
    pub const fn job(&self) -> &FormJob {
        &self.job
    }

    /// Sets the end: the source gave the keys up there, and the new log continues from it. The engine must hold
    /// everything of the source up to `end`.
    pub const fn end_at(&mut self, end: Position) {
        self.end = Some(end);
    }

    /// Returns the space whose rows the next step reads: the damaged one if the step finds damage.
    pub const fn at_work_in(&self) -> PlacementId {
        match self.stage {
            Stage::Emptying => self.job.to,
            Stage::Empty | Stage::Copying(..) | Stage::Mirroring | Stage::Written => self.job.from,
        }
    }

    /// Returns whether everything is written.
    pub const fn is_written(&self) -> bool {
        matches!(self.stage, Stage::Written)
    }

    /// Returns whether every row was copied, so that it only mirrors the source until its end is known.
    pub const fn is_mirroring(&self) -> bool {
        matches!(self.stage, Stage::Mirroring)
    }

    /// Returns whether its end is known: the split waits for it then.
    pub const fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Returns whether the next step would do anything.
    pub const fn has_step(&self) -> bool {
        match self.stage {
            Stage::Emptying | Stage::Empty | Stage::Copying(..) => true,
            Stage::Mirroring => self.end.is_some(),
            Stage::Written => false,
        }
    }

    /// Returns whether clearing these keys of a space removes source rows: then forming must be abandoned.
    pub fn is_spoilt_by(&self, space: PlacementId, keys: &KeyRange) -> bool {
        self.job.from == space && keys.overlaps(&self.job.range)
    }

    /// Returns the change that mirrors this change of the source. Keys not copied yet need none.
    pub fn mirrored(&self, change: &Change) -> Option<Change> {
        let copied = match &self.stage {
            Stage::Emptying | Stage::Empty | Stage::Written => false,
            Stage::Copying(Bound::Excluded(last), end) => change.key <= *last || change.key >= *end,
            Stage::Copying(Bound::Included(_) | Bound::Unbounded, end) => change.key >= *end,
            Stage::Mirroring => true,
        };
        if !copied || change.space != self.job.from {
            return None;
        }
        let (begin, end) = row::value_bounds(&self.job.range);
        (begin <= change.key && change.key < end).then(|| Change { space: self.job.to, ..change.clone() })
    }

    /// Clears up to `clear_rows` rows, or writes a page of `limit`.
    ///
    /// # Errors
    /// [`EngineError`] as for [`Engine::write`].
    pub fn step(&mut self, engine: &dyn Engine, clear_rows: usize, limit: PageLimit) -> Result<FormStep, EngineError> {
        let (begin, _) = row::value_bounds(&self.job.range);
        let mut bytes = 0;
        self.stage = match std::mem::replace(&mut self.stage, Stage::Written) {
            Stage::Emptying => match engine.clear(self.job.to, clear_rows)?.done {
                true => Stage::Empty,
                false => Stage::Emptying,
            },
            Stage::Empty => match self.last_row(engine)? {
                Some(last) => Stage::Copying(Bound::Included(begin), row::just_after(&last)),
                None => Stage::Mirroring,
            },
            Stage::Copying(from, end) => {
                let keys = (from.as_ref().map(|key| &key[..]), Bound::Excluded(&end[..]));
                let page = engine.page(self.job.from, keys, ScanOrder::Ascending, limit)?;
                let next = page.rows.last().filter(|_| page.more).map(|row| Bound::Excluded(row.key.clone()));
                bytes = self.write(engine, page.rows)?;
                next.map_or(Stage::Mirroring, |next| Stage::Copying(next, end))
            }
            Stage::Mirroring => match self.end {
                Some(end) => {
                    bytes = self.write(engine, self.own_rows(engine, end)?)?;
                    Stage::Written
                }
                None => Stage::Mirroring,
            },
            Stage::Written => Stage::Written,
        };
        let done = match self.stage {
            Stage::Mirroring => Some(FormedPart::Rows),
            Stage::Written => Some(FormedPart::Copy),
            Stage::Emptying | Stage::Empty | Stage::Copying(..) => None,
        };
        Ok(FormStep { bytes, done })
    }

    /// Returns the key of the last user row to copy.
    fn last_row(&self, engine: &dyn Engine) -> Result<Option<Bytes>, EngineError> {
        let (begin, end) = row::value_bounds(&self.job.range);
        let keys = (Bound::Included(&begin[..]), Bound::Excluded(&end[..]));
        let limit = PageLimit { rows_max: 1, bytes_max: usize::MAX };
        let page = engine.page(self.job.from, keys, ScanOrder::Descending, limit)?;
        Ok(page.rows.into_iter().next().map(|row| row.key))
    }

    /// Returns the copy's own rows, written last: before them the space belongs to no copy.
    fn own_rows(&self, engine: &dyn Engine, end: Position) -> Result<Vec<Row>, EngineError> {
        let time = engine.get(self.job.from, row::LOG_TIME_KEY)?;
        let mut rows: Vec<Row> =
            time.map(|value| Row { key: Bytes::from_static(row::LOG_TIME_KEY), value }).into_iter().collect();
        let merged = engine.get(self.job.from, row::MERGED_KEY)?; // Revisions continue from there.
        rows.extend(merged.map(|value| Row { key: Bytes::from_static(row::MERGED_KEY), value }));
        let expiring = engine.get(self.job.from, row::EXPIRING_KEY)?; // Values that expire go on to do so.
        rows.extend(expiring.map(|value| Row { key: Bytes::from_static(row::EXPIRING_KEY), value }));
        row::note_copied(&mut rows, end.seq);
        Ok(rows)
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
    use proptest::prelude::*;

    const FROM: PlacementId = PlacementId::new(1);
    const TO: PlacementId = PlacementId::new(2);

    fn job(begin: &'static [u8], end: Option<&'static [u8]>) -> FormJob {
        let range = KeyRange { begin: Bytes::from_static(begin), end: end.map(Bytes::from_static) };
        FormJob { attempt: 7, from: FROM, to: TO, range }
    }

    fn put(engine: &MemoryEngine, space: PlacementId, key: Bytes, value: &[u8]) {
        engine.write(&[Change { space, key, value: Some(Bytes::copy_from_slice(value)) }]).unwrap();
    }

    fn all(engine: &MemoryEngine, space: PlacementId) -> Vec<(Bytes, Bytes)> {
        let keys = (Bound::Unbounded, Bound::Unbounded);
        let page = engine.page(space, keys, ScanOrder::Ascending, PageLimit::bytes(usize::MAX)).unwrap();
        page.rows.into_iter().map(|row| (row.key, row.value)).collect()
    }

    /// Every kind of row of a partition that is split, and remains of an earlier attempt.
    fn engine() -> MemoryEngine {
        let engine = MemoryEngine::new();
        for number in 0..100_u8 {
            put(&engine, FROM, row::value_key(&[number]), &[number; 10]);
        }
        let client = ClientId::new(uuid::Uuid::from_u128(5));
        put(&engine, FROM, row::client_key(client), b"window");
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

    /// A range, and the numbers of the rows in it.
    type RangeRows = (&'static [u8], Option<&'static [u8]>, std::ops::Range<u8>);

    const END: Position = Position::new(Epoch::new(2), Seq::new(40));
    const LIMIT: PageLimit = PageLimit { rows_max: 7, bytes_max: usize::MAX };

    /// Runs all steps; returns their count and the bytes written.
    fn steps(forming: &mut FormingCopy, engine: &MemoryEngine) -> (usize, usize) {
        let (mut steps, mut bytes) = (0, 0);
        while forming.has_step() {
            let step = forming.step(engine, 4, LIMIT).unwrap();
            (steps, bytes) = (steps + 1, bytes + step.bytes);
            assert_eq!(step.done == Some(FormedPart::Rows), forming.is_mirroring());
            assert_eq!(step.done == Some(FormedPart::Copy), forming.is_written());
            let position = engine.get(TO, row::POSITION_KEY).unwrap();
            let may_be = forming.is_written() || forming.stage == Stage::Emptying;
            assert!(may_be || position.is_none(), "it is not formed yet");
        }
        (steps, bytes)
    }

    #[test]
    fn formed_copy_gets_only_user_rows_of_range_and_own_rows() {
        let ranges: [RangeRows; 4] =
            [(&[30], Some(&[60]), 30..60), (&[95], None, 95..100), (b"", Some(&[1]), 0..1), (&[200], None, 0..0)];
        for (begin, end, numbers) in ranges {
            let engine = engine();
            let before = all(&engine, FROM);
            let mut forming = FormingCopy::new(job(begin, end));
            let copied = steps(&mut forming, &engine);
            assert_eq!(copied.0, 4 + numbers.len().div_ceil(7), "each of a few rows");
            assert!(forming.is_mirroring() && !forming.has_step(), "it waits for its end");
            forming.end_at(END);
            let ended = steps(&mut forming, &engine);
            assert_eq!(ended.0, 1);
            let mut expected: Vec<_> =
                numbers.map(|number| (row::value_key(&[number]), Bytes::from(vec![number; 10]))).collect();
            expected.push((Bytes::from_static(row::POSITION_KEY), row::encode_position(Seq::new(40))));
            expected.push((Bytes::from_static(row::LOG_TIME_KEY), row::encode_millis(Millis::new(9))));
            assert_eq!(all(&engine, TO), expected);
            assert_eq!(copied.1 + ended.1, expected.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>());
            assert_eq!(all(&engine, FROM), before);
        }
    }

    #[test]
    fn interrupted_forming_starts_over() {
        for interrupted in 0..10 {
            let engine = engine();
            let rows = all(&engine, FROM).into_iter().filter(|(key, _)| key[0] == row::KIND_VALUE && key[1] >= 30);
            let rows: Vec<_> = rows.filter(|(key, _)| key[1] < 60).collect();
            let new = || FormingCopy::new(job(&[30], Some(&[60])));
            let mut first = new();
            first.end_at(END);
            for _ in 0..interrupted {
                first.step(&engine, 4, LIMIT).unwrap();
            }
            let mut again = new();
            again.end_at(END);
            steps(&mut again, &engine);
            assert!(again.is_written());
            assert_eq!(all(&engine, TO)[..30], rows, "after {interrupted} steps");
            assert_eq!(all(&engine, TO).len(), 32);
        }
    }

    /// An action on the source or the copy.
    #[derive(Clone, Debug)]
    enum Event {
        Put(u8, u8),
        Remove(u8),
        Step,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => (0..100_u8, any::<u8>()).prop_map(|(key, value)| Event::Put(key, value)),
            2 => (0..100_u8).prop_map(Event::Remove),
            3 => Just(Event::Step),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        /// Writes go to the source at any time, mirrored to the copy. At the end the copy has the rows that the source
        /// has then, and later writes are not mirrored.
        #[test]
        fn formed_copy_has_writes_made_meanwhile(events in proptest::collection::vec(event(), 1..80), ends in 0..80_usize) {
            let engine = engine();
            let mut forming = FormingCopy::new(job(&[30], Some(&[60])));
            let write = |forming: &FormingCopy, key: u8, value: Option<Bytes>| {
                let change = Change { space: FROM, key: row::value_key(&[key]), value };
                let follows = forming.mirrored(&change);
                engine.write(&[change]).unwrap();
                engine.write(&follows.into_iter().collect::<Vec<_>>()).unwrap();
            };
            for (at, event) in events.iter().enumerate() {
                if at == ends {
                    break;
                }
                match event {
                    Event::Put(key, value) => write(&forming, *key, Some(Bytes::from(vec![*value; 3]))),
                    Event::Remove(key) => write(&forming, *key, None),
                    Event::Step if forming.has_step() => drop(forming.step(&engine, 4, LIMIT).unwrap()),
                    Event::Step => {}
                }
            }
            forming.end_at(END);
            let wanted: Vec<_> = all(&engine, FROM)
                .into_iter()
                .filter(|(key, _)| key[0] == row::KIND_VALUE && (30..60).contains(&key[1]))
                .collect();
            steps(&mut forming, &engine);
            prop_assert_eq!(&all(&engine, TO)[..wanted.len()], &wanted[..]);
            prop_assert_eq!(all(&engine, TO).len(), wanted.len() + 2);
            write(&forming, 40, Some(Bytes::from_static(b"later")));
            prop_assert_eq!(&all(&engine, TO)[..wanted.len()], &wanted[..]);
        }
    }

    /// A time series: each row comes after all others.
    #[test]
    fn forming_ends_despite_append_only_writer() {
        let engine = engine();
        let mut forming = FormingCopy::new(job(&[40], None));
        let mut number = 100;
        while forming.has_step() {
            forming.step(&engine, 4, PageLimit { rows_max: 1, bytes_max: usize::MAX }).unwrap();
            for _ in 0..2 {
                let change =
                    Change { space: FROM, key: row::value_key(&[number]), value: Some(Bytes::from_static(b"new")) };
                let follows = forming.mirrored(&change);
                engine.write(&[change]).unwrap();
                engine.write(&follows.into_iter().collect::<Vec<_>>()).unwrap();
                number = number.checked_add(1).expect("it has ended by now");
            }
        }
        let rows = |space| {
            all(&engine, space)
                .into_iter()
                .filter(|(key, _)| *key >= row::value_key(&[40]) && key[0] == row::KIND_VALUE)
                .collect::<Vec<_>>()
        };
        assert!(forming.is_mirroring() && rows(FROM).len() > 100);
        assert_eq!(rows(TO), rows(FROM));
    }

    #[test]
    fn forming_is_spoilt_by_clearing_source_keys() {
        let forming = FormingCopy::new(job(&[30], Some(&[60])));
        let keys = |begin: &'static [u8], end: Option<&'static [u8]>| job(begin, end).range;
        assert!(forming.is_spoilt_by(FROM, &KeyRange::ALL) && forming.is_spoilt_by(FROM, &keys(&[59], None)));
        assert!(
            !forming.is_spoilt_by(FROM, &keys(&[60], None)) && !forming.is_spoilt_by(FROM, &keys(b"", Some(&[30])))
        );
        assert!(!forming.is_spoilt_by(TO, &KeyRange::ALL));
    }
}
