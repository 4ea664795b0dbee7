//! Writes of a replica, into the log and the memtable.

use crate::copies::local_copy::LocalCopy;
use crate::copies::retention::LogClock;
use crate::log_write::LogWrite;
use crate::mutant::Mutant;
use crate::shell::{CopyEvent, Shell};
use crate::turn::Turn;
use archon_kv::{EffectError, engine_position};
use archon_replica::{Entry, Input, Position, Record};
use archon_types::Seq;
use bytes::Bytes;

/// Bytes of a copy's log between two notes of the commit position. A start holds about this much, plus what was in
/// flight, in memory on top of what the engine lacks.
const COMMIT_NOTE_BYTES: u64 = 1024 * 1024;

impl<S: Shell> Turn<S> {
    pub(crate) fn persist(&mut self, local: &mut LocalCopy<S>, token: u64, records: Vec<Record>) {
        for record in records {
            if local.stopped {
                return; // Without a token nothing of this is acknowledged.
            }
            let (write, begins) = match record {
                Record::Epoch(epoch) => (LogWrite::Epoch(epoch), None),
                Record::Entries(mut entries) => {
                    let read = entries.iter().take_while(|entry| self.take_in(local, entry)).count();
                    entries.truncate(read);
                    if entries.is_empty() {
                        continue;
                    }
                    self.note_commit(local);
                    (LogWrite::Entries(entries), None)
                }
                Record::Cut { after } => {
                    self.shell.observe(local.at(), CopyEvent::Cut);
                    if let Err(error) = local.memtable.truncate(after) {
                        self.damaged.push((local.placement, error.to_string()));
                    }
                    (LogWrite::Cut { after }, None)
                }
                Record::Reset { base } => {
                    local.restart(base, self.shell.budget());
                    if base != Position::ZERO {
                        self.note_copied(local);
                    }
                    self.shell.forget_rows(&mut local.own);
                    let (partition, epoch) = (local.partition, local.replica.epoch());
                    (LogWrite::Begin { partition, epoch, base }, Some(base))
                }
            };
            self.shell.log(local.placement, write);
            if begins.is_some_and(|base| local.emptied.begins_after(base)) {
                self.report_emptied(local);
            }
        }
        if !local.stopped {
            self.shell.log_token(local.placement, token);
        }
    }

    /// Puts an entry into the memtable, unless it is there. Returns whether it may be written to the log: an entry that
    /// this version cannot read stops the copy before it reaches the log.
    fn take_in(&mut self, local: &mut LocalCopy<S>, entry: &Entry) -> bool {
        // A leader's own effects are in the memtable since they were accepted.
        if entry.at.seq > local.memtable.last() {
            // Copied: otherwise a row would keep the whole received message, other partitions' entries included, for as
            // long as the row stays in the memtable, and no budget would count it.
            let bytes = Bytes::copy_from_slice(&entry.bytes);
            let effect = match self.shell.read_entry(&bytes) {
                Ok(effect) => effect,
                Err(error) if self.broken.breaks(Mutant::UnreadableDamaged) => {
                    self.damaged.push((local.placement, error.to_string())); // rule 64
                    return true;
                }
                Err(error) => {
                    local.stopped = true;
                    self.unreadable.push((local.placement, unreadable(entry.at.seq, &error)));
                    return false;
                }
            };
            local.log_time.observe(effect.at);
            if let Err(error) = local.memtable.push(entry.at.seq, effect) {
                self.damaged.push((local.placement, error.to_string()));
            }
        }
        local.retention.logged(self.shell.logged_bytes(entry));
        true
    }

    /// Notes the commit position in the log, once per [`COMMIT_NOTE_BYTES`].
    fn note_commit(&mut self, local: &mut LocalCopy<S>) {
        let logged = local.retention.logged_bytes();
        if logged - local.commit_noted_from < COMMIT_NOTE_BYTES {
            return;
        }
        let Some(commit) = local.replica.position_at(local.replica.commit()) else { return };
        local.commit_noted_from = logged;
        self.shell.log(local.placement, LogWrite::Commit(commit));
    }

    /// Tells a follower whether the engine lags, before it accepts entries.
    pub(crate) fn note_lag(&mut self, local: &mut LocalCopy<S>) {
        let lags = self.shell.engine_lags();
        if local.replica.engine_lags() != lags {
            self.step(local, Input::EngineLags(lags));
        }
    }

