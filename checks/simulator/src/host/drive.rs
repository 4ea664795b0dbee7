//! Drives a process: passes inputs to its partitions, and carries out their effects.

use super::disk::Stream;
use super::effect::Effect;
use super::process::Process;
use super::shell::MachineShell;
use crate::check::violation::Violation;
use crate::client::calls::ReplyTo;
use crate::coordinator::member::host_of;
use crate::event::{Event, PeerMessage};
use crate::network::End;
use crate::world::World;
use archon_host::{Cause, CopyLocation, LocalCopy, Outcome, Partitions, Refusal, RetentionLimits, UnansweredOutcome};
use archon_kv::engine_position;
use archon_replica::{Body, Input, Message};
use archon_types::{Epoch, ErrorKind, Fact, Millis, NodeId, PartitionId, PlacementId, Report, Seq};

impl World {
    /// Drives the partitions of a machine's process, if one runs, and carries out their effects.
    pub(crate) fn drive<T>(&mut self, host: usize, work: impl FnOnce(&mut Partitions<MachineShell>) -> T) -> Option<T> {
        let now = self.local(host);
        let wall = Millis::new(self.truth + self.hosts[host].wall_off);
        // After the faults a copy must complete, however slow its pages are compared with the writes.
        let pinned = |most| if self.healing { u64::MAX } else { most };
        let pinned_bytes_max = pinned(self.plan.pinned_bytes_max);
        let pinned_distance_max = pinned(self.plan.pinned_distance_max);
        let machine = &mut self.hosts[host];
        let process = machine.process.as_mut()?;
        process.partitions.begin(now);
        let shell = process.partitions.shell_mut();
        (shell.now, shell.wall) = (now, wall);
        shell.settings.retention =
            RetentionLimits { pinned_bytes_max, pinned_distance_max, ..shell.settings.retention };
        std::mem::swap(&mut shell.disk, &mut machine.disk);
        std::mem::swap(&mut shell.coverage, &mut self.coverage);
        let result = work(&mut process.partitions);
        let shell = process.partitions.shell_mut();
        std::mem::swap(&mut shell.disk, &mut machine.disk);
        std::mem::swap(&mut shell.coverage, &mut self.coverage);
        for effect in std::mem::take(&mut shell.effects) {
            self.carry_out(host, effect);
        }
        Some(result)
    }

    /// Passes an input to a replica and carries out its effects; the turn ends with [`World::settle`].
    pub(crate) fn step(&mut self, host: usize, placement: PlacementId, input: Input) {
        self.drive(host, |partitions| partitions.step(placement, input));
    }

    fn carry_out(&mut self, host: usize, effect: Effect) {
        match effect {
            Effect::Send(message) => self.send_replica(host, message),
            Effect::Answer { at, to, log_time, outcome, read } => {
                self.coverage.writes += u64::from(!read);
                // The receiver of an answer knows everything up to the commit position.
                self.checks.acknowledge(at.partition, at.epoch, at.commit);
                if self.plan.reads_replicas {
                    self.replica_reads.acknowledge(at.partition, at.commit, self.truth);
                }
                self.reply(host, to, log_time, outcome, at.epoch);
            }
            Effect::Refuse { partition, to, log_time, refusal } => self.refuse(host, partition, to, log_time, &refusal),
            Effect::Report(report) => self.queue_report(host, report),
            Effect::AskRight(ask) => self.ask_right(host, ask),
            Effect::Opened(placement) => {
                let checked = self.checks.opens(placement);
                self.judge(checked);
            }
            Effect::Serving(at @ CopyLocation { partition, placement, epoch, commit }) => {
                self.begins_anew(host, at, commit);
                self.coverage.take_overs += 1;
                self.checks.leases_changed = true;
                let checked = self.checks.serves(partition, placement, epoch, commit);
                self.judge(checked);
            }
            Effect::Committed(at, entries) => {
                let before = entries.first().map_or(Seq::ZERO, |entry| entry.at.seq.previous());
                self.begins_anew(host, at, before);
                let judged = |entry| self.checks.commit(at.partition, at.epoch, at.placement, entry);
                let checked = entries.iter().try_for_each(judged);
                self.judge(checked);
            }
            Effect::Deleted(placement) => {
                self.checks.deleted.insert(placement);
            }
            Effect::Damaged(at) => {
                // Rule 27: its log has not come to where its pages had, if it has one.
                let disk = &self.hosts[host].disk;
                let last = disk.streams.get(&at.placement).map_or(Seq::ZERO, Stream::last);
                let pages = engine_position(&disk.engine, at.placement).ok().flatten();
                let is_part = last == Seq::ZERO || Some(last) < pages;
                let checked = self.checks.given_up_as_damaged(at.partition, at.placement, is_part);
                self.judge(checked);
            }
            Effect::Alarm(partition, detail) => {
                // Only lost storage may make two copies disagree about committed entries.
                if !self.checks.damage.reached(partition) {
                    self.judge(Err(Violation::Prefix { detail }));
                }
            }
            Effect::Note(line) => self.note(|| format!("host {host} {line}")),
        }
    }

