//! Many servers in virtual time: hours pass in seconds, and the same seed is the same run.
//!
//! Each server has a clock with its own offset and rate. Requests to the store and their answers take time; both may be
//! lost, or arrive after their receiver has stopped waiting.

use super::memory::MemoryRows;
use super::partitioning::{Config, Effect, Partitioning};
use super::row::{Etag, ListedRow, Row};
use super::store::Put;
use super::timing::Timing;
use std::collections::{BTreeMap, BTreeSet};

/// Properties of messages and clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// Maximum delay of a message, in milliseconds.
    pub delay_max: u64,
    /// One message in this many is lost; none if it is 0.
    pub lost_one_in: u64,
    /// One message in this many takes up to two take-over times; none if it is 0.
    pub late_one_in: u64,
    /// Time-out of a server's request, in milliseconds.
    pub timeout: u64,
    /// Maximum clock drift, in millionths.
    pub drift_ppm: u64,
}

impl Conditions {
    /// Messages take up to a fifth of a second, and clocks are off by a twentieth of a second in two minutes.
    pub const FAIR: Self = Self { delay_max: 200, lost_one_in: 0, late_one_in: 0, timeout: 12_000, drift_ppm: 417 };
}

/// A fault of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It dies.
    Kill,
    /// It restarts, without state.
    Start,
    /// It is paused for this many milliseconds, without noticing.
    Pause(u64),
    /// An operator writes the row of this partition, so that its holder loses it.
    Bump(u32),
    /// It drops one of its partitions.
    Drop,
    /// It stops cleanly.
    Stop,
}

/// Counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Rows read.
    pub rows_read: u64,
    /// Writes that renewed a lease.
    pub renewals: u64,
    /// Writes that took or broke one.
    pub other_writes: u64,
    /// Writes with an outdated ETag.
    pub conflicts: u64,
}

struct Server {
    config: Config,
    /// `None` while it is dead.
    decides: Option<Partitioning>,
    /// Incremented by each death: messages to an earlier incarnation are dropped.
    life: u64,
    clock_began: u64,
    rate_ppm: u64,
    paused_until: u64,
    /// Time of its next wake-up.
    wakes_at: u64,
    /// Pending requests, by number.
    waiting: BTreeSet<u64>,
}

enum Event {
    Wake {
        server: usize,
        life: u64,
    },
    /// Arrives at the store; the answer takes this long, unless it is lost.
    Request {
        server: usize,
        life: u64,
        number: u64,
        asked: StoreRequest,
        back_after: Option<u64>,
    },
    Answer {
        server: usize,
        life: u64,
        number: u64,
        answer: Answer,
    },
    Fault {
        server: usize,
        fault: Fault,
    },
}

enum StoreRequest {
    List,
    Put { partition: u32, etag: Etag, row: Row },
}

enum Answer {
    Listed(Option<Vec<ListedRow>>),
    Put(u32, Put),
}

/// Servers, their store, and the messages in flight between them.
pub struct World {
    now: u64,
    random: u64,
    timing: Timing,
    conditions: Conditions,
    rows: MemoryRows,
    servers: Vec<Server>,
    /// By time, then by order of creation.
    events: BTreeMap<(u64, u64), Event>,
    made: u64,
    counts: Counts,
    two_owners: Vec<String>,
}

impl World {
    /// Creates this many servers that begin at once, each with room for `partitions_max` of the partitions.
    pub fn new(
        seed: u64,
        timing: Timing,
        conditions: Conditions,
        partitions: u32,
        servers: usize,
        partitions_max: usize,
    ) -> Self {
        let mut world = Self {
            now: 0,
            random: seed,
            timing,
            conditions,
            rows: MemoryRows::create(partitions),
            servers: Vec::new(),
            events: BTreeMap::new(),
            made: 0,
            counts: Counts::default(),
            two_owners: Vec::new(),
        };
        for number in 0..servers {
            let config = Config { name: format!("s{number}"), timing, partitions_max, load_max: None };
            let (clock_began, drift) = (world.draw(1 << 40), world.draw(2 * conditions.drift_ppm + 1));
            let rate_ppm = 1_000_000 + drift - conditions.drift_ppm;
            world.servers.push(Server {
                config,
                decides: None,
                life: 0,
                clock_began,
                rate_ppm,
                paused_until: 0,
                wakes_at: u64::MAX,
                waiting: BTreeSet::new(),
            });
            world.fault_after(0, number, Fault::Start);
        }
        world
    }

