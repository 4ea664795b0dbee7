//! Clients: a few operations at once each, retried until a deadline under one number, as the client library does it.

use crate::event::Event;
use crate::host::slot::{Outcome, Request};
use crate::mutant::ShellMutant;
use crate::network::End;
use crate::world::World;
use archon_types::{Answer, ClientId, ErrorKind, Millis, Op, OpId, PartitionId, Revision, TableId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Operations that a client has under way at once.
const LANES: usize = 2;
/// Keys per partition: few, so that operations meet.
const KEYS: u64 = 3;

/// Where an answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) client: usize,
    lane: usize,
    call: u64,
}

/// An operation under way.
#[derive(Clone, Debug)]
struct Call {
    number: u64,
    partition: PartitionId,
    key: Bytes,
    op: Op,
    id: Option<OpId>,
    /// The history's floor when it began.
    floor: u64,
    deadline: u64,
    attempts: u32,
    /// The timer that counts; an older one is ignored.
    timer: u64,
}

#[derive(Debug, Default)]
struct Sequence {
    next: u64,
    under_way: BTreeSet<u64>,
    log_time: Millis,
}

impl Sequence {
    fn done_below(&self) -> u64 {
        self.under_way.first().copied().unwrap_or(self.next + 1)
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    id: ClientId,
    guess: BTreeMap<PartitionId, usize>,
    sequences: BTreeMap<PartitionId, Sequence>,
    seen: BTreeMap<(PartitionId, Bytes), Revision>,
    lanes: Vec<Option<Call>>,
    calls: u64,
    timers: u64,
}

impl World {
    pub(crate) fn add_client(&mut self, number: usize) {
        let id = ClientId::new(Uuid::from_u128(self.unique()));
        self.clients.push(Client {
            id,
            guess: BTreeMap::new(),
            sequences: BTreeMap::new(),
            seen: BTreeMap::new(),
            lanes: (0..LANES).map(|_| None).collect(),
            calls: 0,
            timers: 0,
        });
        for lane in 0..LANES {
            let delay = self.random.between(50, 150);
            self.after(delay, Event::Client { client: number, lane, token: 0 });
        }
    }

    /// A timer of a client: begin an operation, or try one again.
    pub(crate) fn client_turn(&mut self, client: usize, lane: usize, token: u64) {
        match &self.clients[client].lanes[lane] {
            None if token == 0 => self.begin_call(client, lane),
            Some(call) if call.timer == token => {
                if self.truth >= call.deadline {
                    self.end_call(client, lane);
                } else {
                    self.attempt(client, lane);
                }
            }
            _ => {}
        }
    }

    fn begin_call(&mut self, client: usize, lane: usize) {
        if self.checks.quiet {
            return;
        }
        if self.random.permille(15) && self.clients[client].lanes.iter().all(Option::is_none) {
            // Another instance takes its place.
            let id = ClientId::new(Uuid::from_u128(self.unique()));
            let own = &mut self.clients[client];
            own.id = id;
            own.sequences.clear();
        }
        let index = u16::try_from(self.random.below(u64::from(self.plan.settings.partitions))).unwrap_or(0);
        let partition = PartitionId::new(TableId::new(1), index);
        let deadline = self.truth + self.random.between(self.plan.unit_ms() * 5, self.plan.unit_ms() * 40);
        let kind = self.random.below(10);
        let key = match kind {
            0 | 1 => Bytes::from_static(b"count"),
            _ => Bytes::from(format!("k{}", self.random.below(KEYS))),
        };
        let floor = self.checks.of(partition).history.floor(&key);
        let own = &mut self.clients[client];
        own.calls += 1;
        let number = own.calls;
        let value = Bytes::from(format!("{client}.{number}"));
        let op = match kind {
            0 | 1 => Op::Increment { key: key.clone(), by: 1 },
            2..=4 => Op::Put { key: key.clone(), value },
            5 => {
                let expected = own.seen.get(&(partition, key.clone())).copied().unwrap_or(Revision::ZERO);
                Op::CompareAndSet { key: key.clone(), expected, value }
            }
            _ => Op::Get { key: key.clone() },
        };
        let sequence = own.sequences.entry(partition).or_default();
        let id = (!op.is_read()).then(|| {
            sequence.next += 1;
            sequence.under_way.insert(sequence.next);
            let done_below = sequence.done_below();
            OpId { client: own.id, number: sequence.next, done_below, stamp: sequence.log_time }
        });
        let call = Call { number, partition, key, op, id, floor, deadline, attempts: 0, timer: 0 };
        own.lanes[lane] = Some(call);
        self.attempt(client, lane);
    }

