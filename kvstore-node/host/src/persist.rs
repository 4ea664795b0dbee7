//! What a replica has written, into the log and into the window of effects.

use crate::log_write::LogWrite;
use crate::shell::{Observed, Shell};
use crate::slot::Slot;
use crate::turn::Turn;
use archon_kv::Effect;
use archon_replica::{Entry, Record};
use archon_types::Seq;
use bytes::Bytes;

impl<S: Shell> Turn<S> {
    pub(crate) fn persist(&mut self, slot: &mut Slot<S>, token: u64, records: Vec<Record>) {
        for record in records {
            let (write, begins) = match record {
                Record::Epoch(epoch) => (LogWrite::Epoch(epoch), None),
                Record::Entries(entries) => {
                    for entry in &entries {
                        slot.retention.logged(self.shell.logged_bytes(entry));
                        // A leader's own effects are in the window since they were accepted.
                        if entry.at.seq > slot.memtable.last()
                            && let Err(why) = take_in(slot, entry)
                        {
                            self.damaged.push((slot.placement, why));
                        }
                    }
                    (LogWrite::Entries(entries), None)
                }
                Record::Cut { after } => {
                    self.shell.observe(slot.at(), Observed::Cut);
                    if let Err(error) = slot.memtable.truncate(after) {
                        self.damaged.push((slot.placement, error.to_string()));
                    }
                    (LogWrite::Cut { after }, None)
                }
                Record::Reset { base } => {
                    slot.restart(base, self.shell.budget());
                    self.shell.forget_rows(&mut slot.own);
                    let (partition, epoch) = (slot.partition, slot.replica.epoch());
                    (LogWrite::Begin { partition, epoch, base }, Some(base))
                }
            };
            self.shell.log(slot.placement, write);
            if begins.is_some_and(|base| slot.emptied.begins_after(base)) {
                self.report_emptied(slot);
            }
        }
        self.shell.log_token(slot.placement, token);
    }

    /// The engine holds everything up to `upto`, on its disk.
    pub(crate) fn synced(&mut self, slot: &mut Slot<S>, upto: Seq) {
        let Some(complete) = slot.replica.position_at(upto.min(slot.memtable.committed())) else { return };
        let limits = self.shell.retention_limits();
        let noted = slot.retention.completed(slot.placement, &slot.replica, complete, limits);
        let Some(base) = noted else { return };
        self.shell.log(slot.placement, LogWrite::Complete(complete));
        if let Some(base) = base {
            // The mark is durable before anything is forgotten, so that recovery knows where the log begins.
            self.shell.log(slot.placement, LogWrite::Base(base));
            self.shell.log_trim(slot.placement, base.seq);
        }
    }
}

/// Puts a follower's entry into the window of effects to apply.
fn take_in<S: Shell>(slot: &mut Slot<S>, entry: &Entry) -> Result<(), String> {
    // Its own memory: a row would else keep all that was received with it, other partitions' entries included, as long as
    // the row stays in the window, and no budget would know.
    let bytes = Bytes::copy_from_slice(&entry.bytes);
    let effect = Effect::decode(&bytes).map_err(|error| error.to_string())?;
    slot.log_time.observe(effect.at);
    slot.memtable.push(entry.at.seq, effect).map_err(|error| error.to_string())
}
