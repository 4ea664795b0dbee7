//! Replica: state, dispatch of inputs, and code shared by all roles.

use crate::follow::FollowedLeader;
use crate::input::{Configuration, Identity, Input, Limits, RecoveredError, RecoveredState};
use crate::lead::Lead;
use crate::load::PullState;
use crate::log::Log;
use crate::message::{Body, Message, ReplicaAddress};
use crate::mutant::Mutant;
use crate::output::Output;
use crate::overtaken_report::OvertakenReport;
use crate::writes::Writes;
use archon_types::{Epoch, Fact, Incarnation, Millis, NodeId, ReplicaState, Report, Seq, Version};

/// One copy of one partition. The crate's page describes how to drive it.
#[derive(Debug)]
pub struct Replica {
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
    pub(crate) writes: Writes,
    /// The highest epoch handed to the disk; messages of lower epochs are refused.
    pub(crate) epoch: Epoch,
    /// The highest epoch that is durable; nothing is acknowledged under a higher one.
    pub(crate) epoch_durable: Epoch,
    pub(crate) commit: Seq,
    pub(crate) configuration: Option<Configuration>,
    pub(crate) role: Role,
    /// The leader that it follows in `epoch`.
    pub(crate) following: Option<FollowedLeader>,
    /// The leadership that a higher epoch ended, until the row shows that the report was received.
    pub(crate) overtaken: Option<OvertakenReport>,
    /// The copy being pulled.
    pub(crate) copying: Option<PullState>,
    pub(crate) copies: u64,
    /// The row's version under which the last copy was given to this replica in this process.
    pub(crate) copied_at: Version,
    pub(crate) lease: bool,
    pub(crate) read_only: bool,
    pub(crate) engine_lags: bool,
    /// The epoch in which lost data was reported, so that it is reported once.
    pub(crate) alarmed: Option<Epoch>,
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) mutant: Option<Mutant>,
}

/// Role of a replica.
///
/// | from | to | when |
/// |---|---|---|
/// | Follow | Lead | a configuration names it leader in an epoch above all it knows |
/// | Lead | Released | a hand-over was asked for, and everything proposed is committed; or the leadership was withdrawn |
/// | Lead, Released | Follow | a higher epoch is seen, or the node registered again |
#[derive(Debug)]
pub(crate) enum Role {
    Follow,
    Lead(Box<Lead>),
    /// Led `epoch` and gave it up for good (rule 12).
    Released {
        epoch: Epoch,
        reported: Millis,
    },
}

impl Replica {
    /// Creates a replica as its disk left it. It leads nothing until a configuration names it in a higher epoch than
    /// any it has persisted (rule 8).
    ///
    /// # Errors
    /// [`RecoveredError`] if the recovered state contradicts itself; the copy must then not be used.
    pub fn new(identity: Identity, recovered: RecoveredState, limits: Limits) -> Result<Self, RecoveredError> {
        let log = Log::recover(&identity, &recovered)?;
        Ok(Self {
            commit: recovered.commit.max(log.base().seq),
            identity,
            limits,
            log,
            writes: Writes::default(),
            epoch: recovered.epoch,
            epoch_durable: recovered.epoch,
            configuration: None,
            role: Role::Follow,
            following: None,
            overtaken: None,
            copying: None,
            copies: 0,
            copied_at: Version::ZERO,
            lease: false,
            read_only: false,
            engine_lags: false,
            alarmed: None,
            #[cfg(any(test, feature = "mutants"))]
            mutant: None,
        })
    }

