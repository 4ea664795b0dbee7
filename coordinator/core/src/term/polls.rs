//! What a participant's poll for duties is answered with.

use crate::duties::{DutiesMark, duties, duties_mark};
use crate::state::ClusterState;
use archon_types::{Duty, ErrorDetail, Incarnation, NodeId, Version};

/// What a participant was told last in a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// To which life of it.
    pub incarnation: Incarnation,
    /// What its duties followed from.
    pub mark: DutiesMark,
    /// The version under which they were told.
    pub version: Version,
}

/// What a poll is answered now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Polled {
    /// Its duties, all of them.
    News(Told, Vec<Duty>),
    /// It obeys them.
    Nothing,
    /// It is not on record as active yet, and is told nothing until then.
    NotActive,
}

/// Whether a participant that obeys the duties of `asked`, a term and version, has others by now. `told` is what it was told
/// last in `term`.
///
/// # Errors
/// As [`ClusterState::check_sender`].
pub fn polled(
    state: &ClusterState,
    (node, incarnation): (NodeId, Incarnation),
    term: u64,
    asked: (u64, Version),
    told: Option<Told>,
) -> Result<Polled, ErrorDetail> {
    state.check_sender(node, incarnation)?;
    let Some(mark) = duties_mark(state, node) else { return Ok(Polled::NotActive) };
    let obeyed =
        told.is_some_and(|told| asked == (term, told.version) && (told.mark, told.incarnation) == (mark, incarnation));
    let news = duties(state, node).filter(|_| !obeyed);
    let version = Version::new(state.applied);
    Ok(news.map_or(Polled::Nothing, |duties| Polled::News(Told { incarnation, mark, version }, duties)))
}
