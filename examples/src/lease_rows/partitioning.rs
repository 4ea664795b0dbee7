//! Decisions of a server. Inputs are the time on its own clock and random numbers; outputs are effects.

use super::held::{HeldLease, Lease, ReleaseReason, Stage};
use super::row::{Etag, ListedRow, Row};
use super::store::Put;
use super::timing::Timing;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Configuration of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Its name; no two servers of a service have the same.
    pub name: String,
    /// The same for all servers.
    pub timing: Timing,
    /// Maximum number of its partitions ([`super::max_count`]).
    pub partitions_max: usize,
    /// Maximum load, as its partitions report it.
    pub load_max: Option<u64>,
}

/// An effect to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Read all rows, and pass them to [`Partitioning::listed`].
    List,
    /// Write a row, and pass the result to [`Partitioning::put`]. There is one write per partition at a time.
    Put {
        /// The partition.
        partition: u32,
        /// Expected ETag.
        etag: Etag,
        /// Content.
        row: Row,
    },
    /// Let the service prepare, then call [`Partitioning::acquired`].
    Acquire(Lease),
    /// Let the service finish its work, then call [`Partitioning::released`].
    Release(Lease, ReleaseReason),
    /// Notify the service of the loss, and cancel its work.
    Lost(Lease),
}

/// A row as this server knows it.
#[derive(Debug)]
struct KnownRow {
    etag: Etag,
    row: Arc<Row>,
    /// Time at which this server first read the row with this ETag.
    since: u64,
}

/// A pending write.
#[derive(Clone, Copy, Debug)]
struct Write {
    sent: u64,
    goal: WriteGoal,
}

/// Purpose of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteGoal {
    /// Become the owner of a free partition.
    Take,
    /// Extend a lease.
    Renew(Lease),
    /// Give a lease up, so that another server can take the partition at once.
    Break,
}

/// The decisions of one server. Times are milliseconds of a clock of its own, which never goes back.
#[derive(Debug)]
pub struct Partitioning {
    config: Config,
    rows: BTreeMap<u32, KnownRow>,
    held: BTreeMap<u32, HeldLease>,
    /// Pending writes. There is one per partition at a time, so answers are unambiguous.
    pending: BTreeMap<u32, Write>,
    list_at: u64,
    is_listing: bool,
    /// Time at which an unchanged row may be taken.
    take_at: Option<u64>,
    stopping: bool,
    effects: VecDeque<Effect>,
}

impl Partitioning {
    /// Returns a server that begins at `now`. It reads all rows at a fixed interval; the first time is random, so that
    /// servers started together do not read together.
    pub fn new(config: Config, now: u64, drawn: u64) -> Self {
        let list_at = now + drawn % config.timing.list_every.max(1);
        Self {
            config,
            rows: BTreeMap::new(),
            held: BTreeMap::new(),
            pending: BTreeMap::new(),
            list_at,
            is_listing: false,
            take_at: None,
            stopping: false,
            effects: VecDeque::new(),
        }
    }

    /// Returns the next effect, in order.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns the lease if new work may be accepted for a partition at `now`.
    pub fn have(&self, partition: u32, now: u64) -> Option<Lease> {
        let held = self.held.get(&partition)?;
        (held.stage == Stage::Owned && now < held.until).then_some(held.lease)
    }

    /// Returns true if a lease holds at `now`, even while its partition is being acquired or released.
    pub fn check(&self, lease: Lease, now: u64) -> bool {
        self.lease_of(lease.partition, now) == Some(lease)
    }

    /// Returns the lease of a partition that holds at `now`.
    pub fn lease_of(&self, partition: u32, now: u64) -> Option<Lease> {
        let held = self.held.get(&partition)?;
        (held.is_owned() && now < held.until).then_some(held.lease)
    }