    fn attempt(&mut self, client: usize, lane: usize) {
        let hosts = self.hosts.len();
        let (renumber, restamp) = (self.breaks(ShellMutant::RetryRenumbered), self.breaks(ShellMutant::RetryRestamped));
        let wander = self.random.permille(200);
        let random = self.random.index(hosts);
        let patience = self.random.between(self.plan.unit_ms(), self.plan.unit_ms() * 5);
        let own = &mut self.clients[client];
        let Some(call) = &mut own.lanes[lane] else { return };
        own.timers += 1;
        call.timer = own.timers;
        call.attempts += 1;
        let sequence = own.sequences.entry(call.partition).or_default();
        if let Some(id) = &mut call.id {
            if renumber && call.attempts > 1 {
                sequence.under_way.remove(&id.number);
                sequence.next += 1;
                id.number = sequence.next;
                sequence.under_way.insert(id.number);
            }
            if restamp {
                id.stamp = id.stamp.max(sequence.log_time);
            }
            id.done_below = sequence.done_below();
        }
        let guess = own.guess.entry(call.partition).or_insert(random);
        if call.attempts > 1 && wander {
            *guess = random;
        }
        let host = *guess;
        let reply = ReplyTo { client, lane, call: call.number };
        let request = Request { partition: call.partition, op: call.op.clone(), id: call.id, reply };
        let token = call.timer;
        // A connection delivers a request once or not at all; late is possible.
        let (from, to) = (End::Client(client), End::Host(host));
        let delays = self.network.delays(self.truth, from, to, &mut self.random, &self.plan);
        if let Some(delay) = delays.last() {
            self.after(*delay, Event::Request { host, request: Box::new(request) });
        }
        self.after(patience, Event::Client { client, lane, token });
    }

    pub(crate) fn on_reply(
        &mut self,
        client: usize,
        to: ReplyTo,
        log_time: Millis,
        outcome: Outcome,
        leader: Option<usize>,
    ) {
        let own = &mut self.clients[client];
        let Some(call) = own.lanes[to.lane].as_mut().filter(|call| call.number == to.call) else { return };
        let partition = call.partition;
        let sequence = own.sequences.entry(partition).or_default();
        sequence.log_time = sequence.log_time.max(log_time);
        if let Some(leader) = leader {
            own.guess.insert(partition, leader);
        }
        match outcome {
            Ok(answer) => {
                let call = call.clone();
                self.trace.note(self.truth, || format!("client {client} {:?} answered {answer:?}", call.op));
                self.complete(client, &call, &answer);
                self.end_call(client, to.lane);
            }
            Err(ErrorKind::MaybeApplied) if call.attempts == 1 && log_time > Millis::ZERO => {
                // The first attempt, and the only one: it may be stamped anew (rule 24).
                if let Some(id) = &mut call.id
                    && sequence.log_time > id.stamp
                {
                    id.stamp = sequence.log_time;
                    self.coverage.restamps += 1;
                    return self.attempt(client, to.lane);
                }
                self.end_call(client, to.lane);
            }
            Err(ErrorKind::MaybeApplied) => self.end_call(client, to.lane),
            Err(_) => {
                own.timers += 1;
                call.timer = own.timers;
                let token = call.timer;
                let pause = self.random.between(3, self.plan.unit_ms());
                self.after(pause, Event::Client { client, lane: to.lane, token });
            }
        }
    }

    fn complete(&mut self, client: usize, call: &Call, answer: &Answer) {
        let history = &mut self.checks.of(call.partition).history;
        let (key, floor) = (&call.key, call.floor);
        let (checked, revision) = match (&call.op, answer) {
            (Op::Put { value, .. } | Op::CompareAndSet { value, .. }, Answer::Written { revision }) => {
                (history.wrote(key, floor, *revision, Some(value)), *revision)
            }
            (Op::CompareAndSet { .. }, Answer::ConditionFailed { revision }) => {
                (history.saw(key, floor, *revision, None), *revision)
            }
            (Op::Increment { .. }, Answer::Counter { value, revision }) => {
                let value = Bytes::from(value.to_string());
                (history.wrote(key, floor, *revision, Some(&value)), *revision)
            }
            (Op::Get { .. }, Answer::Value(Some((value, revision)))) => {
                (history.saw(key, floor, *revision, Some(value)), *revision)
            }
            (Op::Get { .. }, Answer::Value(None)) => (history.saw(key, floor, Revision::ZERO, None), Revision::ZERO),
            (op, answer) => {
                let detail = format!("{op:?} was answered {answer:?}");
                (Err(crate::check::Violation::NotLinearizable { detail }), Revision::ZERO)
            }
        };
        self.judge(checked);
        *self.checks.answered.entry(call.partition).or_default() += 1;
        self.clients[client].seen.insert((call.partition, call.key.clone()), revision);
    }

    /// The operation is over, as far as its client is concerned.
    fn end_call(&mut self, client: usize, lane: usize) {
        let own = &mut self.clients[client];
        if let Some(call) = own.lanes[lane].take()
            && let Some(id) = call.id
            && let Some(sequence) = own.sequences.get_mut(&call.partition)
        {
            sequence.under_way.remove(&id.number);
        }
        let pause = self.random.between(1, self.plan.unit_ms() / 2);
        self.after(pause, Event::Client { client, lane, token: 0 });
    }
}
