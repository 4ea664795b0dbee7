//! Clients with a few concurrent operations each. An operation with an id is retried until a deadline under that id, as
//! in the client library; one without is sent once, and its outcome is unknown unless answered.

pub(crate) mod calls;
mod complete;
mod draw;
pub(crate) mod keys;
pub(crate) mod replica_reads;
pub(crate) mod replicas;
mod route;

use crate::client::calls::{Client, Operation, Outcome, ReplyTo};
use crate::event::Event;
use crate::mutant::ShellMutant;
use crate::network::End;
use crate::world::World;
use archon_host::{Origin, Request};
use archon_types::{ClientId, Epoch, ErrorKind, Millis, PartitionId, Version};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Concurrent operations of a client.
const WORKERS: usize = 3;

impl World {
    pub(crate) fn add_client(&mut self, number: usize) {
        let id = ClientId::new(Uuid::from_u128(self.unique()));
        self.clients.push(Client {
            id,
            guess: BTreeMap::new(),
            sequences: BTreeMap::new(),
            seen: BTreeMap::new(),
            ranges: BTreeMap::new(),
            held: BTreeSet::new(),
            informed: BTreeSet::new(),
            workers: (0..WORKERS).map(|_| None).collect(),
            calls: 0,
            timers: 0,
        });
        for worker in 0..WORKERS {
            let delay = self.random.between(50, 150);
            self.after(delay, Event::Client { client: number, worker, token: 0 });
        }
    }

    /// Handles a timer of a client: begins or retries an operation.
    pub(crate) fn client_turn(&mut self, client: usize, worker: usize, token: u64) {
        match &self.clients[client].workers[worker] {
            None if token == 0 => self.begin_call(client, worker),
            Some(call) if call.timer == token => {
                // It is sent again only if it certainly did not take effect.
                let once = call.id.is_none() && !call.op.is_read() && call.attempts > 0;
                let informed = self.clients[client].informed.contains(&call.partition.table);
                if self.truth >= call.deadline || once || informed {
                    self.coverage.unnamed_unknown += u64::from(once);
                    self.end_call(client, worker);
                } else {
                    self.follow_key(client, worker);
                    if self.goes_on_after_merge(client, worker) {
                        self.attempt(client, &[worker]);
                    }
                }
            }
            _ => {}
        }
    }

    fn begin_call(&mut self, client: usize, worker: usize) {
        if self.checks.quiet {
            return;
        }
        if self.random.permille(15) && self.clients[client].workers.iter().all(Option::is_none) {
            // Another instance takes its place.
            let id = ClientId::new(Uuid::from_u128(self.unique()));
            let own = &mut self.clients[client];
            own.id = id;
            own.sequences.clear();
        }
        let partition = self.draw_partition(client);
        // A batch: all idle workers begin an operation too, and it travels as one message.
        let workers = if self.random.permille(100) { 0..WORKERS } else { worker..worker + 1 };
        let begun: Vec<usize> = workers.filter(|worker| self.draw_call(client, *worker, partition).is_some()).collect();
        self.coverage.batches += u64::from(begun.len() > 1);
        let asked =
            |world: &Self, worker: &usize| world.clients[client].workers[*worker].as_ref().map(|call| call.partition);
        let mut left = &begun[..];
        while let Some(first) = left.first() {
            // A message is for one partition.
            let same = left.iter().take_while(|worker| asked(self, worker) == asked(self, first)).count();
            self.attempt(client, &left[..same]);
            left = &left[same..];
        }
    }

    /// Sends the operations of these workers, all of one partition, in one message.
    fn attempt(&mut self, client: usize, workers: &[usize]) {
        let hosts = self.hosts.len();
        let (wander, random) = (self.random.permille(200), self.random.index(hosts));
        let own = &mut self.clients[client];
        let Some(first) = workers.iter().find_map(|worker| own.workers[*worker].as_ref()) else { return };
        let guess = own.guess.entry(first.partition).or_insert(random);
        if first.attempts > 0 && wander {
            *guess = random;
        }
        let host = *guess;
        let requests: Vec<Request<ReplyTo>> =
            workers.iter().filter_map(|worker| self.request(client, *worker)).collect();
        // A connection delivers a request once or not at all; late is possible.
        let (from, to) = (End::Client(client), End::Host(host));
        let delays = self.network.delays(self.truth, from, to, &mut self.random, &self.plan);
        if let Some(delay) = delays.last() {
            self.after(*delay, Event::Requests { host, requests });
        }
    }

