//! Splits and merges that began by themselves, as far as it matters for the next ones: each coordinator's own memory.

use crate::apply::refused;
use crate::rest::{REST_MS_MAX, rest_ms};
use archon_types::{ErrorDetail, Millis, Partition, PartitionId, Version};
use std::collections::BTreeMap;

/// How long a proposal may be under way to the state, in milliseconds: after that it is taken for void.
const PROPOSAL_MS: u64 = 1_000;

/// The last one of each partition, until it does not matter for the next one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Proposals {
    last: BTreeMap<PartitionId, LastProposal>,
}

/// What was proposed last of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastProposal {
    /// The other partition: the one that is split off, or the neighbour whose keys it gets.
    pub(crate) right: PartitionId,
    /// The version of the row for which it was proposed.
    pub(crate) version: Version,
    proposed: Millis,
    /// How many were given up, one after the other.
    given_up: u32,
    /// It is over, and there is none before that.
    again_at: Option<Millis>,
}

/// What became of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It goes on.
    UnderWay,
    /// It is done, or there is no such partition any more.
    Done,
    /// It never began.
    Void,
    /// It began, and nothing came of it.
    GivenUp,
}

impl LastProposal {
    /// Whether it may be on its way into the state still.
    pub(crate) const fn may_come(&self, now: Millis) -> bool {
        now.since(self.proposed) < PROPOSAL_MS
    }
}

impl Proposals {
    /// Takes note of how those ended that are over.
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

    /// Notes that another one begins.
    pub(crate) fn begin(&mut self, left: &Partition, right: PartitionId, now: Millis) {
        let given_up = self.last.get(&left.id).map_or(0, |last| last.given_up);
        let last = LastProposal { right, version: left.version, proposed: now, given_up, again_at: None };
        self.last.insert(left.id, last);
    }

    /// Whether one of this partition goes on.
    pub(crate) fn has(&self, left: PartitionId) -> bool {
        self.last.get(&left).is_some_and(|last| last.again_at.is_none())
    }

    /// Those that go on, each with the partition that it is about.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (PartitionId, &LastProposal)> + Clone {
        self.last.iter().filter(|(_, last)| last.again_at.is_none()).map(|(left, last)| (*left, last))
    }

    /// Whether those that were given up forbid the next one now. `what` is said of it: splits, merges.
    ///
    /// # Errors
    /// `Refused`, with for how long.
    pub(crate) fn check_rested(&self, left: PartitionId, now: Millis, what: &str) -> Result<(), ErrorDetail> {
        match self.last.get(&left).and_then(|last| Some((last.again_at?, last.given_up))) {
            Some((again_at, given_up)) if now < again_at => Err(refused(format!(
                "{given_up} {what} of it were given up; there is none by itself for {} ms",
                again_at.since(now)
            ))),
            _ => Ok(()),
        }
    }
}
