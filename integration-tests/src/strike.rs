//! Kills a process while a partition is split or merged, in a chosen phase, and reports whether that phase was hit.

use crate::attempt::{Attempt, Reshape};
use crate::cluster::{Cluster, TIMEOUT};
use archon_client::{Admin, Error, Event, EventCode, PartitionDescription};
use archon_load::Wait;
use archon_testkit::wait_for;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;

/// Metric: bytes that a merge target receives from the merge source.
const ABSORBED: &str = "archon_node_copy_received_bytes_total";
const CALL: Duration = Duration::from_secs(10);

/// Process to kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// Leader of the partition that is split, or of the merge target.
    LeftLeader,
    /// Leader of the partition that was split off, or of the merge source.
    RightLeader,
    /// A node with a copy of both, which leads neither.
    OtherCopy,
    /// The leading coordinator.
    Coordinator,
}

/// Phase of the attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Begun, and no key is given up yet.
    Begun,
    /// The keys are given up: for a split by its event, for a merge when rows are on their way.
    GivenUp,
    /// Completed.
    Done,
}

/// An administrator that injects kills.
#[derive(Debug)]
pub struct Striker {
    runtime: Runtime,
    admin: Admin,
    table: &'static str,
}

impl Striker {
    /// Returns one for a table.
    ///
    /// # Panics
    /// If no administration client can be built.
    #[allow(clippy::expect_used)]
    pub fn new(cluster: &Cluster, table: &'static str) -> Self {
        Self { runtime: Runtime::new().expect("a runtime"), admin: cluster.admin(CALL), table }
    }

    /// Returns the description of a partition; `None` if there is none.
    pub fn describe(&self, partition: u32) -> Option<PartitionDescription> {
        self.runtime.block_on(self.admin.describe_partition(self.table, partition)).ok()
    }

    /// Returns the nodes with a copy of a partition.
    fn copies_of(&self, partition: u32) -> impl Iterator<Item = String> {
        self.describe(partition).into_iter().flat_map(|of| of.copies).map(|copy| copy.node)
    }

    /// Begins a split.
    ///
    /// # Errors
    /// As [`Attempt::split`].
    pub fn split(&self, partition: u32, at: &str) -> Result<Attempt, Error> {
        self.runtime.block_on(Attempt::split(&self.admin, self.table, partition, at))
    }

    /// Begins a merge.
    ///
    /// # Errors
    /// As [`Attempt::merge`].
    pub fn merge(&self, partition: u32) -> Result<Attempt, Error> {
        self.runtime.block_on(Attempt::merge(&self.admin, self.table, partition))
    }

    /// Cancels an attempt.
    ///
    /// # Errors
    /// As [`Attempt::cancel`].
    pub fn cancel(&self, attempt: &Attempt) -> Result<(), Error> {
        self.runtime.block_on(attempt.cancel())
    }

    /// Waits for the end of an attempt.
    ///
    /// # Panics
    /// If it does not end.
    pub fn end(&self, attempt: &Attempt) -> Event {
        let end = || {
            let told = self.told(attempt);
            attempt.end_in(&told).cloned().ok_or_else(|| format!("{told:?}"))
        };
        wait_for(&format!("{attempt:?} to end"), TIMEOUT, end).0
    }

    /// Waits until a split gives its keys up; returns false if the split ended first.
    ///
    /// # Panics
    /// If neither happens.
    pub fn wait_cut(&self, attempt: &Attempt) -> bool {
        self.reach(attempt, Phase::GivenUp, &|| false)
    }

