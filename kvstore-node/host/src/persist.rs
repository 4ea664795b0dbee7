//! What a replica has written, into the log and into the memtable.

use crate::local_copy::LocalCopy;
use crate::log_write::LogWrite;
use crate::shell::{Observed, Shell};
use crate::turn::Turn;
use archon_kv::{Effect, row};
use archon_replica::{Entry, Position, Record};
use archon_types::Seq;
use bytes::Bytes;

impl<S: Shell> Turn<S> {
    pub(crate) fn persist(&mut self, local: &mut LocalCopy<S>, token: u64, records: Vec<Record>) {
        for record in records {
            let (write, begins) = match record {
                Record::Epoch(epoch) => (LogWrite::Epoch(epoch), None),
                Record::Entries(entries) => {
                    for entry in &entries {
                        local.retention.logged(self.shell.logged_bytes(entry));
                        // A leader's own effects are in the memtable since they were accepted.
                        if entry.at.seq > local.memtable.last()
                            && let Err(why) = take_in(local, entry)
                        {
                            self.damaged.push((local.placement, why));
                        }
                    }
                    (LogWrite::Entries(entries), None)
                }
                Record::Cut { after } => {
                    self.shell.observe(local.at(), Observed::Cut);
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
        self.shell.log_token(local.placement, token);
    }

    /// A copy has come to its end: what is written on top of its rows must not forget up to where they go.
    fn note_copied(&mut self, local: &mut LocalCopy<S>) {
        match row::engine_position(self.shell.engine(), local.placement) {
            Ok(position) => local.memtable.set_engine_position(position.unwrap_or_default()),
            Err(error) => self.damaged.push((local.placement, error.to_string())),
        }
    }

    /// The engine holds everything up to `upto`, on its disk.
    pub(crate) fn synced(&mut self, local: &mut LocalCopy<S>, upto: Seq) {
        let Some(complete) = local.replica.position_at(upto.min(local.memtable.committed())) else { return };
        let limits = self.shell.retention_limits();
        let noted = local.retention.completed(local.placement, &local.replica, complete, limits);
        let Some(base) = noted else { return };
        self.shell.log(local.placement, LogWrite::Complete(complete));
        if let Some(base) = base {
            // The mark is durable before anything is forgotten, so that recovery knows where the log begins.
            self.shell.log(local.placement, LogWrite::Base(base));
            self.shell.log_trim(local.placement, base.seq);
        }
    }
}

/// Puts a follower's entry into the memtable.
fn take_in<S: Shell>(local: &mut LocalCopy<S>, entry: &Entry) -> Result<(), String> {
    // Its own memory: a row would else keep all that was received with it, other partitions' entries included, as long as
    // the row stays in the memtable, and no budget would know.
    let bytes = Bytes::copy_from_slice(&entry.bytes);
    let effect = Effect::decode(&bytes).map_err(|error| error.to_string())?;
    local.log_time.observe(effect.at);
    local.memtable.push(entry.at.seq, effect).map_err(|error| error.to_string())
}
