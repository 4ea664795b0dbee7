//! Reads of clients at replicas, as on Redis connections that have sent `READONLY`, and the check of what they may miss
//! (rule 33).
//!
//! A replica knows committed all that its leader had committed when it sent the last append that the replica accepted, and
//! all that earlier leaders had. It answers for a limited time after that append. So a read sees every write that was
//! acknowledged before the later of two times: when the append was sent, and the present minus the limit and the time that
//! the append spent on its way. A follower of a former leader that it still hears has no bound while its node has a lease.

use crate::check::violation::Violation;
use crate::client::keys::{self, KEYS};
use crate::client::replica_reads::{Arrival, ReplicaReads};
use crate::event::Event;
use crate::world::World;
use archon_host::Shell;
use archon_replica::{Body, Message};
use archon_types::{ManyKeys, PartitionId, StoredValue};
use bytes::Bytes;

/// Of this many appends, one is followed by a read at its receiver.
const READ_EVERY: u64 = 4;
/// Longest time until that read, in milliseconds.
const READ_AFTER_MS: u64 = 3;

impl World {
    /// Schedules the next read at any machine.
    pub(crate) fn read_replica_later(&mut self) {
        let host = self.replica_reads.random.index(self.hosts.len());
        let delay = self.replica_reads.random.between(1, self.plan.unit_ms() / 2);
        self.after(delay, Event::ReadReplica { host, again: true });
    }

    /// Records the arrival of an append, and reads at its receiver soon, at times.
    pub(crate) fn note_append(&mut self, host: usize, message: &Message, sent: u64) {
        if !self.plan.reads_replicas || !matches!(message.body, Body::Append { .. } | Body::Adopt { .. }) {
            return;
        }
        let (now, came, placement) = (self.local(host), self.truth, message.to.placement);
        let Some(process) = &self.hosts[host].process else { return };
        let ReplicaReads { arrivals, early, .. } = &mut self.replica_reads;
        if !process.partitions.copies().contains_key(&placement) {
            let before = early.entry(placement).or_insert(sent);
            *before = sent.min(*before);
            return;
        }
        let sent = early.remove(&placement).map_or(sent, |before| before.min(sent));
        let arrival = arrivals.entry((placement, now)).or_insert(Arrival { sent, came });
        arrival.sent = arrival.sent.min(sent);
        if !self.healing && self.replica_reads.random.below(READ_EVERY) == 0 {
            let delay = self.replica_reads.random.between(0, READ_AFTER_MS);
            self.after(delay, Event::ReadReplica { host, again: false });
        }
    }

    /// Reads all keys of a partition at the replica of this machine, and checks the answer.
    pub(crate) fn read_replica(&mut self, host: usize, again: bool) {
        if self.healing {
            return;
        }
        if again {
            self.read_replica_later();
        }
        let Some(process) = &self.hosts[host].process else { return };
        let state = &self.quorum.state;
        let copies = process.partitions.copies().values().map(|local| local.partition);
        let hashed: Vec<PartitionId> = copies.filter(|partition| !state.is_range(partition.table)).collect();
        let Some(partition) = self.replica_reads.random.pick(&hashed) else { return };
        let names = (0..KEYS).map(keys::key).chain([Bytes::from_static(keys::COUNTED)]);
        let names: Vec<Bytes> = names.map(|name| keys::with_prefix(name, self.plan.binary_keys)).collect();
        let Ok(many) = ManyKeys::new(names) else { return };
        let answer = self.drive(host, |partitions| partitions.read_replica(partition, &many));
        match answer {
            Some(Ok(values)) => {
                self.coverage.replica_reads += 1;
                let checked = self.check_replica_read(host, partition, &many, &values);
                self.judge(checked);
            }
            Some(Err(_)) => self.coverage.replica_reads_refused += 1,
            None => {}
        }
        self.settle(host);
    }

    /// R: checks that a read sees the writes that it must see.
    fn check_replica_read(
        &mut self,
        host: usize,
        partition: PartitionId,
        many: &ManyKeys,
        values: &[Option<StoredValue>],
    ) -> Result<(), Violation> {
        let now = self.local(host);
        let Some(process) = &self.hosts[host].process else { return Ok(()) };
        let Some(placement) = process.partitions.active(partition) else { return Ok(()) };
        let Some(local) = process.partitions.copies().get(&placement) else { return Ok(()) };
        let (epoch, shell) = (local.replica.epoch(), process.partitions.shell());
        let heard = local.replica.level_since();
        let Some(arrival) = heard.and_then(|at| self.replica_reads.arrivals.get(&(placement, at))) else {
            return Ok(()); // it came before the copy was opened
        };
        // Local clocks run up to half a percent fast or slow, and count whole milliseconds.
        let lag = shell.replica_lag_ms();
        let lag = lag + lag / 100 + 2;
        let Arrival { sent, came } = *arrival;
        let row = self.quorum.state.partitions.get(partition);
        let follows_former = row.is_some_and(|row| epoch < row.epoch);
        if follows_former && shell.grants.is_valid(now) && self.truth <= came + lag {
            self.coverage.replica_reads_unbounded += 1;
            return Ok(());
        }
        let since = sent.max(self.truth.saturating_sub(lag + (came - sent)));
        let floor = self.replica_reads.acknowledged_before(partition, since);
        if self.checks.of(partition).latest().history.find_moment(many.keys(), floor.get(), values).is_some() {
            return Ok(());
        }
        let detail = format!(
            "host {host} read {values:?} in {partition}, in epoch {epoch}; its last append was sent at {sent} and came at \
             {came}; at {since} clients knew everything up to {floor}"
        );
        Err(Violation::Stale { detail })
    }
}
