//! Promise X (`docs/design/architecture.md`): each operation takes effect at most once. One with an id is recognized by the
//! record in its effect; operations without an id take effect at most as often as they were sent.

use crate::check::violation::Violation;
use crate::client::keys::is_counted;
use archon_kv::row::{KIND_VALUE, decode_value};
use archon_kv::{Effect, MergeRecord, Record};
use archon_types::{ClientId, KeyRange, Op, OpId, Seq};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Positions at which operations took effect.
#[derive(Debug, Default)]
pub(super) struct EffectPositions {
    /// Changes sent to this partition, by client and id.
    sent: BTreeMap<(ClientId, u64), Change>,
    /// Their positions of effect.
    numbered: BTreeMap<(ClientId, u64), Seq>,
    /// Values that were put: each stands for one operation, under any ids.
    put: BTreeSet<(Bytes, Bytes)>,
    /// Number of sends of a change without an id that have not taken effect.
    unnumbered: BTreeMap<Change, u64>,
    /// Total number of their sends.
    unnumbered_sent: BTreeMap<Change, u64>,
}

/// Effect of a write on a key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Change {
    /// A value that no other operation writes.
    Put(Bytes, Bytes),
    /// Adds to a counter; values repeat, so they are not compared.
    Count(Bytes),
    Delete(Bytes),
    /// Writes of a transaction, all or none: the value of each key, or none.
    Several(Vec<(Bytes, Option<Bytes>)>),
}

impl Change {
    /// Returns `None` for a read.
    fn of(op: &Op) -> Option<Self> {
        Some(match op {
            Op::Put { key, value } | Op::CompareAndSet { key, value, .. } | Op::PutExpiring { key, value, .. } => {
                Self::Put(key.clone(), value.clone())
            }
            Op::Increment { key, .. } => Self::Count(key.clone()),
            Op::Delete { key } => Self::Delete(key.clone()),
            Op::Transaction(transaction) => {
                let value = |change: &archon_types::Change| match change {
                    archon_types::Change::Put { value, .. } => Some(value.clone()),
                    archon_types::Change::Delete => None,
                };
                let writes = transaction.writes().iter();
                Self::Several(writes.map(|write| (write.key.clone(), value(&write.change))).collect())
            }
            Op::Get { .. } | Op::Scan { .. } | Op::GetMany(_) => return None,
        })
    }

    /// Returns true if the change can have left this value under this key.
    fn fits(&self, at: &Bytes, left: Option<&Bytes>) -> bool {
        match self {
            Self::Put(key, value) => key == at && left == Some(value),
            Self::Count(key) => key == at && left.is_some(),
            Self::Delete(key) => key == at && left.is_none(),
            Self::Several(writes) => writes.iter().any(|(key, value)| key == at && left == value.as_ref()),
        }
    }

    /// Returns true if changes of these keys are all of the change. A delete of an absent key needs none.
    fn is_whole(&self, keys: &BTreeSet<Bytes>) -> bool {
        match self {
            Self::Several(writes) => {
                keys.is_empty() || writes.iter().all(|(key, value)| value.is_none() || keys.contains(key))
            }
            _ => true,
        }
    }
}

impl EffectPositions {
    /// Records a write without an id.
    pub(super) fn sent_unnumbered(&mut self, op: &Op) {
        if let Some(change) = Change::of(op) {
            *self.unnumbered.entry(change.clone()).or_default() += 1;
            *self.unnumbered_sent.entry(change).or_default() += 1;
        }
    }

    /// Returns the same sends without effects: for a history replayed from its beginning.
    pub(super) fn without_effects(&self) -> Self {
        let (sent, unnumbered_sent) = (self.sent.clone(), self.unnumbered_sent.clone());
        Self { sent, unnumbered: unnumbered_sent.clone(), unnumbered_sent, ..Self::default() }
    }

    /// Returns the values put under these keys: everything that a split-off partition knows of earlier operations.
    pub(super) fn of_keys(&self, keys: &KeyRange) -> Self {
        let put = self.put.iter().filter(|(key, _)| keys.contains(key)).cloned().collect();
        Self { put, ..Self::default() }
    }

    /// Adds the values put under keys of another partition.
    pub(super) fn absorb(&mut self, other: Self) {
        self.put.extend(other.put);
    }

    /// Records a write with this id, first or repeated.
    pub(super) fn sent_numbered(&mut self, id: OpId, op: &Op) {
        if let Some(change) = Change::of(op) {
            self.sent.insert((id.client, id.number), change);
        }
    }

    /// Returns where the operation with this id took effect.
    pub(super) fn position_of(&self, client: ClientId, number: u64) -> Option<Seq> {
        self.numbered.get(&(client, number)).copied()
    }

