//! Facts that the checks gather during a run.

use crate::check::damage::Damage;
use crate::check::door_checks::DoorChecks;
use crate::check::era::PartitionCheck;
use crate::check::key_move::KeyMove;
use crate::check::operations::Operations;
use crate::check::violation::Violation;
use archon_kv::Effect;
use archon_kv::engine::PageLimit;
use archon_kv::row::KIND_VALUE;
use archon_replica::Entry;
use archon_replica::invariants::{Epochs, leader_holds_acknowledged};
use archon_types::{Epoch, PartitionId, PlacementId, Seq, TableId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) partitions: BTreeMap<PartitionId, PartitionCheck>,
    pub(crate) operations: Operations,
    /// Keys that moved between partitions, in commit order.
    pub(crate) key_moves: Vec<KeyMove>,
    /// Copies that a fault destroyed; nothing is expected of them.
    pub(crate) destroyed: BTreeSet<PlacementId>,
    /// Partitions affected by damaged disks.
    pub(crate) damage: Damage,
    pub(crate) rows_changed: bool,
    pub(crate) disks_changed: bool,
    pub(crate) leases_changed: bool,
    pub(crate) acknowledged: bool,
    /// Answers to clients, by partition.
    pub(crate) answered: BTreeMap<PartitionId, u64>,
    /// Drop time of each table, in true time.
    pub(crate) dropped: BTreeMap<TableId, u64>,
    /// Names of dropped tables.
    pub(crate) names_dropped: BTreeSet<String>,
    /// Copies of dropped tables, and whether their nodes were away at the drop.
    pub(crate) condemned: BTreeMap<PlacementId, bool>,
    /// Copies reported as deleted.
    pub(crate) deleted: BTreeSet<PlacementId>,
    /// Of these, the ones present again in a directory that was rolled back.
    pub(crate) restored: BTreeSet<PlacementId>,
    /// Leader of each term.
    pub(crate) led: BTreeMap<u64, usize>,
    /// Commit term of each entry of the coordinators' log.
    pub(crate) committed_in: Vec<u64>,
    /// Position up to which the log of each coordinator process was compared with the committed log.
    pub(crate) compared: BTreeMap<(usize, u64), usize>,
    /// Probe results.
    pub(crate) doors: DoorChecks,
    /// True once clients begin no more operations.
    pub(crate) quiet: bool,
    /// Maximum rows and bytes that one log entry may write.
    pub(crate) entry_limit: Option<PageLimit>,
}

impl Checks {
    pub(crate) fn of(&mut self, partition: PartitionId) -> &mut PartitionCheck {
        self.partitions.entry(partition).or_default()
    }

    pub(crate) fn epochs(&mut self, partition: PartitionId) -> &mut Epochs {
        &mut self.of(partition).epochs
    }

    /// Records that a fault destroys these copies, and everything they had persisted.
    pub(crate) fn destroy(&mut self, lost: impl IntoIterator<Item = PlacementId>) {
        for placement in lost {
            self.partitions.values_mut().for_each(|known| known.epochs.destroyed(placement));
            self.destroyed.insert(placement);
        }
    }

    /// P, and X: checks an entry that a copy commits.
    pub(crate) fn commit(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        placement: PlacementId,
        entry: &Entry,
    ) -> Result<(), Violation> {
        let limit = self.entry_limit.unwrap_or(PageLimit::PAGE);
        let known = self.of(partition).led_in(epoch);
        let before = known.ledger.last();
        known.ledger.commit(placement, entry)?;
        if known.ledger.last() == before {
            return Ok(());
        }
        let effect = Effect::decode(&entry.bytes).map_err(|error| Violation::Prefix { detail: error.to_string() })?;
        let rows = effect.changes.iter().filter(|change| change.key.first() == Some(&KIND_VALUE));
        let sizes: Vec<usize> =
            rows.map(|row| row.key.len() + row.value.as_ref().map_or(0, |value| value.len())).collect();
        let (rows, bytes) = (sizes.len(), sizes.iter().sum::<usize>());
        // A transaction has a record; its rows are bounded by its type.
        if effect.record.is_none() && rows > 1 && (rows > limit.rows_max || bytes > limit.bytes_max) {
            let detail = format!(
                "an entry of {partition} writes {rows} rows of {bytes} bytes; no copy reads more than {} rows or {} bytes",
                limit.rows_max, limit.bytes_max
            );
            return Err(Violation::Prefix { detail });
        }
        let (own, name) = known.takes(entry.at.seq, effect)?;
        self.keeps_off_what_it_gave_up(partition, entry.at.seq, &own)?;
        self.writes_nothing_after_its_end(partition, entry)?;
        name.map_or(Ok(()), |(client, number)| self.done_once(partition, client, number))
    }

    /// V: a copy is given up as damaged. Only lost storage may cause that, or an operator who made it lead although it holds
    /// a part of the data at most.
    pub(crate) fn given_up_as_damaged(
        &mut self,
        partition: PartitionId,
        placement: PlacementId,
        is_part: bool,
    ) -> Result<(), Violation> {
        if self.damage.reached(partition) || is_part && self.of(partition).is_awaited(placement) {
            return Ok(());
        }
        let detail = format!("{placement} of {partition} is given up as damaged, and its disk lost nothing");
        Err(Violation::Deleted { detail })
    }

    pub(crate) fn acknowledge(&mut self, partition: PartitionId, epoch: Epoch, upto: Seq) {
        let known = self.of(partition).led_in(epoch);
        if upto > known.acknowledged {
            known.acknowledged = upto;
            self.acknowledged = true;
        }
        self.leases_changed = true;
    }

    /// D and E: checks a leader that begins to serve.
    pub(crate) fn serves(
        &mut self,
        partition: PartitionId,
        placement: PlacementId,
        epoch: Epoch,
        commit: Seq,
    ) -> Result<(), Violation> {
        let known = self.of(partition);
        known.epochs.serves(placement, epoch)?;
        let known = known.led_in(epoch);
        // A leader that begins late, after a successor was elected, need not hold writes of the successor. It can
        // commit nothing and holds no lease, which other checks cover.
        let own = known.ledger.entries().partition_point(|entry| entry.at.epoch <= epoch) as u64;
        let acknowledged = known.acknowledged.min(Seq::new(own));
        Ok(leader_holds_acknowledged(placement, epoch, commit, acknowledged)?)
    }

    /// Returns whether the Live sets must be checked again.
    pub(crate) fn take_changed(&mut self) -> (bool, bool) {
        let sets = self.rows_changed || self.disks_changed || self.acknowledged;
        let leases = self.leases_changed;
        (self.rows_changed, self.disks_changed, self.leases_changed, self.acknowledged) = (false, false, false, false);
        (sets, leases)
    }
}