    /// Starts a new history after an accepted loss, at its first event.
    fn begins_anew(&mut self, host: usize, at: CopyLocation, known: Seq) {
        let Some(leader) = self.checks.of(at.partition).awaited(at.epoch) else { return };
        let row = self.quorum.state.partitions.get(at.partition);
        let node = row.and_then(|row| row.placement(leader)).and_then(|copy| self.quorum.state.node(copy.node));
        let leads = node.and_then(|node| host_of(&node.node.address)).and_then(|host| self.hosts.get(host));
        let disks =
            [leads.and_then(|host| host.disk.streams.get(&leader)), self.hosts[host].disk.streams.get(&at.placement)];
        let begun = self.checks.of(at.partition).begins(at.epoch, disks, known);
        self.judge(begun);
    }

    fn send_replica(&mut self, host: usize, message: Message) {
        if matches!(message.body, Body::Ack { .. } | Body::Adopted { .. }) {
            let checked = self.checks.epochs(message.partition).persisted(message.from.placement, message.epoch);
            self.judge(checked.map_err(Violation::from));
        }
        self.send_to_node(host, message.to.node, PeerMessage::Replica(message));
    }

    pub(super) fn send_to_node(&mut self, host: usize, node: NodeId, message: PeerMessage) {
        let address = self.quorum.state.node(node).map(|row| row.node.address.clone());
        let Some(to) = address.and_then(|address| host_of(&address)) else { return };
        let event = Event::PeerMessage { host: to, message: Box::new(message), sent: self.truth };
        self.send(End::Host(host), End::Host(to), event);
    }

    fn reply(&mut self, host: usize, to: ReplyTo, log_time: Millis, outcome: Outcome, epoch: Epoch) {
        let (client, leader) = (to.client, Some(host));
        let outcome = Box::new(outcome.map_err(|error| error.kind));
        self.answer(host, client, Event::Reply { client, to, log_time, outcome, leader, epoch });
    }

    fn refuse(&mut self, host: usize, partition: PartitionId, to: ReplyTo, log_time: Millis, refusal: &Refusal) {
        let Some(process) = &self.hosts[host].process else { return };
        let kind = kind_of(refusal);
        let active = process.partitions.active(partition);
        let local = active.and_then(|placement| process.partitions.copies().get(&placement));
        let row = local.and_then(|local| local.replica.configuration()).map(|known| &known.row);
        let leader = row.and_then(|row| row.leader_placement()).map(|leader| leader.node);
        let address = leader.and_then(|node| self.quorum.state.node(node)).map(|row| row.node.address.clone());
        let leader = address.and_then(|address| host_of(&address));
        if kind == ErrorKind::NotEnoughReplicas {
            self.coverage.not_enough_replicas += 1;
        }
        let client = to.client;
        let (outcome, epoch) = (Box::new(Err(kind)), Epoch::ZERO);
        self.answer(host, client, Event::Reply { client, to, log_time, outcome, leader, epoch });
    }

    /// Sends an answer to a client, unless the machine's answers are blocked.
    fn answer(&mut self, host: usize, client: usize, reply: Event) {
        if self.hosts[host].door.shut_at(self.truth).is_none() {
            self.send(End::Host(host), End::Client(client), reply);
        }
    }

    fn queue_report(&mut self, host: usize, report: Report) {
        self.coverage.releases += u64::from(report.fact == Fact::Released);
        if let Some(process) = &mut self.hosts[host].process {
            process.reports.put(report.clone());
        }
        self.send_report(host, report);
    }
}

/// Returns the client's error for a refusal.
const fn kind_of(refusal: &Refusal) -> ErrorKind {
    match refusal {
        Refusal::Stopping => ErrorKind::ShuttingDown,
        Refusal::Dropped | Refusal::Ended(UnansweredOutcome::ChangedNothing, Cause::Dropped) => ErrorKind::NotFound,
        Refusal::Misrouted => ErrorKind::InvalidArgument,
        Refusal::Moved => ErrorKind::Moved,
        Refusal::Elsewhere => ErrorKind::NotPartitionLeader,
        // Of stale reads, which are not requested here.
        Refusal::NoCopy => ErrorKind::WrongNode,
        Refusal::NotLive | Refusal::CommitUnknown | Refusal::Behind => ErrorKind::Unavailable,
        Refusal::NoLease => ErrorKind::NoLease,
        Refusal::NoWrites(kind) => *kind,
        Refusal::Ended(UnansweredOutcome::Unknown, _) => ErrorKind::DeadlineExceeded,
        Refusal::Ended(UnansweredOutcome::ChangedNothing, Cause::Stopping) => ErrorKind::ShuttingDown,
        Refusal::Ended(UnansweredOutcome::ChangedNothing, _)
        | Refusal::Changing
        | Refusal::Unreadable(_)
        | Refusal::Unread => ErrorKind::Unavailable,
        Refusal::Detail(detail) => detail.kind,
    }
}

/// Returns true if the process may answer for a copy under its lease.
pub(crate) fn covers(process: &Process, local: &LocalCopy<MachineShell>, now: Millis) -> bool {
    local.serving
        && !local.set_aside
        && process.partitions.shell().grants.covers(local.partition, local.replica.epoch(), now)
}
