//! Live set: the counted replicas, and a leader's requests to the coordinator to add or drop replicas (rules 1–6).

use crate::mutant::Mutant;
use crate::output::Output;
use crate::replica::{Replica, Role};
use archon_types::{Fact, Millis, Partition, PlacementId, ReplicaName, ReplicaState};
use std::collections::BTreeMap;

const BACKOFF_MS_MAX: u64 = 30_000;

/// A request without an answer yet. Its report names the version of the row, and any answer raises that version.
#[derive(Debug)]
struct PendingRequest {
    request: Request,
    /// Time of the last report of it.
    reported: Millis,
}

#[derive(Clone, Debug)]
enum Request {
    Add(ReplicaName),
    Drop(Vec<ReplicaName>),
}

/// Earliest time to repeat a refused or undone request. Each repetition doubles the delay.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    count: u32,
    not_before: Millis,
}

impl Backoff {
    fn extend(&mut self, now: Millis, base_ms: u64) {
        if now.since(self.not_before) > 2 * BACKOFF_MS_MAX {
            self.count = 0;
        }
        let delay_ms = base_ms.saturating_mul(1 << self.count.min(10)).min(BACKOFF_MS_MAX);
        self.count = self.count.saturating_add(1);
        self.not_before = now.plus(delay_ms);
    }
}

/// A leader's requests to the coordinator about the Live set.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pending: Option<PendingRequest>,
    /// A loader that is counted before its addition is requested, so that the commit position waits for it. Without
    /// that, a loader would never hold everything committed at the moment of the request while writes keep coming.
    /// It may still be dropped without an answer of the coordinator.
    pub(crate) candidate: Option<(PlacementId, Millis)>,
    /// True if fewer than `min_in_sync` replicas would remain without the silent followers.
    pub(crate) stalled: bool,
    pub(crate) add_backoff: BTreeMap<PlacementId, Backoff>,
    drop_backoff: Backoff,
}

impl Requests {
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Delays the next request to add a replica that is no longer Live.
    pub(crate) fn delay_addition(&mut self, placement: PlacementId, now: Millis, base_ms: u64) {
        let backoff = self.add_backoff.entry(placement).or_default();
        if backoff.not_before <= now {
            backoff.extend(now, base_ms);
        }
    }

    fn is_adding(&self) -> bool {
        matches!(&self.pending, Some(PendingRequest { request: Request::Add(_), .. }))
    }

    /// Handles the answer to the request: a row with a higher version (rule 3).
    pub(crate) fn take_answer(&mut self, row: &Partition, now: Millis, base_ms: u64) {
        let state = |placement| row.placement(placement).map(|placement| placement.state);
        self.stalled = false; // judged again at the next tick, over the new set
        if self.candidate.is_some_and(|(placement, _)| state(placement) != Some(ReplicaState::Load)) {
            self.candidate = None;
        }
        self.add_backoff.retain(|placement, _| state(*placement).is_some());
        match self.pending.take().map(|pending| pending.request) {
            Some(Request::Add(joiner)) if state(joiner.placement) == Some(ReplicaState::Load) => {
                self.add_backoff.entry(joiner.placement).or_default().extend(now, base_ms);
            }
            Some(Request::Drop(silent)) => {
                let refused = silent.iter().any(|name| state(name.placement) == Some(ReplicaState::Live));
                if refused {
                    self.drop_backoff.extend(now, base_ms);
                } else {
                    self.drop_backoff = Backoff::default();
                }
                for name in silent.iter().filter(|name| state(name.placement) == Some(ReplicaState::Load)) {
                    self.add_backoff.entry(name.placement).or_default().extend(now, base_ms);
                }
            }
            Some(Request::Add(_)) | None => {}
        }
    }
}

impl Replica {
    /// Returns the other replicas that a commit needs acknowledgements from: the largest possible present set (rule 3).
    pub(crate) fn counted(&self) -> Vec<PlacementId> {
        let (Role::Lead(lead), Some(configuration)) = (&self.role, &self.configuration) else { return Vec::new() };
        let own = self.identity.placement;
        let mut counted: Vec<PlacementId> =
            configuration.row.live().map(|live| live.id).filter(|id| *id != own).collect();
        let joiner = match &lead.requests.pending {
            Some(PendingRequest { request: Request::Add(joiner), .. }) => Some(joiner.placement),
            Some(PendingRequest { request: Request::Drop(silent), .. }) if self.breaks(Mutant::SelfShrink) => {
                counted.retain(|id| silent.iter().all(|name| name.placement != *id));
                None
            }
            Some(_) | None => None,
        };
        let candidate = lead.requests.candidate.map(|(placement, _)| placement);
        for extra in [joiner, candidate].into_iter().flatten() {
            if !counted.contains(&extra) && !self.breaks(Mutant::JoinerNotCounted) {
                counted.push(extra);
            }
        }
        counted
    }

    /// Returns whether every counted replica holds the log up to `upto`.
    pub(crate) fn counted_hold(&self, upto: archon_types::Seq) -> bool {
        let Role::Lead(lead) = &self.role else { return false };
        self.counted().iter().all(|placement| lead.followers.get(placement).is_some_and(|peer| peer.holds(upto)))
    }

    /// Returns whether `min_in_sync` is met by the smallest possible present set: the known one (rule 3).
    pub(crate) fn is_enough(&self) -> bool {
        let row = self.configuration.as_ref().map(|configuration| &configuration.row);
        let asked = match &self.role {
            Role::Lead(lead) if self.breaks(Mutant::MinCountsJoiner) => usize::from(lead.requests.is_adding()),
            Role::Lead(_) | Role::Released { .. } | Role::Follow => 0,
        };
        row.is_some_and(|row| row.live().count() + asked >= usize::from(row.min_in_sync))
    }