    /// Disables one rule, for a simulator that proves its checks.
    #[cfg(any(test, feature = "mutants"))]
    pub fn set_mutant(&mut self, mutant: Option<Mutant>) {
        self.mutant = mutant;
        if self.breaks(Mutant::TailCommitted) {
            self.commit = self.log.last().seq; // rule 20: what `new` must not do
        }
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn breaks(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[cfg(not(any(test, feature = "mutants")))]
    #[allow(clippy::unused_self)]
    pub(crate) const fn breaks(&self, _: Mutant) -> bool {
        false
    }

    /// Processes one input. `now` must never fall. Outputs are appended to `out`; more follow at [`Replica::flush`].
    pub fn step(&mut self, now: Millis, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Configure(configuration) => self.configure(now, configuration, out),
            Input::HandOver { epoch, to } => self.hand_over(now, epoch, to, out),
            Input::KeepLeading { epoch } => self.keep_leading(epoch),
            Input::Withdrawn { epoch } => self.withdrawn(now, epoch, out),
            Input::Propose { ticket, entry } => self.propose(ticket, entry, out),
            Input::Persisted { token } => self.persisted(now, token, out),
            Input::Message(message) => self.receive(now, message, out),
            Input::LogRead { read, reader, entries } => self.log_read(now, read, reader, entries, out),
            Input::Copied { copy, at, version } => self.copied(copy, at, version, out),
            Input::Trimmed { upto } => self.log.trim(upto.min(self.commit)),
            Input::Confirm { ticket } => self.confirm(ticket, out),
            Input::Lease(valid) => self.lease = valid,
            Input::ReadOnly(read_only) => self.read_only = read_only,
            Input::EngineLags(engine_lags) => self.engine_lags = engine_lags,
            Input::Renew { node, incarnation } => self.renew(node, incarnation, out),
            Input::Tick => self.tick(now, out),
        }
        self.debug_check();
    }

    /// Returns the last [`Input::EngineLags`].
    pub const fn engine_lags(&self) -> bool {
        self.engine_lags
    }

    /// Ends a turn: emits what the steps since the last flush gathered for the disk and for followers.
    pub fn flush(&mut self, now: Millis, out: &mut Vec<Output>) {
        if let Some((token, records)) = self.writes.flush() {
            out.push(Output::Persist { token, records });
        }
        self.flush_lead(now, out);
        self.debug_check();
    }

    fn configure(&mut self, now: Millis, mut new: Configuration, out: &mut Vec<Output>) {
        if new.row.id != self.identity.partition {
            return;
        }
        let mut risen = true;
        if let Some(old) = &self.configuration {
            let order = (new.row.epoch, new.row.version).cmp(&(old.row.epoch, old.row.version));
            if order.is_lt() && !self.breaks(Mutant::ConfigGoesBack) {
                return; // rule 4
            }
            risen = order.is_gt() || self.breaks(Mutant::AnswerNotRisen); // rule 3
            for (placement, peer) in &old.peers {
                if let Some(known) = new.peers.get_mut(placement)
                    && peer.incarnation > known.incarnation
                {
                    *known = *peer;
                }
            }
        }
        let epoch = new.row.epoch;
        let named = new.row.leader == Some(self.identity.placement);
        let live = new.row.placement(self.identity.placement).is_some_and(|own| own.state == ReplicaState::Live);
        self.configuration = Some(new);
        self.stop_orphaned_copy(out);
        match &self.role {
            Role::Lead(lead) if lead.epoch == epoch && named => self.learn(now, risen),
            Role::Lead(lead) if lead.epoch <= epoch => self.step_down(out),
            Role::Released { epoch: released, .. } if *released < epoch => self.role = Role::Follow,
            Role::Lead(_) | Role::Released { .. } | Role::Follow => {}
        }
        // A leadership is taken up once: a persisted epoch was led or followed before (rules 8, 12).
        if named && live && (epoch > self.epoch || self.takes_up_again(epoch)) {
            self.take_over(now, epoch, out);
        }
        self.look_overtaken(now, epoch, named && live, out);
        self.advance(now, out);
    }

    /// Returns false: a lost or released leadership is not taken up again in its epoch (rules 8, 12). Mutants differ.
    fn takes_up_again(&self, epoch: Epoch) -> bool {
        epoch == self.epoch
            && match self.role {
                Role::Follow => self.following.is_none() && self.breaks(Mutant::ResumeEpoch),
                Role::Released { .. } => self.breaks(Mutant::ReleaseUndone),
                Role::Lead(_) => false,
            }
    }

    fn receive(&mut self, now: Millis, message: Message, out: &mut Vec<Output>) {
        let foreign = message.partition != self.identity.partition
            || (message.to != self.address() && !self.breaks(Mutant::StaleAddressee))
            || message.from.placement == self.identity.placement;
        if foreign {
            return; // rules 5 and 10: another incarnation, another copy
        }
        let Message { from, epoch, body, .. } = message;
        match body {
            Body::Adopt { .. } | Body::Append { .. } | Body::Behind { .. } => self.follow(now, from, epoch, body, out),
            Body::Confirm { round } => self.answer_confirm(from, epoch, round, out),
            Body::Adopted { at, held } => self.on_adopted(now, from, epoch, at, held, out),
            Body::Ack { held } => self.on_ack(now, from, epoch, held, out),
            Body::Nack { refused, hint, copying } => self.on_nack(now, from, epoch, (refused, hint, copying), out),
            Body::Confirmed { round } => self.on_confirmed(from, epoch, round, out),
        }
    }

    fn persisted(&mut self, now: Millis, token: u64, out: &mut Vec<Output>) {
        let arrived = self.writes.arrived(token);
        if let Some(epoch) = arrived.epoch {
            self.epoch_durable = self.epoch_durable.max(epoch);
        }
        if let Some(upto) = arrived.upto {
            self.log.set_durable(upto);
        }
        self.start_copy(out);
        self.answer_leader(out);
        self.advance(now, out);
        self.evict();
    }

    /// Advances everything that may have become possible: the end of a take-over, the commit position, a release.
    pub(crate) fn advance(&mut self, now: Millis, out: &mut Vec<Output>) {
        self.finish_take_over(now, out);
        self.advance_commit(out);
        self.release(now, out);
    }

    fn renew(&mut self, node: NodeId, incarnation: Incarnation, out: &mut Vec<Output>) {
        if incarnation <= self.identity.incarnation {
            return;
        }
        if !self.breaks(Mutant::LeadsInNextLife) {
            self.step_down(out); // rule 8
            self.role = Role::Follow;
        }
        (self.identity.node, self.identity.incarnation) = (node, incarnation);
        self.following = None;
        self.overtaken = None; // as does the leadership
        self.lease = false;
        self.alarmed = None; // the report of the former incarnation may have been lost
    }

    fn tick(&mut self, now: Millis, out: &mut Vec<Output>) {
        let timeout_ms = self.timing().replication_timeout_ms;
        self.tick_overtaken(now, out);
        match &mut self.role {
            Role::Follow => {}
            Role::Released { epoch, reported } => {
                let epoch = *epoch;
                if now.since(*reported) >= timeout_ms {
                    *reported = now;
                    self.report(epoch, Fact::Released, out);
                }
            }
            Role::Lead(_) => self.tick_lead(now, out),
        }
    }

    /// Ends the leadership: the next leader decides about the proposals.
    pub(crate) fn step_down(&mut self, out: &mut Vec<Output>) {
        let Role::Lead(lead) = &mut self.role else { return };
        if lead.serving {
            out.push(Output::Serve(false));
        }
        let tickets: Vec<u64> = lead.proposals.drain(..).map(|proposal| proposal.ticket).collect();
        if !tickets.is_empty() {
            out.push(Output::Abandon { tickets });
        }
        let reads = lead.confirms.abandon();
        if !reads.is_empty() {
            out.push(Output::ConfirmDone { tickets: reads, ok: false });
        }
        self.role = Role::Follow;
    }

    pub(crate) fn address(&self) -> ReplicaAddress {
        ReplicaAddress {
            placement: self.identity.placement,
            node: self.identity.node,
            incarnation: self.identity.incarnation,
        }
    }

    pub(crate) fn send(&self, to: ReplicaAddress, epoch: Epoch, body: Body, out: &mut Vec<Output>) {
        let partition = self.identity.partition;
        out.push(Output::Send(Message { partition, from: self.address(), to, epoch, body }));
    }

    pub(crate) fn report(&self, epoch: Epoch, fact: Fact, out: &mut Vec<Output>) {
        out.push(Output::Report(Report {
            partition: self.identity.partition,
            placement: self.identity.placement,
            epoch,
            version: self.version(),
            fact,
        }));
    }

    pub(crate) fn timing(&self) -> crate::input::Timing {
        self.configuration.as_ref().map_or_else(Default::default, |configuration| configuration.timing)
    }

    /// Evicts committed entries that are unlikely to be needed soon.
    pub(crate) fn evict(&mut self) {
        let followers = matches!(&self.role, Role::Lead(lead) if !lead.followers.is_empty());
        let bytes_max = if followers { self.limits.recent_bytes_max } else { 0 };
        self.log.evict(self.commit.min(self.log.durable()), bytes_max);
    }

    fn debug_check(&self) {
        debug_assert!(self.commit <= self.log.last().seq, "committed beyond the end: {self:?}");
        debug_assert!(self.epoch_durable <= self.epoch, "durable epoch above the known one: {self:?}");
        debug_assert!(self.log.last().epoch <= self.epoch, "an entry above the epoch: {self:?}");
    }
}