    /// Completes a pulled copy: later writes must not trim the log before the position up to which its rows go.
    fn note_copied(&mut self, local: &mut LocalCopy<S>) {
        match engine_position(self.shell.engine(), local.placement) {
            Ok(position) => local.memtable.set_engine_position(position.unwrap_or_default()),
            Err(error) => self.unusable(local, &error),
        }
    }

    /// Records that the engine holds everything up to `upto`, on disk.
    pub(crate) fn synced(&mut self, local: &mut LocalCopy<S>, upto: Seq) {
        let Some(complete) = local.replica.position_at(upto.min(local.memtable.committed())) else { return };
        let (limits, at) = (self.shell.retention_limits(), self.log_clock());
        let noted = local.retention.completed(local.placement, &local.replica, complete, limits, at);
        let Some(base) = noted else { return };
        self.shell.log(local.placement, LogWrite::Complete(complete));
        self.forget_log(local, base);
    }

    /// Checks again how much of a copy's log is kept for other copies.
    pub(crate) fn review_retention(&mut self, local: &mut LocalCopy<S>) {
        if !local.retention.is_review_due(self.now) || self.broken.breaks(Mutant::RetentionUnreviewed) {
            return;
        }
        let (limits, at) = (self.shell.retention_limits(), self.log_clock());
        let base = local.retention.review(local.placement, &local.replica, limits, at);
        self.forget_log(local, base);
    }

    fn log_clock(&self) -> LogClock {
        LogClock { now: self.now, written: self.shell.log_written() }
    }

    fn forget_log(&mut self, local: &mut LocalCopy<S>, base: Option<Position>) {
        for copy in local.retention.take_given_up() {
            self.shell.observe(local.at(), CopyEvent::LogNotKept(copy));
        }
        if let Some(base) = base {
            // The base is durable before the trim, so that recovery knows where the log begins.
            self.shell.log(local.placement, LogWrite::Base(base));
            self.shell.log_trim(local.placement, base.seq);
        }
    }
}

/// Returns the reason a copy is kept and not served, for operators.
pub(crate) fn unreadable(at: Seq, error: &EffectError) -> String {
    format!(
        "entry {at} of its log: {error}; the replica is kept as it is and not served: run the version that wrote the entry, or a newer one"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::DisabledRule;
    use crate::test_shell::{OWN, follower, follower_row, hear, position, settle};
    use archon_kv::{Effect, RowChange, row};
    use archon_replica::Body;
    use archon_types::Millis;

    fn entry(seq: u64, bytes: usize) -> Entry {
        let change = RowChange::set(row::value_key(&[seq as u8]), Bytes::from(vec![7; bytes]));
        Entry { at: position(seq), bytes: Effect::new(Millis::new(seq), vec![change]).encode().unwrap() }
    }

    fn append(seq: u64, bytes: usize) -> Body {
        let (before, commit) = (position(seq - 1), Seq::new(seq - 1));
        Body::Append { before, entries: vec![entry(seq, bytes)], start: Seq::ZERO, commit }
    }

    #[test]
    fn follower_accepts_no_entries_while_engine_lags() {
        let mut follower = follower(DisabledRule::default(), follower_row());
        hear(&mut follower, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
        hear(&mut follower, append(1, 10));
        follower.shell_mut().engine_lags = true;
        hear(&mut follower, append(2, 10));
        let local = &follower.copies()[&OWN];
        assert_eq!((local.memtable.last(), local.memtable.committed()), (Seq::new(1), Seq::new(1)));
        follower.shell_mut().engine_lags = false;
        hear(&mut follower, append(2, 10));
        assert_eq!(follower.copies()[&OWN].memtable.last(), Seq::new(2));
    }

    #[test]
    fn commit_position_is_noted_in_log_once_per_mebibyte() {
        let mut follower = follower(DisabledRule::default(), follower_row());
        hear(&mut follower, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
        for seq in 1..=5 {
            hear(&mut follower, append(seq, COMMIT_NOTE_BYTES as usize / 2));
        }
        settle(&mut follower);
        let notes = follower.shell().writes.iter().filter_map(|write| match write {
            LogWrite::Commit(at) => Some(at.seq.get()),
            _ => None,
        });
        // Of the entries before, since the commit position comes with the next one.
        assert_eq!(notes.collect::<Vec<_>>(), [1, 3]);
    }
}
