//! Automatic splits and merges, as far as they matter for the next ones: volatile memory of each coordinator.

use crate::command::refusals::refused;
use crate::ranges::rest::{REST_MS_MAX, rest_ms};
use archon_types::{ErrorDetail, Millis, Partition, PartitionId, Version};
use std::collections::BTreeMap;

/// Time for which a proposal may be on its way into the state, in milliseconds: after that it counts as void.
const PROPOSAL_MS: u64 = 1_000;

/// The last proposal of each partition, until it does not matter for the next one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Proposals {
    last: BTreeMap<PartitionId, LastProposal>,
}

/// The last proposal of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastProposal {
    /// The other partition: the new one, or the neighbour to be absorbed.
    pub(crate) right: PartitionId,
    /// The version of the row for which it was proposed.
    pub(crate) version: Version,
    proposed: Millis,
    /// Number of consecutive abandoned ones.
    given_up: u32,
    /// Set once it has ended: the earliest time of the next one.
    again_at: Option<Millis>,
}

/// Outcome of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// In progress.
    UnderWay,
    /// Done, or the partition does not exist any longer.
    Done,
    /// It never began.
    Void,
    /// It began and was abandoned.
    GivenUp,
}

impl LastProposal {
    /// Returns true if it may still be on its way into the state.
    pub(crate) const fn may_come(&self, now: Millis) -> bool {
        now.since(self.proposed) < PROPOSAL_MS
    }
}

impl Proposals {
    /// Records how ended ones ended.
    pub(crate) fn sync(&mut self, now: Millis, outcome: impl Fn(PartitionId, &LastProposal) -> Outcome) {
        self.last.retain(|left, last| match (last.again_at, outcome(*left, last)) {
            (_, Outcome::Done) => false,
            (Some(again_at), _) => now.since(again_at) < REST_MS_MAX,
            (None, Outcome::UnderWay) => true,
            (None, Outcome::Void) => {
                last.again_at = Some(now);
                last.given_up > 0
            }
            (None, Outcome::GivenUp) => {
                last.given_up += 1;
                last.again_at = Some(now.plus(rest_ms(last.given_up)));
                true
            }
        });
    }

    /// Records that another one begins.
    pub(crate) fn begin(&mut self, left: &Partition, right: PartitionId, now: Millis) {
        let given_up = self.last.get(&left.id).map_or(0, |last| last.given_up);
        let last = LastProposal { right, version: left.version, proposed: now, given_up, again_at: None };
        self.last.insert(left.id, last);
    }

    /// Returns true if one of this partition is in progress.
    pub(crate) fn has(&self, left: PartitionId) -> bool {
        self.last.get(&left).is_some_and(|last| last.again_at.is_none())
    }

    /// Returns those in progress, each with its partition.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (PartitionId, &LastProposal)> + Clone {
        self.last.iter().filter(|(_, last)| last.again_at.is_none()).map(|(left, last)| (*left, last))
    }

    /// Checks that abandoned ones do not forbid the next one now. `what` names the kind in messages: splits, merges.
    ///
    /// # Errors
    /// `Refused`, with the remaining pause.
    pub(crate) fn check_rested(&self, left: PartitionId, now: Millis, what: &str) -> Result<(), ErrorDetail> {
        match self.last.get(&left).and_then(|last| Some((last.again_at?, last.given_up))) {
            Some((again_at, given_up)) if now < again_at => Err(refused(format!(
                "{given_up} {what} of it were abandoned; the next automatic one waits for {} ms",
                again_at.since(now)
            ))),
            _ => Ok(()),
        }
    }
}