    /// Returns the next attempt of a worker's operation, and schedules its time-out.
    fn request(&mut self, client: usize, worker: usize) -> Option<Request<ReplyTo>> {
        let (renumber, restamp) = (self.breaks(ShellMutant::RetryRenumbered), self.breaks(ShellMutant::RetryRestamped));
        let timeout = self.random.between(self.plan.unit_ms(), self.plan.unit_ms() * 5);
        let own = &mut self.clients[client];
        let call = own.workers[worker].as_mut()?;
        own.timers += 1;
        call.timer = own.timers;
        call.attempts += 1;
        call.open.insert(call.attempts);
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
            self.checks.of(call.partition).sent_numbered(*id, &call.op);
            self.checks.sent_as(call.partition, *id, Operation { client, call: call.number });
        } else if !call.op.is_read() {
            self.checks.of(call.partition).sent_unnumbered(&call.op);
        }
        let (partition, moves, attempt) = (call.partition, call.moves, call.attempts);
        let reply = ReplyTo { client, worker, call: call.number, partition, moves, attempt };
        let request = Request {
            partition: call.partition,
            // Clients look up the leader, so nodes need not forward.
            origin: Origin::RoutingClient,
            client: client as u64,
            op: call.op.clone(),
            id: call.id,
            known: Version::ZERO,
            parked_at: None,
            confirmed: None,
            awaited_entry: false,
            reply,
        };
        let token = call.timer;
        self.after(timeout, Event::Client { client, worker, token });
        Some(request)
    }

    pub(crate) fn on_reply(
        &mut self,
        client: usize,
        to: ReplyTo,
        log_time: Millis,
        outcome: Outcome,
        (leader, epoch): (Option<usize>, Epoch),
    ) {
        let own = &mut self.clients[client];
        let Some(call) =
            own.workers[to.worker].as_mut().filter(|call| (call.number, call.moves) == (to.call, to.moves))
        else {
            return;
        };
        // A node that stopped waiting does not determine the outcome of a write.
        if !matches!(outcome, Err(ErrorKind::DeadlineExceeded | ErrorKind::Internal)) {
            call.open.remove(&to.attempt);
        }
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
                self.complete(client, &call, &answer, (to.partition, epoch));
                self.end_call(client, to.worker);
            }
            Err(ErrorKind::MaybeApplied) if call.open.is_empty() && log_time > Millis::ZERO => {
                // Every attempt was refused: it may get a new stamp (rule 24).
                if let Some(id) = &mut call.id
                    && sequence.log_time > id.stamp
                {
                    id.stamp = sequence.log_time;
                    self.coverage.restamps += 1;
                    return self.attempt(client, &[to.worker]);
                }
                self.end_call(client, to.worker);
            }
            Err(ErrorKind::MaybeApplied) => self.end_call(client, to.worker),
            Err(ErrorKind::NotFound) => {
                self.heard_dropped(client, partition);
                self.end_call(client, to.worker);
            }
            Err(kind) => {
                if kind == ErrorKind::Moved {
                    self.begin_elsewhere(client, to.worker);
                }
                let own = &mut self.clients[client];
                let Some(call) = &mut own.workers[to.worker] else { return };
                own.timers += 1;
                call.timer = own.timers;
                let token = call.timer;
                let pause = self.random.between(3, self.plan.unit_ms());
                self.after(pause, Event::Client { client, worker: to.worker, token });
            }
        }
    }

    /// Handles a node's answer that the table is gone: the client drops it.
    fn heard_dropped(&mut self, client: usize, partition: PartitionId) {
        let table = partition.table;
        let checked = self.checks.heard_dropped(&self.quorum.state, partition);
        self.judge(checked);
        let own = &mut self.clients[client];
        own.held.retain(|held| held.table != table);
        self.coverage.heard_dropped += u64::from(own.informed.insert(table));
    }

    /// Ends the operation at its client.
    fn end_call(&mut self, client: usize, worker: usize) {
        let own = &mut self.clients[client];
        if let Some(call) = own.workers[worker].take()
            && let Some(id) = call.id
            && let Some(sequence) = own.sequences.get_mut(&call.partition)
        {
            sequence.under_way.remove(&id.number);
        }
        let pause = self.random.between(1, self.plan.unit_ms() / 2);
        self.after(pause, Event::Client { client, worker, token: 0 });
    }
}
