//! Rows of a fake cluster, and the answers of its operations.

use archon_proto::convert::kv::TaggedOp;
use archon_types::op::Entry;
use archon_types::{
    Answer, Change, Check, ClientId, KeyRange, Op, OpId, PartitionId, Revision, ScanOrder, StoredValue, Write,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Expired rows after which a scan without entries ends.
const PASSED_MAX: usize = 2;

/// State shared by all nodes of a fake cluster, as if it were replicated.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) rows: BTreeMap<Bytes, (Bytes, Revision)>,
    pub(crate) partitions: HashMap<Bytes, PartitionId>,
    pub(crate) answers: HashMap<(PartitionId, ClientId, u64), Answer>,
    pub(crate) ids: Vec<OpId>,
    /// Keys of rows that have expired: scans pass over a few of them, and end then.
    pub(crate) expired: BTreeSet<Bytes>,
    revision: u64,
}

impl Store {
    pub(super) fn run(&mut self, tagged: &TaggedOp) -> Answer {
        let Some(id) = tagged.id else { return self.apply(&tagged.op, tagged.partition) };
        self.ids.push(id);
        let name = (tagged.partition, id.client, id.number);
        if let Some(answer) = self.answers.get(&name) {
            return answer.clone();
        }
        let answer = self.apply(&tagged.op, tagged.partition);
        self.answers.insert(name, answer.clone());
        answer
    }

    fn write(&mut self, key: &Bytes, value: Bytes, partition: PartitionId) -> Revision {
        self.revision += 1;
        self.partitions.insert(key.clone(), partition);
        self.rows.insert(key.clone(), (value, Revision::new(self.revision)));
        Revision::new(self.revision)
    }

    fn apply(&mut self, op: &Op, partition: PartitionId) -> Answer {
        match op {
            Op::Get { key } => {
                Answer::Value(self.rows.get(key).map(|(value, revision)| StoredValue::new(value.clone(), *revision)))
            }
            Op::Put { key, value } => Answer::Written { revision: self.write(key, value.clone(), partition) },
            Op::Delete { key } => Answer::Deleted { existed: self.rows.remove(key).is_some() },
            // It keeps no time: nothing expires.
            Op::PutExpiring { key, value, expected: None, .. } => {
                Answer::Written { revision: self.write(key, value.clone(), partition) }
            }
            Op::CompareAndSet { key, expected, value }
            | Op::PutExpiring { key, expected: Some(expected), value, .. } => {
                let revision = self.rows.get(key).map_or(Revision::ZERO, |(_, revision)| *revision);
                if revision == *expected {
                    Answer::Written { revision: self.write(key, value.clone(), partition) }
                } else {
                    Answer::ConditionFailed { revision }
                }
            }
            Op::Increment { key, by } => {
                let held = self.rows.get(key).map_or(Ok(0), |(value, _)| {
                    std::str::from_utf8(value).map_err(|_| ()).and_then(|text| text.parse::<i64>().map_err(|_| ()))
                });
                match held.ok().and_then(|held| held.checked_add(*by)) {
                    Some(value) => {
                        Answer::Counter { value, revision: self.write(key, value.to_string().into(), partition) }
                    }
                    None => Answer::NotANumber,
                }
            }
            Op::GetMany(many) => {
                let stored = |(value, revision): &(Bytes, Revision)| StoredValue::new(value.clone(), *revision);
                Answer::Values(many.keys().iter().map(|key| self.rows.get(key).map(stored)).collect())
            }
            Op::Transaction(transaction) => {
                for (check, Check { key, expected }) in (0..).zip(transaction.checks()) {
                    let revision = self.rows.get(key).map_or(Revision::ZERO, |(_, revision)| *revision);
                    if revision != *expected {
                        return Answer::CheckFailed { check, revision };
                    }
                }
                let (mut removed, mut revision) = (0, Revision::ZERO);
                for Write { key, change } in transaction.writes() {
                    match change {
                        Change::Put { value, .. } => revision = self.write(key, value.clone(), partition),
                        Change::Delete => removed += u32::from(self.rows.remove(key).is_some()),
                    }
                }
                Answer::Applied { revision, removed }
            }
            Op::Scan { keys, order, limit } => {
                let mut rows: Vec<_> = self.rows.iter().collect();
                if *order == ScanOrder::Descending {
                    rows.reverse();
                }
                rows.retain(|(key, _)| self.partitions.get(*key) == Some(&partition) && keys.contains(key));
                let passed = rows.iter().take_while(|(key, _)| self.expired.contains(*key)).count();
                if passed > PASSED_MAX && passed < rows.len() {
                    let last = rows[PASSED_MAX].0;
                    let range = match order {
                        ScanOrder::Ascending => KeyRange::ALL.before([last, &[0][..]].concat().into()),
                        ScanOrder::Descending => KeyRange { begin: last.clone(), end: None },
                    };
                    return Answer::Page { entries: Vec::new(), more: true, range };
                }
                let found: Vec<Entry> = rows
                    .into_iter()
                    .filter(|(key, _)| !self.expired.contains(*key))
                    .take(*limit as usize + 1)
                    .map(|(key, (value, revision))| Entry {
                        key: key.clone(),
                        value: value.clone(),
                        revision: *revision,
                        expires: None,
                    })
                    .collect();
                let more = found.len() > *limit as usize;
                Answer::Page { entries: found.into_iter().take(*limit as usize).collect(), more, range: KeyRange::ALL }
            }
        }
    }
}