    pub(crate) fn is_live(&self, placement: PlacementId) -> bool {
        let row = self.configuration.as_ref().map(|configuration| &configuration.row);
        row.and_then(|row| row.placement(placement)).is_some_and(|placement| placement.state == ReplicaState::Live)
    }

    /// Requests the addition of a loader that holds the whole log, if there is one.
    pub(crate) fn consider_requests(&mut self, now: Millis, out: &mut Vec<Output>) {
        let (commit, enough) = (self.commit, self.is_enough());
        let lease = self.lease || self.breaks(Mutant::AskWithoutLease);
        let (hasty, short) = (self.breaks(Mutant::NoBackoff), self.breaks(Mutant::PromoteShort));
        let timing = self.timing();
        let short_at_takeover = self.breaks(Mutant::TakeoverJoinerShort);
        let (Role::Lead(lead), Some(configuration)) = (&mut self.role, &self.configuration) else { return };
        // Rule 5: an unanswered joiner that dies stalls writes, so no replica is added while the coordinator is away.
        if !lease || lead.requests.is_pending() || lead.is_ending() {
            return;
        }
        // A take-over needs a joiner only if there are too few replicas without one; that joiner must hold the whole
        // log.
        let needed = if lead.serving || short_at_takeover { commit } else { lead.start };
        // They are also too few if dropping the silent ones would leave fewer than `min_in_sync`.
        if !lead.serving && enough && !lead.requests.stalled {
            return;
        }
        let mut ready = None;
        for (placement, progress) in &lead.followers {
            let loading = configuration.row.placement(*placement).is_some_and(|row| row.state == ReplicaState::Load);
            let backoff = lead.requests.add_backoff.get(placement);
            let later = backoff.is_some_and(|backoff| now < backoff.not_before) && !hasty;
            if !loading || !progress.matched || progress.failed || later {
                continue;
            }
            if progress.holds(needed) || short {
                ready = Some(ReplicaName { placement: *placement, incarnation: progress.address.incarnation });
                break;
            }
            // A loader that still lacks much, or has a slow disk, would delay every write by as much.
            let near = progress.next >= self.log.recent_first() && progress.keeps_pace(now, timing);
            if lead.serving && lead.requests.candidate.is_none() && near {
                lead.requests.candidate = Some((*placement, now));
            }
        }
        if let Some(joiner) = ready {
            lead.requests.candidate = None;
            lead.requests.pending = Some(PendingRequest { request: Request::Add(joiner), reported: now });
            let epoch = lead.epoch;
            self.report(epoch, Fact::CaughtUp { joiner }, out);
        }
    }

    /// Returns the Live followers that have not answered for the replication time-out.
    fn silent(&self, now: Millis) -> Vec<ReplicaName> {
        let timing = self.timing();
        let Role::Lead(lead) = &self.role else { return Vec::new() };
        let overdue = |(placement, progress): (&PlacementId, &crate::progress::Progress)| {
            let name = ReplicaName { placement: *placement, incarnation: progress.address.incarnation };
            (progress.is_silent(now, timing) && self.is_live(*placement)).then_some(name)
        };
        let most = if self.breaks(Mutant::NamesOneSilent) { 1 } else { usize::MAX };
        lead.followers.iter().filter_map(overdue).take(most).collect()
    }

    /// Repeats an unanswered request, or requests to drop silent followers; then considers an addition.
    pub(crate) fn tick_requests(&mut self, now: Millis, out: &mut Vec<Output>) {
        let timing = self.timing();
        let (timeout_ms, resend_ms) = (timing.replication_timeout_ms, timing.resend_ms());
        let silent = self.silent(now);
        let (lease, gives_up) = (self.lease, self.breaks(Mutant::JoinerGivenUp));
        let hasty = self.breaks(Mutant::NoBackoff);
        let left = self.configuration.as_ref().map_or(0, |known| known.row.live().count().saturating_sub(silent.len()));
        let min = self.configuration.as_ref().map_or(0, |known| usize::from(known.row.min_in_sync));
        let Role::Lead(lead) = &mut self.role else { return };
        let (epoch, requests) = (lead.epoch, &mut lead.requests);
        requests.stalled = !silent.is_empty() && left < min;
        if let Some((placement, since)) = requests.candidate
            && (!lease
                || now.since(since) >= lead.followers.get(&placement).map_or(0, |known| known.timeout_ms(timing)))
        {
            requests.candidate = None;
            requests.add_backoff.entry(placement).or_default().extend(now, resend_ms);
        }
        let mut fact = None;
        if let Some(pending) = &mut requests.pending {
            // No answer is not a refusal: repeat the request, and keep counting.
            if now.since(pending.reported) >= timeout_ms {
                pending.reported = now;
                fact = match &pending.request {
                    Request::Add(joiner) => lease.then_some(Fact::CaughtUp { joiner: *joiner }),
                    Request::Drop(silent) => Some(Fact::Silent { followers: silent.clone() }),
                };
                if gives_up && matches!(pending.request, Request::Add(_)) {
                    requests.pending = None;
                }
            }
        } else if !silent.is_empty() && (now >= requests.drop_backoff.not_before || hasty) {
            requests.pending = Some(PendingRequest { request: Request::Drop(silent.clone()), reported: now });
            fact = Some(Fact::Silent { followers: silent });
        }
        if let Some(fact) = fact {
            self.report(epoch, fact, out);
        }
        self.consider_requests(now, out);
    }
}
