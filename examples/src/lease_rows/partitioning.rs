//! What a server decides. The time on its own clock and numbers drawn by chance are given to it, what is to be done comes out.

use super::held::{HeldLease, Lease, Stage, Why};
use super::row::{Etag, Listed, Row};
use super::store::Put;
use super::timing::Timing;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What a server is told of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Its name; no two servers of a service have the same.
    pub name: String,
    /// The same for all servers.
    pub timing: Timing,
    /// Most partitions it takes ([`super::max_count`]).
    pub partitions_max: usize,
    /// Most load it carries, as its partitions tell it.
    pub load_max: Option<u64>,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Read all rows, and hand them to [`Partitioning::listed`].
    List,
    /// Write a row, and hand what became of it to [`Partitioning::put`]. Of one partition there is one at a time.
    Put {
        /// The partition.
        partition: u32,
        /// Under which ETag.
        etag: Etag,
        /// What.
        row: Row,
    },
    /// Let the service make ready, then call [`Partitioning::acquired`].
    Acquire(Lease),
    /// Let the service bring its work to an end, then call [`Partitioning::released`].
    Release(Lease, Why),
    /// Tell the service that it is over, and break off what it does for it.
    Lost(Lease),
}

/// A row as this server knows it.
#[derive(Debug)]
struct Seen {
    etag: Etag,
    row: Arc<Row>,
    /// When it had read the row with this ETag for the first time.
    since: u64,
}

/// A write that was sent.
#[derive(Clone, Copy, Debug)]
struct Write {
    sent: u64,
    to: To,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    Take,
    Renew(Lease),
    Break,
}

/// The decisions of one server. Times are milliseconds of a clock of its own, which never goes back.
#[derive(Debug)]
pub struct Partitioning {
    config: Config,
    seen: BTreeMap<u32, Seen>,
    held: BTreeMap<u32, HeldLease>,
    /// Writes without an answer. Of a partition there is one at a time, so none is taken for another.
    under_way: BTreeMap<u32, Write>,
    list_at: u64,
    is_listing: bool,
    /// When a row that stays the same may be taken.
    take_at: Option<u64>,
    stopping: bool,
    effects: VecDeque<Effect>,
}

impl Partitioning {
    /// A server that begins at `now`. It reads all rows every so often; when it begins to is drawn, so that servers which are
    /// started together do not read together.
    pub fn new(config: Config, now: u64, drawn: u64) -> Self {
        let list_at = now + drawn % config.timing.list_every.max(1);
        Self {
            config,
            seen: BTreeMap::new(),
            held: BTreeMap::new(),
            under_way: BTreeMap::new(),
            list_at,
            is_listing: false,
            take_at: None,
            stopping: false,
            effects: VecDeque::new(),
        }
    }

    /// What is to be done next, in this order.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether new work may be taken for a partition at `now`.
    pub fn have(&self, partition: u32, now: u64) -> Option<Lease> {
        let held = self.held.get(&partition)?;
        (held.stage == Stage::Owned && now < held.until).then_some(held.lease)
    }

    /// Whether a lease holds at `now`, be it that its partition is being acquired or released.
    pub fn check(&self, lease: Lease, now: u64) -> bool {
        self.lease_of(lease.partition, now) == Some(lease)
    }

    /// The lease of a partition that holds at `now`.
    pub fn lease_of(&self, partition: u32, now: u64) -> Option<Lease> {
        let held = self.held.get(&partition)?;
        (held.is_owned() && now < held.until).then_some(held.lease)
    }

