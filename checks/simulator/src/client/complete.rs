//! Checks of answers against everything committed.

use crate::check::violation::Violation;
use crate::client::calls;
use crate::client::calls::Call;
use crate::world::World;
use archon_types::{Answer, Epoch, Op, PartitionId, Revision, StoredValue};
use bytes::Bytes;

impl World {
    pub(super) fn complete(&mut self, client: usize, call: &Call, answer: &Answer, (by, epoch): (PartitionId, Epoch)) {
        self.count(call, answer);
        // For a delete with an id, the position of its effect is known.
        let asked = self.checks.of(by);
        self.coverage.answers_given_up += u64::from(asked.is_given_up(epoch));
        let named = call.id.map(|id| asked.led_in(epoch).position_of(id.client, id.number));
        // The current owner of the key has its history.
        let began = call.began;
        let owner = call.op.key().map_or(began.owner, |key| self.checks.owner_of(began.owner, key));
        let floor = self.checks.of(began.owner).floor(&call.floors, epoch);
        let floor = call.op.key().map_or(floor, |key| self.checks.floor_where_done(key, began, floor, by));
        let history = &mut self.checks.of(owner).led_in(epoch).history;
        let checked = match (&call.op, answer) {
            (
                Op::Put { key, value } | Op::CompareAndSet { key, value, .. } | Op::PutExpiring { key, value, .. },
                Answer::Written { revision },
            ) => history.wrote(&call.op, key, floor, *revision, value),
            (
                Op::CompareAndSet { key, .. } | Op::PutExpiring { key, expected: Some(_), .. },
                Answer::ConditionFailed { revision: Revision::ZERO },
            )
            | (Op::Get { key }, Answer::Value(None))
            | (Op::Delete { key }, Answer::Deleted { existed: false }) => history.missed(key, floor),
            (
                Op::CompareAndSet { key, .. } | Op::PutExpiring { key, expected: Some(_), .. },
                Answer::ConditionFailed { revision },
            ) => history.saw(key, floor, *revision, None),
            (Op::Increment { key, .. }, Answer::Counter { value, revision }) => {
                history.wrote(&call.op, key, floor, *revision, &Bytes::from(value.to_string()))
            }
            (Op::Get { key }, Answer::Value(Some(stored))) => {
                history.saw(key, floor, stored.revision, Some(&stored.value))
            }
            (Op::Delete { key }, Answer::Deleted { existed: true }) => history.deleted(key, floor, named),
            (Op::Scan { keys, order, limit }, Answer::Page { entries, more, range }) => {
                let keys = keys.clone().and(range);
                history.listed((&keys, *order, *limit), floor, entries, *more)
            }
            (Op::GetMany(many), Answer::Values(values)) => history.saw_together(many.keys(), floor, values),
            (Op::Transaction(transaction), Answer::Applied { revision, removed }) => {
                history.transacted(transaction, floor, *revision, *removed)
            }
            (Op::Transaction(transaction), Answer::CheckFailed { check, revision }) => {
                match transaction.checks().get(*check as usize).filter(|check| check.expected != *revision) {
                    Some(check) if *revision == Revision::ZERO => history.missed(&check.key, floor),
                    Some(check) => history.saw(&check.key, floor, *revision, None),
                    None => Err(Violation::NotLinearizable { detail: format!("{answer:?} to {transaction:?}") }),
                }
            }
            (op, answer) => Err(Violation::NotLinearizable { detail: format!("{op:?} was answered {answer:?}") }),
        };
        self.judge(checked);
        let dropped = self.checks.dropped.contains_key(&call.partition.table);
        self.coverage.answers_after_drop += u64::from(dropped);
        *self.checks.answered.entry(call.partition).or_default() += 1;
        self.remember(client, call, answer);
    }

    /// Remembers the expectation of a later compare-and-set.
    fn remember(&mut self, client: usize, call: &Call, answer: &Answer) {
        let own = &mut self.clients[client];
        let by_ranges = own.ranges.contains_key(&call.partition.table);
        let mut note = |key: &Bytes, revision: Revision| {
            let at = if by_ranges { calls::seen_at(call.partition, key) } else { (call.partition, key.clone()) };
            own.seen.insert(at, revision);
        };
        match (call.op.key(), answer) {
            (Some(key), Answer::Written { revision } | Answer::ConditionFailed { revision }) => note(key, *revision),
            (Some(key), Answer::Counter { revision, .. } | Answer::Value(Some(StoredValue { revision, .. }))) => {
                note(key, *revision);
            }
            (Some(key), Answer::Applied { revision, .. } | Answer::CheckFailed { revision, .. }) => {
                note(key, *revision)
            }
            (Some(_), Answer::Values(values)) => {
                let Op::GetMany(many) = &call.op else { return };
                let revision =
                    |stored: &Option<StoredValue>| stored.as_ref().map_or(Revision::ZERO, |stored| stored.revision);
                many.keys().iter().zip(values).for_each(|(key, stored)| note(key, revision(stored)));
            }
            (Some(key), _) => note(key, Revision::ZERO),
            (None, Answer::Page { entries, .. }) => entries.iter().for_each(|entry| note(&entry.key, entry.revision)),
            (None, _) => {}
        }
    }

    fn count(&mut self, call: &Call, answer: &Answer) {
        let coverage = &mut self.coverage;
        coverage.unnamed_writes += u64::from(call.id.is_none() && !call.op.is_read());
        match answer {
            Answer::Deleted { existed: true } => coverage.deletes += 1,
            Answer::Deleted { existed: false } => coverage.deletes_of_nothing += 1,
            Answer::Applied { .. } => coverage.transactions += 1,
            Answer::CheckFailed { .. } => coverage.checks_failed += 1,
            Answer::Values(_) => coverage.reads_together += 1,
            Answer::Page { more: false, .. } => coverage.scans += 1,
            Answer::Page { more: true, .. } => coverage.scans_cut += 1,
            _ => {}
        }
    }
}
