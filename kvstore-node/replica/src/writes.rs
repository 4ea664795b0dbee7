//! Writes on their way to the disk, and those that have completed.

use crate::message::Position;
use crate::output::Record;
use archon_types::{Epoch, Seq};
use std::collections::VecDeque;

/// One `Persist` that is not durable yet.
#[derive(Debug)]
struct PendingWrite {
    token: u64,
    epoch: Option<Epoch>,
    /// Durable up to here when it arrives; shortened by later cuts.
    upto: Option<Seq>,
    bytes: usize,
}

/// Records gathered in this turn, and pending writes. The disk completes writes in the order given.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    records: Vec<Record>,
    epoch: Option<Epoch>,
    upto: Option<Seq>,
    bytes: usize,
    last_token: u64,
    in_flight: VecDeque<PendingWrite>,
    in_flight_bytes: usize,
}

/// Newly durable state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DurableProgress {
    pub(crate) epoch: Option<Epoch>,
    pub(crate) upto: Option<Seq>,
}

impl Writes {
    pub(crate) fn epoch(&mut self, epoch: Epoch) {
        self.records.push(Record::Epoch(epoch));
        self.epoch = Some(epoch);
    }

    pub(crate) fn entry(&mut self, entry: crate::message::Entry) {
        self.upto = Some(entry.at.seq);
        self.bytes = self.bytes.saturating_add(entry.bytes.len());
        if let Some(Record::Entries(entries)) = self.records.last_mut() {
            entries.push(entry);
        } else {
            self.records.push(Record::Entries(vec![entry]));
        }
    }

    pub(crate) fn cut(&mut self, after: Seq) {
        self.records.push(Record::Cut { after });
        self.clamp(after);
    }

    pub(crate) fn reset(&mut self, base: Position) {
        self.records.push(Record::Reset { base });
        for pending in &mut self.in_flight {
            pending.upto = None;
        }
        self.upto = Some(base.seq);
    }

    /// Limits pending writes after a cut: another entry may take the place of a cut one, which must not count as
    /// durable.
    fn clamp(&mut self, after: Seq) {
        self.upto = self.upto.map(|upto| upto.min(after));
        for pending in &mut self.in_flight {
            pending.upto = pending.upto.map(|upto| upto.min(after));
        }
    }

    /// Returns the bytes of entries gathered or pending.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.saturating_add(self.in_flight_bytes)
    }

    /// Returns the token of the write that makes everything gathered so far durable.
    pub(crate) fn token_of_gathered(&self) -> u64 {
        if self.records.is_empty() { self.last_token } else { self.last_token + 1 }
    }

    /// Returns whether the write of this token, and all before it, are durable.
    pub(crate) fn is_done(&self, token: u64) -> bool {
        token <= self.last_token && self.in_flight.front().is_none_or(|pending| pending.token > token)
    }

    /// Takes the gathered records as one write, if there are any.
    pub(crate) fn flush(&mut self) -> Option<(u64, Vec<Record>)> {
        if self.records.is_empty() {
            return None;
        }
        self.last_token += 1;
        let bytes = std::mem::take(&mut self.bytes);
        self.in_flight_bytes += bytes;
        self.in_flight.push_back(PendingWrite {
            token: self.last_token,
            epoch: self.epoch.take(),
            upto: self.upto.take(),
            bytes,
        });
        Some((self.last_token, std::mem::take(&mut self.records)))
    }

    /// Notes that everything up to `token` is durable.
    pub(crate) fn arrived(&mut self, token: u64) -> DurableProgress {
        let mut arrived = DurableProgress::default();
        while self.in_flight.front().is_some_and(|pending| pending.token <= token) {
            if let Some(pending) = self.in_flight.pop_front() {
                self.in_flight_bytes -= pending.bytes;
                arrived.epoch = arrived.epoch.max(pending.epoch);
                // Not a maximum: a later write may stand for a shorter log. Later cuts have clamped it already.
                arrived.upto = pending.upto.or(arrived.upto);
            }
        }
        arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Entry;
    use bytes::Bytes;

    fn entry(epoch: u64, seq: u64) -> Entry {
        Entry { at: Position::new(Epoch::new(epoch), Seq::new(seq)), bytes: Bytes::from_static(b"abc") }
    }

    #[test]
    fn turn_becomes_one_write() {
        let mut writes = Writes::default();
        writes.epoch(Epoch::new(2));
        writes.entry(entry(2, 1));
        writes.entry(entry(2, 2));
        let records = vec![Record::Epoch(Epoch::new(2)), Record::Entries(vec![entry(2, 1), entry(2, 2)])];
        assert_eq!(writes.flush(), Some((1, records)));
        assert_eq!((writes.flush(), writes.bytes()), (None, 6));
        assert_eq!(writes.arrived(1), DurableProgress { epoch: Some(Epoch::new(2)), upto: Some(Seq::new(2)) });
        assert!(writes.is_done(1));
    }

    #[test]
    fn entries_cut_meanwhile_do_not_become_durable() {
        let mut writes = Writes::default();
        (1..=5).for_each(|seq| writes.entry(entry(1, seq)));
        writes.flush();
        writes.cut(Seq::new(3));
        writes.entry(entry(2, 4));
        writes.flush();
        assert_eq!(writes.arrived(1).upto, Some(Seq::new(3)));
        assert_eq!(writes.arrived(2).upto, Some(Seq::new(4)));
    }

    #[test]
    fn reset_discards_earlier_pending_writes() {
        let mut writes = Writes::default();
        (1..=5).for_each(|seq| writes.entry(entry(1, seq)));
        writes.flush();
        writes.reset(Position::new(Epoch::new(1), Seq::new(9)));
        writes.flush();
        assert_eq!(writes.arrived(1).upto, None);
        assert_eq!(writes.arrived(2).upto, Some(Seq::new(9)));
    }
}
