//! Handling of outputs as in a shell, with toy disks and a toy engine.

use super::world::{CheckResult, Copy, World};
use crate::invariants::leader_holds_acknowledged;
use crate::{Body, Entry, Input, Output, Record, Replica};
use archon_types::{Epoch, Seq};

impl World {
    /// Runs one input and the end of the turn.
    pub(super) fn step(&mut self, index: usize, input: Input) -> CheckResult {
        let now = self.now;
        self.note(format!("{now} node {} <- {input:?}", index + 1));
        let mut out = Vec::new();
        let Some(replica) = &mut self.nodes[index].replica else { return Ok(()) };
        replica.step(now, input, &mut out);
        replica.flush(now, &mut out);
        for output in out {
            self.note(format!("{now}   node {} -> {output:?}", index + 1));
            self.carry_out(index, output)?;
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self, index: usize, output: Output) -> CheckResult {
        let placement = self.nodes[index].placement;
        match output {
            Output::Persist { token, records } => {
                let node = &mut self.nodes[index];
                for record in &records {
                    match record {
                        Record::Entries(entries) => node.window.extend(entries.iter().cloned()),
                        Record::Cut { after } => node.window.retain(|entry| entry.at.seq <= *after),
                        Record::Reset { .. } => node.window.clear(),
                        Record::Epoch(_) => {}
                    }
                }
                node.disk.under_way.push_back((token, records));
            }
            Output::Send(message) => {
                if matches!(message.body, Body::Ack { .. } | Body::Adopted { .. }) {
                    self.epochs.persisted(placement, message.epoch)?;
                }
                self.network.push(message);
            }
            Output::Commit { upto } => self.commit(index, upto)?,
            Output::Serve(serving) => {
                self.nodes[index].serving = serving;
                if serving {
                    self.served += 1;
                    let replica = self.nodes[index].replica.as_ref().unwrap();
                    self.epochs.serves(placement, replica.epoch())?;
                    leader_holds_acknowledged(placement, replica.epoch(), replica.commit(), self.acknowledged)?;
                }
            }
            Output::Report(report) => self.reports.push((placement, self.nodes[index].incarnation, report)),
            Output::ReadLog { read, reader, from, upto, .. } => {
                let disk = &self.nodes[index].disk;
                let wanted = disk.entries.iter().filter(|entry| entry.at.seq >= from && entry.at.seq <= upto);
                let entries = wanted.take(2).cloned().collect();
                self.step(index, Input::LogRead { read, reader, entries })?;
            }
            Output::StartCopy { copy, leader, .. } => {
                self.copies += 1;
                let node = &mut self.nodes[index];
                node.disk.engine.clear();
                node.copy = Some(Copy { number: copy, from: leader, at: None, key: 0 });
            }
            Output::StopCopy { .. } => self.nodes[index].copy = None,
            Output::ConfirmDone { tickets, ok } => {
                let commit = self.nodes[index].replica.as_ref().map_or(Seq::ZERO, Replica::commit);
                for ticket in tickets {
                    let floor = self.reads.remove(&ticket).unwrap_or_default();
                    if ok {
                        self.reads_done += 1;
                        let epoch = self.nodes[index].replica.as_ref().map_or(Epoch::ZERO, Replica::epoch);
                        leader_holds_acknowledged(placement, epoch, commit, floor)?;
                    }
                }
            }
            Output::Alarm(alarm) => panic!("data was lost: {alarm}"),
            Output::Accepted { .. } | Output::Refuse { .. } | Output::Abandon { .. } => {}
        }
        Ok(())
    }

    pub(super) fn commit(&mut self, index: usize, upto: Seq) -> CheckResult {
        let node = &mut self.nodes[index];
        let applied = node.disk.applied;
        let entries: Vec<Entry> =
            node.window.iter().filter(|entry| entry.at.seq > applied && entry.at.seq <= upto).cloned().collect();
        let leads = node.serving || node.replica.as_ref().is_some_and(|replica| replica.leader().is_none());
        for entry in entries {
            node.disk.apply(&entry);
            self.ledger.commit(node.placement, &entry)?;
        }
        if leads {
            self.acknowledged = self.acknowledged.max(upto);
        }
        self.check()
    }
}