    /// All partitions for which new work may be taken at `now`.
    pub fn owned(&self, now: u64) -> impl Iterator<Item = Lease> + '_ {
        self.held.keys().filter_map(move |partition| self.have(*partition, now))
    }

    /// Whether it has stopped, holds nothing and has nothing under way.
    pub fn is_over(&self) -> bool {
        self.stopping && self.held.is_empty() && self.under_way.is_empty()
    }

    /// When [`Self::tick`] is to be called next.
    pub fn wake_at(&self) -> u64 {
        let reads = !self.is_listing && !self.stopping;
        let ends = self.held.values().map(|held| held.until);
        let idle = self.held.iter().filter(|(partition, _)| !self.under_way.contains_key(partition));
        let renewals = idle.map(|(_, held)| held.renew_at);
        let list = reads.then_some(self.list_at);
        let take = self.take_at.filter(|_| reads);
        ends.chain(renewals).chain(list).chain(take).min().unwrap_or(u64::MAX)
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64) {
        self.expire(now);
        self.shed();
        for (partition, held) in &self.held {
            if held.renew_at <= now && !self.under_way.contains_key(partition) {
                self.under_way.insert(*partition, Write { sent: now, to: To::Renew(held.lease) });
                let row = held.row(&self.config.name, now, false);
                self.effects.push_back(Effect::Put { partition: *partition, etag: held.etag, row });
            }
        }
        if self.stopping || self.is_listing {
            return;
        }
        if self.list_at <= now {
            // The next one is counted from when this one was to be, unless that is over as well.
            self.list_at = (self.list_at + self.config.timing.list_every).max(now + 1);
            self.is_listing = true;
            self.effects.push_back(Effect::List);
        } else if self.take_at.is_some_and(|at| at <= now) {
            self.take(now, 0);
        }
    }

    /// All rows, as they were at some moment before `now`; none if they could not be read. Which of them are taken first is drawn,
    /// so that servers which see the same do not all try the same.
    pub fn listed(&mut self, rows: Option<Vec<Listed>>, now: u64, drawn: u64) {
        self.is_listing = false;
        self.expire(now);
        let Some(rows) = rows else { return };
        let mut before = std::mem::take(&mut self.seen);
        // A row that is gone is nobody's to take: it is forgotten.
        for Listed { partition, etag, row } in rows {
            let same = before.remove(&partition).filter(|seen| seen.etag == etag);
            self.seen.insert(partition, same.unwrap_or(Seen { etag, row, since: now }));
        }
        self.take(now, drawn);
    }

    /// What became of the write of a row. When the lease is renewed for the first time, or is tried again, is drawn.
    pub fn put(&mut self, partition: u32, put: Put, now: u64, drawn: u64) {
        let Some(write) = self.under_way.remove(&partition) else { return };
        self.expire(now);
        match write.to {
            To::Take => self.taken(partition, write.sent, put, now, drawn),
            To::Renew(lease) => self.renewed(lease, write.sent, put, now, drawn),
            // Where this failed, others wait as if the server had died.
            To::Break => {}
        }
    }

    /// The service has made ready, or could not.
    pub fn acquired(&mut self, lease: Lease, well: bool, now: u64) {
        self.expire(now);
        let Some(held) = self.in_stage(lease, Stage::Acquiring) else { return };
        if well {
            held.stage = Stage::Owned;
            if self.stopping {
                self.release(lease, Why::Stopped);
            }
        } else {
            self.give_up(lease, now);
        }
    }

    /// The service has brought its work to an end.
    pub fn released(&mut self, lease: Lease, now: u64) {
        self.expire(now);
        if self.in_stage(lease, Stage::Releasing).is_some() {
            self.give_up(lease, now);
        }
    }

    /// The service gives up a partition. Returns whether it had it.
    pub fn drop_partition(&mut self, partition: u32, now: u64) -> bool {
        let Some(lease) = self.have(partition, now) else { return false };
        self.release(lease, Why::Dropped);
        true
    }

    /// What a partition costs from now on.
    pub fn set_load(&mut self, partition: u32, load: u64) {
        if let Some(held) = self.held.get_mut(&partition) {
            held.load = load;
        }
    }

    /// The server stops: all is released, and nothing taken any more.
    pub fn stop(&mut self) {
        self.stopping = true;
        let owned = self.held.values().filter(|held| held.stage == Stage::Owned).map(|held| held.lease);
        for lease in owned.collect::<Vec<_>>() {
            self.release(lease, Why::Stopped);
        }
    }

    fn taken(&mut self, partition: u32, sent: u64, put: Put, now: u64, drawn: u64) {
        // What somebody else took, or perhaps we, has to be read again before it is tried again.
        let Some(seen) = self.seen.remove(&partition) else { return };
        let (Put::Written(etag), timing) = (put, self.config.timing) else { return };
        // Counted from before it was sent: the row was not written earlier, so others count from later.
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
            // Somebody took it, an operator touched it, or the answer to an earlier renewal was lost: in each case it is over.
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

    /// Others may take it at once. It is not owned any more from here on.
    fn give_up(&mut self, lease: Lease, now: u64) {
        let Some(held) = self.held.get_mut(&lease.partition) else { return };
        held.stage = Stage::Released;
        // Its ETag is known once the renewal that is under way was answered.
        if !self.under_way.contains_key(&lease.partition)
            && let Some(held) = self.held.remove(&lease.partition)
        {
            self.under_way.insert(lease.partition, Write { sent: now, to: To::Break });
            let row = held.row(&self.config.name, now, true);
            self.effects.push_back(Effect::Put { partition: lease.partition, etag: held.etag, row });
        }
    }

    fn release(&mut self, lease: Lease, why: Why) {
        if let Some(held) = self.in_stage(lease, Stage::Owned) {
            held.stage = Stage::Releasing;
            self.effects.push_back(Effect::Release(lease, why));
        }
    }

    /// What was not renewed in time is over.
    fn expire(&mut self, now: u64) {
        let ended = self.held.values().filter(|held| held.until <= now).map(|held| (held.lease, held.is_owned()));
        for (lease, owned) in ended.collect::<Vec<_>>() {
            self.held.remove(&lease.partition);
            if owned {
                self.effects.push_back(Effect::Lost(lease));
            }
        }
    }

    /// Releases the heaviest partitions until the rest is within what the server may carry; but not the last one, which would be
    /// too heavy for any other server as well.
    fn shed(&mut self) {
        let Some(most) = self.config.load_max else { return };
        let kept = self.held.values().filter(|held| matches!(held.stage, Stage::Acquiring | Stage::Owned));
        let mut loads: Vec<(u64, Lease)> = kept.map(|held| (held.load, held.lease)).collect();
        loads.sort_unstable();
        let mut sum: u64 = loads.iter().map(|(load, _)| load).sum();
        while sum > most && loads.len() > 1 {
            let Some((load, lease)) = loads.pop() else { return };
            sum -= load;
            self.release(lease, Why::Overloaded);
        }
    }

    /// Takes what is free, as much as there is room for.
    fn take(&mut self, now: u64, drawn: u64) {
        self.take_at = None;
        let taking = self.under_way.values().filter(|write| write.to == To::Take).count();
        let mut room = self.config.partitions_max.saturating_sub(self.held.len() + taking);
        if room == 0 || self.stopping || self.seen.is_empty() {
            return;
        }
        let mut load: u64 = self.held.values().map(|held| held.load).sum();
        let first = (drawn % self.seen.len() as u64) as usize;
        let order = self.seen.iter().skip(first).chain(self.seen.iter().take(first));
        for (partition, seen) in order {
            let (row, fits) =
                (&seen.row, self.config.load_max.is_none_or(|most| load == 0 || load + seen.row.load <= most));
            let is_ours = self.held.contains_key(partition) || self.under_way.contains_key(partition);
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
            self.under_way.insert(*partition, Write { sent: now, to: To::Take });
            let row = Row { server: self.config.name.clone(), at_ms: now, broken: false, ..Row::clone(row) };
            self.effects.push_back(Effect::Put { partition: *partition, etag: seen.etag, row });
        }
    }

    fn in_stage(&mut self, lease: Lease, stage: Stage) -> Option<&mut HeldLease> {
        self.held.get_mut(&lease.partition).filter(|held| held.lease == lease && held.stage == stage)
    }
}