    /// Checks a committed effect. Returns the client and number of its record. Keys that have expired by its log time may
    /// be removed by any entry.
    pub(super) fn take(
        &mut self,
        at: Seq,
        effect: &Effect,
        has_expired: impl Fn(&Bytes) -> bool,
    ) -> Result<Option<(ClientId, u64)>, Violation> {
        let mut remembered = None;
        let mut whose = None;
        if let Some(Record { client, number, .. }) = effect.record {
            remembered = Some((client, number));
            whose = self.sent.get(&(client, number)).cloned();
            if whose.is_none() {
                let detail = format!("the effect at {at} is operation {number} of {client}, which was not sent here");
                return Err(Violation::Twice { detail });
            }
            if let Some(before) = self.numbered.insert((client, number), at) {
                let detail = format!("operation {number} of {client} took effect at {before} and again at {at}");
                return Err(Violation::Twice { detail });
            }
        }
        let mut changed = BTreeSet::new();
        for change in effect.changes.iter().filter(|change| change.key.first() == Some(&KIND_VALUE)) {
            let key = change.key.slice(1..);
            let value = change.value.as_ref().and_then(|row| decode_value(row).ok()).map(|(value, _)| value);
            if value.is_none() && has_expired(&key) {
                continue;
            }
            if remembered.is_none() {
                self.take_unnumbered(at, &key, value.as_ref())?;
            } else if whose.as_ref().is_some_and(|change| !change.fits(&key, value.as_ref())) {
                let detail =
                    format!("the effect at {at} makes {key:?} {value:?}, which is not what was sent: {whose:?}");
                return Err(Violation::Twice { detail });
            }
            changed.insert(key.clone());
            if let Some(value) = value.filter(|_| !is_counted(&key))
                && !self.put.insert((key, value.clone()))
            {
                let detail = format!("the effect at {at} writes {value:?} once more, which one operation does");
                return Err(Violation::Twice { detail });
            }
        }
        if whose.as_ref().is_some_and(|change| !change.is_whole(&changed)) {
            let detail = format!("the effect at {at} changes {changed:?}, which is a part of {whose:?}");
            return Err(Violation::Twice { detail });
        }
        Ok(remembered)
    }

    fn take_unnumbered(&mut self, at: Seq, key: &Bytes, value: Option<&Bytes>) -> Result<(), Violation> {
        let changes = match value {
            None => [Some(Change::Delete(key.clone())), None],
            Some(value) => [Some(Change::Put(key.clone(), value.clone())), Some(Change::Count(key.clone()))],
        };
        for change in changes.into_iter().flatten() {
            if let Some(left) = self.unnumbered.get_mut(&change).filter(|left| **left > 0) {
                *left -= 1;
                return Ok(());
            }
        }
        let detail = format!("the effect at {at} on {key:?} is nobody's, or more often than it was sent: {value:?}");
        Err(Violation::Twice { detail })
    }
}

/// Returns the completed merge that an entry records.
pub(crate) fn merged_in(effect: &Effect) -> Option<MergeRecord> {
    let row = effect.changes.iter().find(|row| row.key == archon_kv::row::MERGED_KEY)?;
    MergeRecord::decode(row.value.as_ref()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::keys::COUNTED;
    use archon_kv::RowChange;
    use archon_kv::row::{encode_value, value_key};
    use archon_types::{Millis, Revision};

    fn effect(value: Option<&str>) -> Effect {
        effect_on(b"k", value)
    }

    fn effect_on(key: &[u8], value: Option<&str>) -> Effect {
        let row = value.map(|value| encode_value(Revision::new(1), value.as_bytes()));
        Effect::new(Millis::ZERO, vec![RowChange { key: value_key(key), value: row }])
    }

    #[test]
    fn unnumbered_write_takes_effect_once_per_send() {
        let key = Bytes::from_static(COUNTED);
        for (op, value) in [(Op::Increment { key: key.clone(), by: 1 }, Some("7")), (Op::Delete { key }, None)] {
            let (mut applied, effect) = (EffectPositions::default(), effect_on(COUNTED, value));
            assert!(applied.take(Seq::new(1), &effect, |_| false).is_err(), "{op:?} was not sent");
            applied.sent_unnumbered(&op);
            assert_eq!(applied.take(Seq::new(1), &effect, |_| false), Ok(None));
            assert!(applied.take(Seq::new(2), &effect, |_| false).is_err(), "{op:?} was sent once");
            applied.sent_unnumbered(&op);
            assert_eq!(applied.take(Seq::new(2), &effect, |_| false), Ok(None));
        }
    }

    #[test]
    fn value_is_put_once_under_any_numbers() {
        let mut applied = EffectPositions::default();
        let put = Op::Put { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") };
        (0..2).for_each(|_| applied.sent_unnumbered(&put));
        assert_eq!(applied.take(Seq::new(1), &effect(Some("v")), |_| false), Ok(None));
        assert!(applied.take(Seq::new(2), &effect(Some("v")), |_| false).is_err());
    }

    #[test]
    fn effect_without_a_send_is_reported() {
        let mut applied = EffectPositions::default();
        applied.sent_unnumbered(&Op::Put { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") });
        assert!(applied.take(Seq::new(1), &effect(Some("w")), |_| false).is_err());
        assert!(applied.take(Seq::new(1), &effect(None), |_| false).is_err());
        assert_eq!(applied.take(Seq::new(1), &Effect::new(Millis::ZERO, vec![]), |_| false), Ok(None));
    }
}