    /// Begins an attempt, kills `victim` in a phase of it and restarts it. Returns true if the process died in that
    /// phase and the attempt had not progressed further; the attempt has ended on return.
    ///
    /// # Panics
    /// If the cluster does not recover.
    pub fn strike(
        &self,
        cluster: &mut Cluster,
        (victim, phase): (Victim, Phase),
        (left, right): (u32, Option<u32>),
        begin: impl FnOnce(&Self) -> Result<Attempt, Error>,
    ) -> bool {
        let leader = |partition: u32| self.describe(partition).and_then(|of| of.leader).expect("somebody leads it");
        let lefts = leader(left);
        let rights = right.map(leader);
        let coordinator = cluster.wait_leader().0;
        let address = cluster.node_address(&lefts).to_owned();
        let absorbed = || self.counted(&address, ABSORBED);
        let before = absorbed();
        // Queried now, since some phases end during a query.
        let life = |name: String| (name.clone(), cluster.wait_incarnation(&name, 0));
        let lives: BTreeMap<_, _> = self.copies_of(left).map(life).collect();
        let leads = |name: &String| *name == lefts || Some(name) == rights.as_ref();
        let other = self.copies_of(left).filter(|name| !leads(name)).min();
        // The attempt goes no further while its leader is paused, so that the kill is always in the first phase. Kills while it
        // works are in `faults_ranges`.
        let held = phase == Phase::Begun;
        if held {
            cluster.node(&lefts).pause();
        }
        let attempt = begin(self).unwrap_or_else(|error| panic!("{victim:?} in {phase:?}: {error}"));
        let reached = self.reach(&attempt, phase, &|| absorbed() > before);
        let node = match victim {
            Victim::LeftLeader => Some(lefts.clone()),
            Victim::RightLeader => Some(rights.unwrap_or_else(|| leader(attempt.right))),
            Victim::OtherCopy => Some(other.expect("a node with a copy that leads neither")),
            Victim::Coordinator => None,
        };
        match &node {
            Some(node) => cluster.take_node(node).kill(),
            None => cluster.take_coordinator(coordinator).kill(),
        }
        let died_ms = now_ms();
        if held && node.as_ref() != Some(&lefts) {
            cluster.node(&lefts).resume();
        }
        match node {
            Some(node) => {
                cluster.start_node(&node);
                cluster.wait_incarnation(&node, lives[&node]);
                cluster.wait_node(&node, "alive");
            }
            None => {
                cluster.wait_leader();
                cluster.start_coordinator(coordinator);
            }
        }
        let end = self.end(&attempt);
        let later = |code: EventCode| {
            self.told(&attempt).iter().find(|event| event.code == code).is_none_or(|event| event.at_ms > died_ms)
        };
        let met = reached
            && match phase {
                Phase::Begun => end.at_ms > died_ms && later(EventCode::SplitCut),
                Phase::GivenUp => end.at_ms > died_ms,
                Phase::Done => end.code == attempt.reshape.done(),
            };
        println!("{victim:?} in {phase:?}: {} ({})", end.message, if met { "met" } else { "missed" });
        met
    }

    /// Waits until an attempt reaches a phase; returns false if it ended first.
    fn reach(&self, attempt: &Attempt, phase: Phase, rows_come: &dyn Fn() -> bool) -> bool {
        if phase == Phase::Begun {
            return true;
        }
        let wait = Wait::begin("the phase", TIMEOUT);
        // Without a pause: some phases last for milliseconds.
        loop {
            let told = self.told(attempt);
            let ended = attempt.end_in(&told).is_some();
            let reached = match (phase, attempt.reshape) {
                (Phase::GivenUp, Reshape::Split) => told.iter().any(|event| event.code == EventCode::SplitCut),
                (Phase::GivenUp, Reshape::Merge) => rows_come(),
                (Phase::Begun | Phase::Done, _) => ended,
            };
            if reached || ended {
                return reached;
            }
            wait.go_on(format!("{told:?}")).unwrap_or_else(|late| panic!("{late}"));
        }
    }

    /// Returns the events of an attempt; empty while no coordinator answers.
    fn told(&self, attempt: &Attempt) -> Vec<Event> {
        self.runtime.block_on(attempt.events()).unwrap_or_default()
    }

    /// Returns a counter of the node at this address; zero while it does not answer.
    pub fn counted(&self, address: &str, name: &str) -> u64 {
        self.runtime.block_on(self.admin.node_stats(address)).map_or(0, |stats| stats.get(name))
    }
}

/// Waits until a table has `count` partitions, each served by three copies.
pub fn wait_served(cluster: &Cluster, table: &str, count: usize) {
    cluster.wait_settled(table, "the table to be served", TIMEOUT, |rows| rows.len() == count);
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
