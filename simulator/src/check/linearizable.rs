//! L: each key is linearizable.
//!
//! The committed log gives the order of all writes, and every answer names the revision, which is the position, that it
//! made or saw. So the check is incremental and exact: take the committed writes of a key in order of position, and each
//! read right after the write it saw. That order explains every answer if and only if no operation saw or made an older
//! position than one that was over before it began (a write: an older or the same). For each key the highest position of
//! any finished operation is kept, and each operation carries what it was at its beginning.

use super::Violation;
use archon_kv::Effect;
use archon_kv::row::{KIND_VALUE, decode_value};
use archon_types::{Revision, Seq};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What is known of the keys of one partition.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// What was written at each position.
    written: BTreeMap<u64, (Bytes, Bytes)>,
    /// The highest position that a finished operation on a key made or saw.
    floors: BTreeMap<Bytes, u64>,
}

impl History {
    pub(super) fn committed(&mut self, at: Seq, effect: &Effect) -> Result<(), Violation> {
        for change in effect.changes.iter().filter(|change| change.key.first() == Some(&KIND_VALUE)) {
            let Some(row) = &change.value else { continue };
            let (value, revision) =
                decode_value(row).map_err(|error| Violation::NotLinearizable { detail: error.to_string() })?;
            if revision.get() != at.get() {
                let detail = format!("the value written at {at} says that its revision is {revision}");
                return Err(Violation::NotLinearizable { detail });
            }
            self.written.insert(at.get(), (change.key.slice(1..), value));
        }
        Ok(())
    }

    /// What an operation on `key` that begins now must not fall behind.
    pub(crate) fn floor(&self, key: &Bytes) -> u64 {
        self.floors.get(key).copied().unwrap_or(0)
    }

    /// An operation that began at `floor` is answered: it wrote `value` (any, if `None`) as `revision`.
    pub(crate) fn wrote(
        &mut self,
        key: &Bytes,
        floor: u64,
        revision: Revision,
        value: Option<&Bytes>,
    ) -> Result<(), Violation> {
        if revision.get() <= floor {
            let detail = format!("a write of {key:?} became revision {revision}, but {floor} was seen before it began");
            return Err(Violation::NotLinearizable { detail });
        }
        self.is_there(key, revision, value)?;
        self.finished(key, revision);
        Ok(())
    }

    /// An operation that began at `floor` is answered: it saw `revision`, and perhaps its value. Zero: there was none.
    pub(crate) fn saw(
        &mut self,
        key: &Bytes,
        floor: u64,
        revision: Revision,
        value: Option<&Bytes>,
    ) -> Result<(), Violation> {
        if revision.get() < floor {
            let detail = format!("a read of {key:?} saw revision {revision}, but {floor} was seen before it began");
            return Err(Violation::NotLinearizable { detail });
        }
        if revision > Revision::ZERO {
            self.is_there(key, revision, value)?;
        }
        self.finished(key, revision);
        Ok(())
    }

    fn is_there(&self, key: &Bytes, revision: Revision, value: Option<&Bytes>) -> Result<(), Violation> {
        let found = self.written.get(&revision.get());
        let right = found.is_some_and(|(of, is)| of == key && value.is_none_or(|value| value == is));
        if !right {
            let detail = format!("an answer says that {key:?} is {value:?} at {revision}, committed is {found:?}");
            return Err(Violation::NotLinearizable { detail });
        }
        Ok(())
    }

    fn finished(&mut self, key: &Bytes, revision: Revision) {
        let floor = self.floors.entry(key.clone()).or_default();
        *floor = (*floor).max(revision.get());
    }
}