    /// Returns all partitions for which new work may be accepted at `now`.
    pub fn owned(&self, now: u64) -> impl Iterator<Item = Lease> + '_ {
        self.held.keys().filter_map(move |partition| self.have(*partition, now))
    }

    /// Returns true if it has stopped, without leases or pending work.
    pub fn is_over(&self) -> bool {
        self.stopping && self.held.is_empty() && self.pending.is_empty()
    }

    /// Returns the time of the next call of [`Self::tick`].
    pub fn wake_at(&self) -> u64 {
        let reads = !self.is_listing && !self.stopping;
        let ends = self.held.values().map(|held| held.until);
        let idle = self.held.iter().filter(|(partition, _)| !self.pending.contains_key(partition));
        let renewals = idle.map(|(_, held)| held.renew_at);
        let list = reads.then_some(self.list_at);
        let take = self.take_at.filter(|_| reads);
        ends.chain(renewals).chain(list).chain(take).min().unwrap_or(u64::MAX)
    }

    /// Advances the time.
    pub fn tick(&mut self, now: u64) {
        self.expire(now);
        self.shed();
        for (partition, held) in &self.held {
            if held.renew_at <= now && !self.pending.contains_key(partition) {
                self.pending.insert(*partition, Write { sent: now, goal: WriteGoal::Renew(held.lease) });
                let row = held.row(&self.config.name, now, false);
                self.effects.push_back(Effect::Put { partition: *partition, etag: held.etag, row });
            }
        }
        if self.stopping || self.is_listing {
            return;
        }
        if self.list_at <= now {
            // The next one is counted from the scheduled time of this one, unless that has passed as well.
            self.list_at = (self.list_at + self.config.timing.list_every).max(now + 1);
            self.is_listing = true;
            self.effects.push_back(Effect::List);
        } else if self.take_at.is_some_and(|at| at <= now) {
            self.take(now, 0);
        }
    }

    /// Handles all rows, as they were at some moment before `now`; `None` if they could not be read. The order of
    /// taking is random, so that servers with the same view do not all try the same row.
    pub fn listed(&mut self, rows: Option<Vec<ListedRow>>, now: u64, drawn: u64) {
        self.is_listing = false;
        self.expire(now);
        let Some(rows) = rows else { return };
        let mut before = std::mem::take(&mut self.rows);
        // A deleted row cannot be taken: it is forgotten.
        for ListedRow { partition, etag, row } in rows {
            let same = before.remove(&partition).filter(|seen| seen.etag == etag);
            self.rows.insert(partition, same.unwrap_or(KnownRow { etag, row, since: now }));
        }
        self.take(now, drawn);
    }

    /// Handles the result of a row's write. The time of the first renewal, or of a retry, is random.
    pub fn put(&mut self, partition: u32, put: Put, now: u64, drawn: u64) {
        let Some(write) = self.pending.remove(&partition) else { return };
        self.expire(now);
        match write.goal {
            WriteGoal::Take => self.taken(partition, write.sent, put, now, drawn),
            WriteGoal::Renew(lease) => self.renewed(lease, write.sent, put, now, drawn),
            // If it failed, other servers wait for the lease, as after a crash.
            WriteGoal::Break => {}
        }
    }

    /// Handles the end of the service's preparation: success or failure.
    pub fn acquired(&mut self, lease: Lease, well: bool, now: u64) {
        self.expire(now);
        let Some(held) = self.in_stage(lease, Stage::Acquiring) else { return };
        if well {
            held.stage = Stage::Owned;
            if self.stopping {
                self.release(lease, ReleaseReason::Stopped);
            }
        } else {
            self.give_up(lease, now);
        }
    }

    /// Handles the end of the service's work.
    pub fn released(&mut self, lease: Lease, now: u64) {
        self.expire(now);
        if self.in_stage(lease, Stage::Releasing).is_some() {
            self.give_up(lease, now);
        }
    }

    /// Drops a partition on the service's request. Returns true if it was held.
    pub fn drop_partition(&mut self, partition: u32, now: u64) -> bool {
        let Some(lease) = self.have(partition, now) else { return false };
        self.release(lease, ReleaseReason::Dropped);
        true
    }

    /// Sets the load of a partition.
    pub fn set_load(&mut self, partition: u32, load: u64) {
        if let Some(held) = self.held.get_mut(&partition) {
            held.load = load;
        }
    }

    /// Stops the server: releases everything, and takes nothing more.
    pub fn stop(&mut self) {
        self.stopping = true;
        let owned = self.held.values().filter(|held| held.stage == Stage::Owned).map(|held| held.lease);
        for lease in owned.collect::<Vec<_>>() {
            self.release(lease, ReleaseReason::Stopped);
        }
    }

    fn taken(&mut self, partition: u32, sent: u64, put: Put, now: u64, drawn: u64) {
        // A row taken by another server, or possibly by this one, is read again before the next attempt.
        let Some(seen) = self.rows.remove(&partition) else { return };
        let (Put::Written(etag), timing) = (put, self.config.timing) else { return };
        // Counted from the time of sending: the row was written later, so other servers count from a later time.
        let until = sent + timing.lease;
        if now < until {
            let lease = Lease { partition, token: etag.0 };
            let renew_at = sent + drawn % timing.renew_every.max(1);
            let (stage, load) = (Stage::Acquiring, seen.row.load);
            self.held.insert(partition, HeldLease { lease, stage, etag, until, renew_at, row: seen.row, load });
            self.effects.push_back(Effect::Acquire(lease));
        }
    }

    fn renewed(&mut self, lease: Lease, sent: u64, put: Put, now: u64, drawn: u64) {
        let timing = self.config.timing;
        let Some(held) = self.held.get_mut(&lease.partition).filter(|held| held.lease == lease) else { return };
        match put {
            Put::Written(etag) => {
                held.etag = etag;
                held.until = sent + timing.lease;
                held.renew_at += timing.renew_every;
                if held.renew_at <= now {
                    held.renew_at = now + drawn % timing.renew_every.max(1);
                }
            }
            // Another server took it, an operator changed it, or the answer to an earlier renewal was lost: in each
            // case the lease has ended.
            Put::Conflict => {
                let owned = held.is_owned();
                self.held.remove(&lease.partition);
                if owned {
                    self.effects.push_back(Effect::Lost(lease));
                }
                return;
            }
            Put::Unknown => held.renew_at = now + 1 + drawn % timing.renew_every.div_ceil(8),
        }
        if held.stage == Stage::Released {
            self.give_up(lease, now);
        }
    }

    /// Ends ownership, so that others may take the partition at once.
    fn give_up(&mut self, lease: Lease, now: u64) {
        let Some(held) = self.held.get_mut(&lease.partition) else { return };
        held.stage = Stage::Released;
        // The ETag is unknown until the pending renewal is answered.
        if !self.pending.contains_key(&lease.partition)
            && let Some(held) = self.held.remove(&lease.partition)
        {
            self.pending.insert(lease.partition, Write { sent: now, goal: WriteGoal::Break });
            let row = held.row(&self.config.name, now, true);
            self.effects.push_back(Effect::Put { partition: lease.partition, etag: held.etag, row });
        }
    }

    fn release(&mut self, lease: Lease, why: ReleaseReason) {
        if let Some(held) = self.in_stage(lease, Stage::Owned) {
            held.stage = Stage::Releasing;
            self.effects.push_back(Effect::Release(lease, why));
        }
    }

    /// Ends leases that were not renewed in time.
    fn expire(&mut self, now: u64) {
        let ended = self.held.values().filter(|held| held.until <= now).map(|held| (held.lease, held.is_owned()));
        for (lease, owned) in ended.collect::<Vec<_>>() {
            self.held.remove(&lease.partition);
            if owned {
                self.effects.push_back(Effect::Lost(lease));
            }
        }
    }

    /// Releases the heaviest partitions until the rest is within the server's load limit; but not the last one, which
    /// would be too heavy for any other server as well.
    fn shed(&mut self) {
        let Some(most) = self.config.load_max else { return };
        let kept = self.held.values().filter(|held| matches!(held.stage, Stage::Acquiring | Stage::Owned));
        let mut loads: Vec<(u64, Lease)> = kept.map(|held| (held.load, held.lease)).collect();
        loads.sort_unstable();
        let mut sum: u64 = loads.iter().map(|(load, _)| load).sum();
        while sum > most && loads.len() > 1 {
            let Some((load, lease)) = loads.pop() else { return };
            sum -= load;
            self.release(lease, ReleaseReason::Overloaded);
        }
    }

    /// Takes free partitions, as many as there is room for.
    fn take(&mut self, now: u64, drawn: u64) {
        self.take_at = None;
        let taking = self.pending.values().filter(|write| write.goal == WriteGoal::Take).count();
        let mut room = self.config.partitions_max.saturating_sub(self.held.len() + taking);
        if room == 0 || self.stopping || self.rows.is_empty() {
            return;
        }
        let mut load: u64 = self.held.values().map(|held| held.load).sum();
        let first = (drawn % self.rows.len() as u64) as usize;
        let order = self.rows.iter().skip(first).chain(self.rows.iter().take(first));
        for (partition, seen) in order {
            let (row, fits) =
                (&seen.row, self.config.load_max.is_none_or(|most| load == 0 || load + seen.row.load <= most));
            let is_ours = self.held.contains_key(partition) || self.pending.contains_key(partition);
            if room == 0 || is_ours || !fits || row.prohibited.contains(&self.config.name) {
                continue;
            }
            let free_at = seen.since + self.config.timing.take_over;
            if !row.broken && !row.server.is_empty() && now < free_at {
                self.take_at = Some(self.take_at.map_or(free_at, |at| at.min(free_at)));
                continue;
            }
            room -= 1;
            load += row.load;
            self.pending.insert(*partition, Write { sent: now, goal: WriteGoal::Take });
            let row = Row { server: self.config.name.clone(), at_ms: now, broken: false, ..Row::clone(row) };
            self.effects.push_back(Effect::Put { partition: *partition, etag: seen.etag, row });
        }
    }

    fn in_stage(&mut self, lease: Lease, stage: Stage) -> Option<&mut HeldLease> {
        self.held.get_mut(&lease.partition).filter(|held| held.lease == lease && held.stage == stage)
    }
}
