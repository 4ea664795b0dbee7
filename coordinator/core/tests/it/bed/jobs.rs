//! A lease table and its participants.

use super::{TestBed, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The lease table of [`TestBed::jobs`].
pub const JOBS: TableId = TableId::new(2);

/// A participant of the table `jobs`.
pub fn worker(number: u32) -> Register {
    let participant = Some(Participant { tables: vec!["jobs".into()], timing: None });
    let number = u128::from(number);
    Register { participant, ..register(&format!("worker-{number}"), 10_000 + number, 20_000 + number) }
}

impl TestBed {
    /// Creates a node, and a lease table `jobs` with this number of participants.
    pub fn jobs(partitions: u32, workers: u32) -> Self {
        let mut bed = Self::running(settings(4, 1, 1), &["athens"]);
        bed.ok(Command::CreateTable {
            name: "jobs".into(),
            partitioning: Partitioning::Hash { partitions },
            replication: 1,
            holds: TableContent::Lease,
        });
        for number in 0..workers {
            bed.join_with(worker(number));
        }
        bed
    }
}

/// [`TestBed::jobs`] with accessors for the lease table.
pub struct Jobs {
    pub bed: TestBed,
}

impl Jobs {
    /// Creates a table without participants.
    pub fn new(partitions: u32) -> Self {
        Self { bed: TestBed::jobs(partitions, 0) }
    }

    /// Creates a table shared by this number of participants.
    pub fn with_workers(partitions: u32, workers: u32) -> Self {
        let mut bed = TestBed::jobs(partitions, workers);
        bed.settle();
        Self { bed }
    }

    pub fn rows(&self) -> impl Iterator<Item = &Partition> {
        self.bed.state.partitions.of_table(JOBS)
    }

    pub fn owners(&self) -> BTreeMap<u32, NodeId> {
        self.rows().filter_map(|row| Some((row.id.index, row.leader_placement()?.node))).collect()
    }

    pub fn counts(&self) -> Vec<u32> {
        let workers = self.bed.state.participants.keys();
        workers.map(|node| self.bed.state.partitions.leaders_on(*node)).collect()
    }

    pub fn worker(&self, number: u32) -> NodeId {
        self.bed.node(&format!("worker-{number}"))
    }

    /// Returns the report of the owner of this row that it has given the partition up.
    pub fn gives_up(&self, row: &Partition, fact: Fact) -> Report {
        let placement = row.leader.expect("an owner");
        Report { partition: row.id, placement, epoch: row.epoch, version: row.version, fact }
    }

    /// Registers the next process of this worker.
    pub fn restart(&mut self, number: u32, boot: u128) {
        self.bed.join_with(Register { boot: BootId::new(Uuid::from_u128(boot)), ..worker(number) });
    }

    /// Returns the number of partitions with changed owners.
    pub fn moved(&self, before: &BTreeMap<u32, NodeId>) -> usize {
        self.owners().iter().filter(|(index, owner)| before.get(index) != Some(owner)).count()
    }
}
