//! Answers to participants' polls for duties.

use crate::leader::duties::{DutiesMark, duties, duties_mark};
use crate::state::ClusterState;
use archon_types::{Duty, ErrorDetail, Incarnation, NodeId, Version};

/// The last duties sent to a participant in a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentDuties {
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Inputs of its duties.
    pub mark: DutiesMark,
    /// The version under which they were sent.
    pub version: Version,
}

/// Answer to a poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PollAnswer {
    /// All of its duties.
    News(SentDuties, Vec<Duty>),
    /// It obeys them already.
    Nothing,
    /// It is not recorded as active yet, and gets no duties until then.
    NotActive,
}

/// Determines whether a participant that obeys the duties of `asked`, a term and version, has others by now. `told` are
/// the last duties sent to it in `term`.
///
/// # Errors
/// Like [`ClusterState::check_sender`].
pub fn polled(
    state: &ClusterState,
    (node, incarnation): (NodeId, Incarnation),
    term: u64,
    asked: (u64, Version),
    told: Option<SentDuties>,
) -> Result<PollAnswer, ErrorDetail> {
    state.check_sender(node, incarnation)?;
    let Some(mark) = duties_mark(state, node) else { return Ok(PollAnswer::NotActive) };
    let obeyed =
        told.is_some_and(|told| asked == (term, told.version) && (told.mark, told.incarnation) == (mark, incarnation));
    let news = duties(state, node).filter(|_| !obeyed);
    let version = Version::new(state.applied);
    Ok(news.map_or(PollAnswer::Nothing, |duties| PollAnswer::News(SentDuties { incarnation, mark, version }, duties)))
}