    /// Schedules a fault of a server, in milliseconds from now.
    pub fn fault_after(&mut self, after: u64, server: usize, fault: Fault) {
        self.add(self.now + after, Event::Fault { server, fault });
    }

    /// Returns the store, for operators.
    pub fn rows(&self) -> &MemoryRows {
        &self.rows
    }

    /// Returns the counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Returns each case in which two servers believed in one partition.
    pub fn two_owners(&self) -> &[String] {
        &self.two_owners
    }

    /// Returns the number of partitions for which each server accepts work, each by its own clock.
    pub fn owned(&self) -> Vec<usize> {
        let owned = |server: &Server| {
            let decides = server.decides.as_ref()?;
            Some(decides.owned(server.clock(self.now)).count())
        };
        self.servers.iter().map(|server| owned(server).unwrap_or(0)).collect()
    }

    /// Advances the time by this many milliseconds.
    pub fn run_for(&mut self, time: u64) {
        let end = self.now + time;
        while let Some(event) = self.events.first_entry().filter(|event| event.key().0 <= end) {
            let ((at, _), event) = event.remove_entry();
            self.now = at;
            self.happen(event);
        }
        self.now = end;
    }

    /// Runs until this holds, but at most for `most` milliseconds; checks every second. Returns the time taken.
    pub fn run_until(&mut self, most: u64, holds: impl Fn(&Self) -> bool) -> Option<u64> {
        let began = self.now;
        while self.now < began + most {
            if holds(self) {
                return Some(self.now - began);
            }
            self.run_for(1_000);
        }
        None
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request { server, life, number, asked, back_after } => {
                let answer = self.ask_store(asked);
                if let Some(after) = back_after {
                    self.add(self.now + after, Event::Answer { server, life, number, answer });
                }
            }
            Event::Wake { server, life } | Event::Answer { server, life, .. } => {
                let Server { life: lives, paused_until, .. } = self.servers[server];
                if lives != life {
                    return;
                }
                if paused_until > self.now {
                    self.add(paused_until, event);
                    return;
                }
                self.proceed(server, event);
            }
            Event::Fault { server, fault } => self.inject(server, fault),
        }
    }

    /// Handles an event of a server that is awake.
    fn proceed(&mut self, number: usize, event: Event) {
        let drawn = self.draw(u64::MAX);
        let server = &mut self.servers[number];
        let local = server.clock(self.now);
        let Some(decides) = server.decides.as_mut() else { return };
        let mut written = None;
        match event {
            // It has an answer already, or has stopped waiting.
            Event::Answer { number, .. } if !server.waiting.remove(&number) => return,
            Event::Answer { answer: Answer::Listed(rows), .. } => decides.listed(rows, local, drawn),
            Event::Answer { answer: Answer::Put(partition, put), .. } => {
                decides.put(partition, put, local, drawn);
                written = Some(partition);
            }
            _ if server.wakes_at > self.now => return,
            _ => {
                server.wakes_at = u64::MAX;
                decides.tick(local);
            }
        }
        self.follow(number);
        if let Some(partition) = written {
            self.look_for_two_owners(partition);
        }
    }

    fn ask_store(&mut self, asked: StoreRequest) -> Answer {
        match asked {
            StoreRequest::List => {
                let rows = self.rows.read();
                self.counts.rows_read += rows.len() as u64;
                Answer::Listed(Some(rows))
            }
            StoreRequest::Put { partition, etag, row } => {
                let renews = {
                    let before = self.rows.get(partition);
                    before.is_some_and(|before| before.server == row.server && !before.broken) && !row.broken
                };
                let put = self.rows.write_if(partition, etag, row);
                match put {
                    Put::Conflict => self.counts.conflicts += 1,
                    _ if renews => self.counts.renewals += 1,
                    _ => self.counts.other_writes += 1,
                }
                Answer::Put(partition, put)
            }
        }
    }

    /// Carries out a server's decisions.
    fn follow(&mut self, number: usize) {
        let local = self.servers[number].clock(self.now);
        while let Some(effect) = self.servers[number].decides.as_mut().and_then(Partitioning::next_effect) {
            let Some(decides) = self.servers[number].decides.as_mut() else { return };
            match effect {
                Effect::List => self.send(number, StoreRequest::List, Answer::Listed(None)),
                Effect::Put { partition, etag, row } => {
                    let asked = StoreRequest::Put { partition, etag, row };
                    self.send(number, asked, Answer::Put(partition, Put::Unknown));
                }
                // The service takes no time.
                Effect::Acquire(lease) => decides.acquired(lease, true, local),
                Effect::Release(lease, _) => decides.released(lease, local),
                Effect::Lost(_) => {}
            }
        }
        let server = &mut self.servers[number];
        let Some(wake_at) = server.decides.as_ref().map(Partitioning::wake_at) else { return };
        let (at, life) = (server.time(wake_at).max(self.now + 1), server.life);
        if at < server.wakes_at {
            server.wakes_at = at;
            self.add(at, Event::Wake { server: number, life });
        }
    }

    fn send(&mut self, number: usize, asked: StoreRequest, unanswered: Answer) {
        let request = self.made;
        let life = self.servers[number].life;
        self.servers[number].waiting.insert(request);
        let timeout = self.now + self.conditions.timeout;
        self.add(timeout, Event::Answer { server: number, life, number: request, answer: unanswered });
        let (there, back_after) = (self.trip(), self.trip());
        if let Some(there) = there {
            self.add(self.now + there, Event::Request { server: number, life, number: request, asked, back_after });
        }
    }

    /// Returns the delay of a message; `None` if it is lost.
    fn trip(&mut self) -> Option<u64> {
        let Conditions { delay_max, lost_one_in, late_one_in, .. } = self.conditions;
        if lost_one_in > 0 && self.draw(lost_one_in) == 0 {
            return None;
        }
        let late = late_one_in > 0 && self.draw(late_one_in) == 0;
        Some(1 + self.draw(if late { 2 * self.timing.take_over } else { delay_max }))
    }

    fn inject(&mut self, number: usize, fault: Fault) {
        let (now, drawn) = (self.now, self.draw(u64::MAX));
        let server = &mut self.servers[number];
        let local = server.clock(now);
        match fault {
            Fault::Kill | Fault::Start => {
                server.life += 1;
                server.paused_until = 0;
                server.wakes_at = u64::MAX;
                server.waiting.clear();
                let config = server.config.clone();
                server.decides = (fault == Fault::Start).then(|| Partitioning::new(config, local, drawn));
            }
            Fault::Pause(time) => server.paused_until = now + time,
            Fault::Bump(partition) => self.rows.operate(partition, Some),
            Fault::Drop | Fault::Stop if server.paused_until > now => {}
            Fault::Drop => {
                if let Some(decides) = server.decides.as_mut() {
                    let owned: Vec<u32> = decides.owned(local).map(|lease| lease.partition).collect();
                    if !owned.is_empty() {
                        decides.drop_partition(owned[drawn as usize % owned.len()], local);
                    }
                }
            }
            Fault::Stop => {
                if let Some(decides) = server.decides.as_mut() {
                    decides.stop();
                }
            }
        }
        self.follow(number);
    }

    /// Checks for a second owner: a server's belief begins with an answer to a write; it ends by the clock, whatever
    /// the server does.
    fn look_for_two_owners(&mut self, partition: u32) {
        let believes = |server: &&Server| {
            let decides = server.decides.as_ref();
            decides.is_some_and(|decides| decides.lease_of(partition, server.clock(self.now)).is_some())
        };
        let names: Vec<&str> = self.servers.iter().filter(believes).map(|server| server.config.name.as_str()).collect();
        if names.len() > 1 {
            self.two_owners.push(format!("{partition} at {} ms: {}", self.now, names.join(", ")));
        }
    }

    fn add(&mut self, at: u64, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    /// Returns a number below this one.
    fn draw(&mut self, below: u64) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }
}

impl Server {
    /// Returns what its clock shows at a time.
    fn clock(&self, time: u64) -> u64 {
        self.clock_began + time * self.rate_ppm / 1_000_000
    }

    /// Returns the time at which its clock shows this.
    fn time(&self, clock: u64) -> u64 {
        clock.saturating_sub(self.clock_began).saturating_mul(1_000_000).div_ceil(self.rate_ppm)
    }
}
