//! Reads without a lease (rule 18): a round, begun after the read arrived, in which every in-sync copy answers that it
//! has not persisted a higher epoch. A round serves only the reads that waited when it began.

use crate::message::{Body, ReplicaAddress};
use crate::mutant::Mutant;
use crate::output::Output;
use crate::replica::{Replica, Role};
use archon_types::{Epoch, Millis, PlacementId};
use std::collections::BTreeSet;

/// A round of questions in progress.
#[derive(Debug)]
struct Round {
    tickets: Vec<u64>,
    confirmed: BTreeSet<PlacementId>,
    began: Millis,
    asked: Millis,
}

/// Waiting reads, and the round that serves some of them.
#[derive(Debug, Default)]
pub(crate) struct ReadConfirmations {
    waiting: Vec<u64>,
    number: u64,
    round: Option<Round>,
}

impl ReadConfirmations {
    /// Abandons every read; returns them.
    pub(crate) fn abandon(&mut self) -> Vec<u64> {
        let mut tickets = self.round.take().map_or_else(Vec::new, |round| round.tickets);
        tickets.append(&mut self.waiting);
        tickets
    }

    /// Returns whether a read waits.
    pub(crate) fn is_busy(&self) -> bool {
        self.round.is_some() || !self.waiting.is_empty()
    }

    /// Drops the answer of a replica: its new incarnation has answered nothing.
    pub(crate) fn forget(&mut self, placement: PlacementId) {
        if let Some(round) = &mut self.round {
            round.confirmed.remove(&placement);
        }
    }
}

impl Replica {
    pub(crate) fn confirm(&mut self, ticket: u64, out: &mut Vec<Output>) {
        // Without other in-sync copies there are none to ask: only a lease helps (rule 17).
        let alone = self.counted().is_empty();
        let limit = self.limits.confirms_max;
        let (unasked, reuses) = (self.breaks(Mutant::AloneWithoutLease), self.breaks(Mutant::ConfirmReused));
        match &mut self.role {
            Role::Lead(lead) if lead.serving && alone && unasked => {
                out.push(Output::ConfirmDone { tickets: vec![ticket], ok: true });
            }
            Role::Lead(lead) if lead.serving && reuses && lead.confirms.round.is_some() => {
                lead.confirms.round.iter_mut().for_each(|round| round.tickets.push(ticket));
            }
            Role::Lead(lead) if lead.serving && !alone && lead.confirms.waiting.len() < limit => {
                lead.confirms.waiting.push(ticket);
            }
            Role::Lead(_) | Role::Released { .. } | Role::Follow => {
                out.push(Output::ConfirmDone { tickets: vec![ticket], ok: false });
            }
        }
    }

    pub(crate) fn begin_confirm_round(&mut self, now: Millis, out: &mut Vec<Output>) {
        let Role::Lead(lead) = &mut self.role else { return };
        let confirms = &mut lead.confirms;
        if confirms.round.is_some() || confirms.waiting.is_empty() {
            return;
        }
        confirms.number += 1;
        let tickets = std::mem::take(&mut confirms.waiting);
        confirms.round = Some(Round { tickets, confirmed: BTreeSet::new(), began: now, asked: now });
        self.ask_round(now, out);
    }

    /// Returns the replicas that a read needs answers from: all counted ones, including a joiner with an unknown
    /// answer.
    fn counted_to_confirm(&self) -> Vec<PlacementId> {
        let mut counted = self.counted();
        if self.breaks(Mutant::ConfirmSkipsJoiner) {
            counted.retain(|placement| self.is_live(*placement));
        }
        counted
    }

    /// Asks the counted replicas that have not answered.
    fn ask_round(&mut self, now: Millis, out: &mut Vec<Output>) {
        let counted = self.counted_to_confirm();
        let Role::Lead(lead) = &mut self.role else { return };
        let (epoch, number) = (lead.epoch, lead.confirms.number);
        let Some(round) = &mut lead.confirms.round else { return };
        round.asked = now;
        let mut asked = Vec::new();
        for placement in counted.into_iter().filter(|placement| !round.confirmed.contains(placement)) {
            if let Some(progress) = lead.followers.get_mut(&placement) {
                progress.confirm_since.get_or_insert(now);
                asked.push(progress.address);
            }
        }
        for to in asked {
            self.send(to, epoch, Body::Confirm { round: number }, out);
        }
    }

    /// Answers a leader that asks for higher epochs. Copying replicas answer too, as only epochs matter.
    pub(crate) fn answer_confirm(&mut self, from: ReplicaAddress, epoch: Epoch, round: u64, out: &mut Vec<Output>) {
        if epoch < self.epoch && !self.breaks(Mutant::ConfirmBlindly) {
            self.refuse_epoch(from, out);
        } else {
            self.send(from, epoch, Body::Confirmed { round }, out);
        }
    }

    pub(crate) fn on_confirmed(&mut self, from: ReplicaAddress, epoch: Epoch, number: u64, out: &mut Vec<Output>) {
        let any_round = self.breaks(Mutant::ConfirmAnyRound);
        let Some(progress) = self.progress(from, epoch) else { return };
        progress.confirm_since = None;
        let Role::Lead(lead) = &mut self.role else { return };
        if lead.confirms.number != number && !any_round {
            return;
        }
        let Some(round) = &mut lead.confirms.round else { return };
        round.confirmed.insert(from.placement);
        self.finish_round(out);
    }

    fn finish_round(&mut self, out: &mut Vec<Output>) {
        let (counted, any) = (self.counted_to_confirm(), self.breaks(Mutant::ConfirmOne));
        let enough = self.is_enough() || self.breaks(Mutant::NoLeaseBelowMin); // rule 2
        let Role::Lead(lead) = &mut self.role else { return };
        let Some(round) = &lead.confirms.round else { return };
        let confirmed = |placement: &PlacementId| round.confirmed.contains(placement);
        let all = counted.iter().all(confirmed) || (any && counted.iter().any(confirmed));
        if !enough || !all || counted.is_empty() {
            return;
        }
        if let Some(round) = lead.confirms.round.take() {
            out.push(Output::ConfirmDone { tickets: round.tickets, ok: true });
        }
    }

    pub(crate) fn tick_confirms(&mut self, now: Millis, out: &mut Vec<Output>) {
        let timing = self.timing();
        self.finish_round(out); // a replica may have left the counted set
        let Role::Lead(lead) = &mut self.role else { return };
        let Some(round) = &lead.confirms.round else { return };
        if now.since(round.began) >= timing.replication_timeout_ms {
            if let Some(round) = lead.confirms.round.take() {
                out.push(Output::ConfirmDone { tickets: round.tickets, ok: false });
            }
        } else if now.since(round.asked) >= timing.resend_ms() {
            self.ask_round(now, out);
        }
    }
}
