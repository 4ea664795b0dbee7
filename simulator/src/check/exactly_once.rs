//! X: each operation takes effect at most once, and whatever took effect is remembered: by the record of its name, or, where
//! it has none, because it was sent that often.

use super::Violation;
use crate::client::COUNTED;
use archon_kv::Effect;
use archon_kv::row::{KIND_CLIENT, KIND_VALUE, decode_client_key, decode_value};
use archon_types::{ClientId, Op, OpId, Seq};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Where each operation took effect.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// What was sent to this partition under each name.
    sent: BTreeMap<(ClientId, u64), Change>,
    named: BTreeMap<(ClientId, u64), Seq>,
    /// Values that somebody put: each stands for one operation, whatever numbers its attempts had.
    put: BTreeSet<(Bytes, Bytes)>,
    /// How often a change was sent without a name and has not taken effect.
    unnamed: BTreeMap<Change, u64>,
    /// How often it was sent so at all.
    unnamed_sent: BTreeMap<Change, u64>,
}

/// What tells writes without a name from each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Change {
    /// A value, which no other operation writes.
    Put(Bytes, Bytes),
    /// One more; values repeat.
    Count(Bytes),
    Delete(Bytes),
}

impl Change {
    /// What a write does; a read does nothing.
    fn of(op: &Op) -> Option<Self> {
        Some(match op {
            Op::Put { key, value } | Op::CompareAndSet { key, value, .. } => Self::Put(key.clone(), value.clone()),
            Op::Increment { key, .. } => Self::Count(key.clone()),
            Op::Delete { key } => Self::Delete(key.clone()),
            Op::Get { .. } | Op::Scan { .. } => return None,
        })
    }

    /// Whether a row of this key and value can be what it left.
    fn fits(&self, at: &Bytes, left: Option<&Bytes>) -> bool {
        match self {
            Self::Put(key, value) => key == at && left == Some(value),
            Self::Count(key) => key == at && left.is_some(),
            Self::Delete(key) => key == at && left.is_none(),
        }
    }
}

impl Applied {
    /// A write without a name is sent, once more.
    pub(super) fn sent(&mut self, op: &Op) {
        if let Some(change) = Change::of(op) {
            *self.unnamed.entry(change.clone()).or_default() += 1;
            *self.unnamed_sent.entry(change).or_default() += 1;
        }
    }

    /// Everything was sent, and nothing has taken effect.
    pub(super) fn anew(&self) -> Self {
        let (sent, unnamed_sent) = (self.sent.clone(), self.unnamed_sent.clone());
        Self { sent, unnamed: unnamed_sent.clone(), unnamed_sent, ..Self::default() }
    }

    /// A write of this name is sent, perhaps once more.
    pub(super) fn sent_named(&mut self, id: OpId, op: &Op) {
        if let Some(change) = Change::of(op) {
            self.sent.insert((id.client, id.number), change);
        }
    }

    /// Where the operation of this name took effect.
    pub(super) fn position_of(&self, client: ClientId, number: u64) -> Option<Seq> {
        self.named.get(&(client, number)).copied()
    }

    /// An effect was committed. Returns whether it says whose it is.
    pub(super) fn take(&mut self, at: Seq, effect: &Effect) -> Result<bool, Violation> {
        let mut remembered = false;
        let mut whose = None;
        for change in effect.changes.iter().filter(|change| change.key.first() == Some(&KIND_CLIENT)) {
            let Ok((client, Some(number))) = decode_client_key(&change.key) else { continue };
            if change.value.is_none() {
                continue;
            }
            remembered = true;
            whose = self.sent.get(&(client, number)).cloned();
            if whose.is_none() {
                let detail = format!("the effect at {at} is operation {number} of {client}, which was not sent here");
                return Err(Violation::Twice { detail });
            }
            if let Some(before) = self.named.insert((client, number), at) {
                let detail = format!("operation {number} of {client} took effect at {before} and again at {at}");
                return Err(Violation::Twice { detail });
            }
        }
        for change in effect.changes.iter().filter(|change| change.key.first() == Some(&KIND_VALUE)) {
            let key = change.key.slice(1..);
            let value = change.value.as_ref().and_then(|row| decode_value(row).ok()).map(|(value, _)| value);
            if !remembered {
                self.take_unnamed(at, &key, value.as_ref())?;
            } else if whose.as_ref().is_some_and(|change| !change.fits(&key, value.as_ref())) {
                let detail =
                    format!("the effect at {at} makes {key:?} {value:?}, which is not what was sent: {whose:?}");
                return Err(Violation::Twice { detail });
            }
            if let Some(value) = value.filter(|_| key != COUNTED)
                && !self.put.insert((key, value.clone()))
            {
                let detail = format!("the effect at {at} writes {value:?} once more, which one operation does");
                return Err(Violation::Twice { detail });
            }
        }
        Ok(remembered)
    }

    fn take_unnamed(&mut self, at: Seq, key: &Bytes, value: Option<&Bytes>) -> Result<(), Violation> {
        let changes = match value {
            None => [Some(Change::Delete(key.clone())), None],
            Some(value) => [Some(Change::Put(key.clone(), value.clone())), Some(Change::Count(key.clone()))],
        };
        for change in changes.into_iter().flatten() {
            if let Some(left) = self.unnamed.get_mut(&change).filter(|left| **left > 0) {
                *left -= 1;
                return Ok(());
            }
        }
        let detail = format!("the effect at {at} on {key:?} is nobody's, or more often than it was sent: {value:?}");
        Err(Violation::Twice { detail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_kv::RowChange;
    use archon_kv::row::{encode_value, value_key};
    use archon_types::{Millis, Revision};

    fn effect(value: Option<&str>) -> Effect {
        effect_on(b"k", value)
    }

    fn effect_on(key: &[u8], value: Option<&str>) -> Effect {
        let row = value.map(|value| encode_value(Revision::new(1), value.as_bytes()));
        Effect { at: Millis::ZERO, changes: vec![RowChange { key: value_key(key), value: row }] }
    }

    #[test]
    fn what_was_sent_once_without_a_name_takes_effect_once() {
        let key = Bytes::from_static(COUNTED);
        for (op, value) in [(Op::Increment { key: key.clone(), by: 1 }, Some("7")), (Op::Delete { key }, None)] {
            let (mut applied, effect) = (Applied::default(), effect_on(COUNTED, value));
            assert!(applied.take(Seq::new(1), &effect).is_err(), "{op:?} was not sent");
            applied.sent(&op);
            assert_eq!(applied.take(Seq::new(1), &effect), Ok(false));
            assert!(applied.take(Seq::new(2), &effect).is_err(), "{op:?} was sent once");
            applied.sent(&op);
            assert_eq!(applied.take(Seq::new(2), &effect), Ok(false));
        }
    }

    #[test]
    fn what_one_operation_puts_is_put_once_whatever_its_numbers() {
        let mut applied = Applied::default();
        let put = Op::Put { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") };
        (0..2).for_each(|_| applied.sent(&put));
        assert_eq!(applied.take(Seq::new(1), &effect(Some("v"))), Ok(false));
        assert!(applied.take(Seq::new(2), &effect(Some("v"))).is_err());
    }

    #[test]
    fn an_effect_that_nobody_sent_shows() {
        let mut applied = Applied::default();
        applied.sent(&Op::Put { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") });
        assert!(applied.take(Seq::new(1), &effect(Some("w"))).is_err());
        assert!(applied.take(Seq::new(1), &effect(None)).is_err());
        assert_eq!(applied.take(Seq::new(1), &Effect { at: Millis::ZERO, changes: vec![] }), Ok(false));
    }
}
