//! Polls of participants for their duties: the parked poll of each, and its answer.

use crate::leader::duties::{DutiesMark, duties, duties_mark};
use crate::state::ClusterState;
use archon_types::{Duty, ErrorDetail, Incarnation, NodeId, Version};
use std::collections::BTreeMap;

/// A poll. Its participant obeys the duties of `obeyed`, a term and a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poll {
    node: NodeId,
    incarnation: Incarnation,
    obeyed: (u64, Version),
    number: u64,
}

/// Answer to a poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PollAnswer {
    /// All duties of the participant, in this version.
    News(Version, Vec<Duty>),
    /// None yet: the participant obeys its duties. The poll is parked.
    Nothing,
    /// None yet: the participant is not recorded as active, and gets no duties until then. The poll is parked.
    NotActive,
    /// Nothing changed: the participant has begun another poll, or is gone.
    Overtaken,
}

/// The polls of participants in a term. Each participant has at most one: a newer poll ends the previous one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Polls(BTreeMap<NodeId, MemberPolls>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct MemberPolls {
    /// Number of the newest poll.
    newest: u64,
    sent: Option<SentDuties>,
}

/// The last duties sent to a participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SentDuties {
    incarnation: Incarnation,
    /// Inputs of its duties.
    mark: DutiesMark,
    version: Version,
}

impl Polls {
    /// Begins a poll of one incarnation of a participant.
    pub fn begin(&mut self, node: NodeId, incarnation: Incarnation, obeyed: (u64, Version)) -> Poll {
        let member = self.0.entry(node).or_default();
        member.newest += 1;
        Poll { node, incarnation, obeyed, number: member.newest }
    }

    /// Answers a poll in `term`: its participant has other duties than the ones that it obeys, or the poll is parked
    /// until the state changes for it.
    ///
    /// # Errors
    /// Like [`ClusterState::check_sender`].
    pub fn answer(&mut self, state: &ClusterState, term: u64, poll: Poll) -> Result<PollAnswer, ErrorDetail> {
        let Poll { node, incarnation, obeyed, number } = poll;
        let Some(member) = self.0.get_mut(&node).filter(|member| member.newest == number) else {
            return Ok(PollAnswer::Overtaken);
        };
        state.check_sender(node, incarnation)?;
        let Some(mark) = duties_mark(state, node) else { return Ok(PollAnswer::NotActive) };
        let obeys =
            |sent: SentDuties| obeyed == (term, sent.version) && (sent.mark, sent.incarnation) == (mark, incarnation);
        let news = duties(state, node).filter(|_| !member.sent.is_some_and(obeys));
        let Some(duties) = news else { return Ok(PollAnswer::Nothing) };
        let version = Version::new(state.applied);
        member.sent = Some(SentDuties { incarnation, mark, version });
        Ok(PollAnswer::News(version, duties))
    }

    /// Forgets participants that are gone.
    pub fn retain(&mut self, keep: impl Fn(NodeId) -> bool) {
        self.0.retain(|member, _| keep(*member));
    }
}
