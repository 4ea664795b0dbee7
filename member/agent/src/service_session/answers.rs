//! Answers of the service to events.

use super::{Effect, ServiceSession, Stage};
use crate::protocol::{Answer, ErrorBody, ErrorKind};
use archon_client::PartitionId;
use std::sync::Arc;

/// Number of finished events for which a repeated answer is accepted.
const FINISHED_KEPT: usize = 4_096;

impl ServiceSession {
    /// Takes an answer of the service. `only_table` is the table of answers that name none.
    ///
    /// # Errors
    /// The answer fits no event, or the session has ended. Nothing has changed then.
    pub(crate) fn answer(&mut self, answer: Answer, only_table: Option<&str>, now: u64) -> Result<(), ErrorBody> {
        self.tick(now);
        self.check_running()?;
        match answer {
            Answer::Acquired { sequence, partition, epoch, table } => {
                let of = AnsweredEvent { sequence, index: partition, epoch, table: table.as_deref().or(only_table) };
                let Some((_, stage, is_acquire)) = self.find(&of)? else {
                    return Err(stale(format!("event {sequence} was answered by `refused` or `released`")));
                };
                if !is_acquire {
                    return Err(stale(format!("event {sequence} is a `release`; answer `released`")));
                }
                if stage == Stage::Acquiring {
                    self.set(of.sequence, Stage::Owned);
                    self.effects.push_back(Effect::Acquired { sequence });
                }
            }
            Answer::Refused { sequence, partition, epoch, table, reason } => {
                let of = AnsweredEvent { sequence, index: partition, epoch, table: table.as_deref().or(only_table) };
                let Some((id, stage, is_acquire)) = self.find(&of)? else { return Ok(()) };
                if !is_acquire || stage != Stage::Acquiring {
                    let why = format!("event {sequence} is no unanswered `acquire`; give a partition up by `drop`");
                    return Err(stale(why));
                }
                self.remove(id);
                self.finish(sequence);
                let reason = if reason.is_empty() { "the service refused it".to_owned() } else { reason };
                self.effects.push_back(Effect::Refused { sequence, partition: id, reason });
            }
            Answer::Released { sequence, partition, epoch, table } => {
                let of = AnsweredEvent { sequence, index: partition, epoch, table: table.as_deref().or(only_table) };
                let Some((id, _, is_acquire)) = self.find(&of)? else { return Ok(()) };
                if is_acquire {
                    return Err(stale(format!("event {sequence} is an `acquire`; answer `acquired` or `refused`")));
                }
                self.remove(id);
                self.finish(sequence);
                self.effects.push_back(Effect::Released { sequence, partition: id });
            }
            Answer::Drop { partition, epoch, table } => {
                let table = table.as_deref().or(only_table).ok_or_else(table_missing)?;
                let id = self.by_name.get(&(Arc::from(table), partition)).copied();
                let work = id.and_then(|id| self.works.get(&id)).filter(|work| work.epoch == epoch);
                let (Some(id), Some(work)) = (id, work) else {
                    let why = format!("partition {partition} of {table} is not owned in epoch {epoch}");
                    return Err(stale(why));
                };
                match work.stage {
                    Stage::Acquiring => {
                        let why = format!("partition {partition} of {table} is being acquired; answer `refused`");
                        return Err(stale(why));
                    }
                    Stage::Owned => self.effects.push_back(Effect::Drop(id)),
                    Stage::Releasing { .. } => {}
                }
            }
            Answer::Load { bytes_stored, operations_per_second } => {
                self.effects.push_back(Effect::Load { bytes_stored, operations_per_second });
            }
            Answer::Stop => {
                if !std::mem::replace(&mut self.stopping, true) {
                    self.effects.push_back(Effect::Stop);
                }
            }
        }
        Ok(())
    }

    /// Returns the partition and the stage of an answered event, and whether the event is an `acquire`; `None` if the
    /// event is finished.
    fn find(&self, of: &AnsweredEvent<'_>) -> Result<Option<(PartitionId, Stage, bool)>, ErrorBody> {
        let sequence = of.sequence;
        let table = of.table.ok_or_else(table_missing)?;
        if self.finished.contains(&sequence) {
            return Ok(None);
        }
        let found = self.by_sequence.get(&sequence).and_then(|id| Some((*id, self.works.get(id)?)));
        let Some((id, work)) = found else {
            return Err(stale(format!("event {sequence} awaits no answer; its partition may have been lost since")));
        };
        if (&*work.table, id.index, work.epoch) != (table, of.index, of.epoch) {
            return Err(stale(format!(
                "event {sequence} is about partition {} of {} in epoch {}, not partition {} of {table} in epoch {}",
                id.index, work.table, work.epoch, of.index, of.epoch
            )));
        }
        Ok(Some((id, work.stage, work.acquire == sequence)))
    }

    fn set(&mut self, sequence: u64, stage: Stage) {
        let id = self.by_sequence.get(&sequence);
        if let Some(work) = id.and_then(|id| self.works.get_mut(id)) {
            work.stage = stage;
        }
    }

    fn finish(&mut self, sequence: u64) {
        self.finished.insert(sequence);
        if self.finished.len() > FINISHED_KEPT {
            self.finished.pop_first();
        }
    }
}

/// Event and partition that an answer names.
struct AnsweredEvent<'a> {
    sequence: u64,
    index: u32,
    epoch: u64,
    table: Option<&'a str>,
}

fn stale(message: String) -> ErrorBody {
    ErrorBody::new(ErrorKind::Stale, message)
}

fn table_missing() -> ErrorBody {
    ErrorBody::new(ErrorKind::Invalid, "the agent serves several tables; name one in `table`")
}
