//! Attempts to send one heartbeat: to relays in turn, then to the probable leader, then to all other coordinators at
//! once (PROTOCOL rules 67 and 68). Chooses the next recipients from the outcomes so far; the shell sends, waits and
//! gives up.

use crate::mutant::{DisabledRule, Mutant};
use archon_types::NodeId;
use std::collections::VecDeque;

/// Of the members without a usable relay whose relay reported that no coordinator answers, one in this many asks the
/// coordinators directly (rule 68).
pub const ASKS_FOR_ITSELF: u32 = 32;

/// Recipient of a heartbeat. `C` identifies a coordinator to the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptTarget<C> {
    /// A relay.
    Relay(NodeId),
    /// A coordinator.
    Coordinator(C),
}

/// Reason why an attempt granted nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptFailure<C> {
    /// No coordinator answers the relay, which keeps the heartbeat for the next leader.
    NoCoordinator,
    /// No answer in time, or a refusal, possibly with a hint to the leader.
    Failed(Option<C>),
}

/// Next step for a heartbeat without an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<C> {
    /// Send a heartbeat to each of these at once, each with its own number. Never empty.
    Ask(Vec<AttemptTarget<C>>),
    /// Wait: others that were asked at the same time may still answer.
    Wait,
    /// Stop: a relay keeps the heartbeat for the next leader.
    Kept,
    /// Stop: all recipients failed.
    Failed,
}

/// The attempts for one heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attempts<C> {
    /// Relays that were not asked yet.
    relays: VecDeque<NodeId>,
    asked: Recipients<C>,
    /// A relay reported that no coordinator answers it.
    none_answers: bool,
    broken: DisabledRule,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Recipients<C> {
    /// None yet, or relays.
    Relays,
    /// The probable leader.
    Leader(C),
    /// All other coordinators; this many may still answer.
    Others(usize),
}

impl<C: Clone + PartialEq> Attempts<C> {
    /// Starts without any attempt. The relays are in the order of [`RelayPreference`](crate::relay_preference::RelayPreference).
    pub(crate) fn by(relays: impl IntoIterator<Item = NodeId>) -> Self {
        let relays = relays.into_iter().collect();
        Self { relays, asked: Recipients::Relays, none_answers: false, broken: DisabledRule::default() }
    }

    /// Disables a rule.
    #[must_use]
    pub(crate) const fn broken_by(mut self, broken: DisabledRule) -> Self {
        self.broken = broken;
        self
    }

    /// Returns the first step. `coordinators` are all known ones, the probable leader first.
    pub(crate) fn begin(&mut self, coordinators: &[C]) -> Step<C> {
        match self.relays.pop_front() {
            Some(relay) => Step::Ask(vec![AttemptTarget::Relay(relay)]),
            None => self.ask_leader(coordinators),
        }
    }

    /// Returns the step after a failed attempt. `draw` returns a uniformly random number below its argument.
    pub(crate) fn unanswered(
        &mut self,
        why: AttemptFailure<C>,
        coordinators: &[C],
        draw: impl FnOnce(u32) -> u32,
    ) -> Step<C> {
        match &mut self.asked {
            Recipients::Relays => {
                // Only that relay may be cut off: ask the next one too.
                self.none_answers |= why == AttemptFailure::NoCoordinator;
                if let Some(relay) = self.relays.pop_front() {
                    return Step::Ask(vec![AttemptTarget::Relay(relay)]);
                }
                let asks = || draw(ASKS_FOR_ITSELF) == 0 || self.broken.breaks(Mutant::AllAskThemselves); // rule 68
                if self.none_answers && !asks() { Step::Kept } else { self.ask_leader(coordinators) }
            }
            Recipients::Leader(first) => {
                let hint = if let AttemptFailure::Failed(hint) = why { hint } else { None };
                let mut others: Vec<C> = Vec::new();
                for other in hint.into_iter().chain(coordinators.iter().cloned()) {
                    if other != *first && !others.contains(&other) {
                        others.push(other);
                    }
                }
                self.asked = Recipients::Others(others.len());
                if others.is_empty() {
                    Step::Failed
                } else {
                    Step::Ask(others.into_iter().map(AttemptTarget::Coordinator).collect())
                }
            }
            Recipients::Others(left) => {
                *left = left.saturating_sub(1);
                if *left == 0 { Step::Failed } else { Step::Wait }
            }
        }
    }

    /// Returns the step after the last recipients timed out.
    pub(crate) fn given_up(&mut self, coordinators: &[C], draw: impl FnOnce(u32) -> u32) -> Step<C> {
        if let Recipients::Others(_) = self.asked {
            self.asked = Recipients::Others(0);
        }
        self.unanswered(AttemptFailure::Failed(None), coordinators, draw)
    }

    fn ask_leader(&mut self, coordinators: &[C]) -> Step<C> {
        let Some(first) = coordinators.first() else { return Step::Failed };
        self.asked = Recipients::Leader(first.clone());
        Step::Ask(vec![AttemptTarget::Coordinator(first.clone())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NodeId = NodeId::new(1);
    const TWO: NodeId = NodeId::new(2);

    /// Coordinators that the member knows.
    const KNOWN: &[char] = &['a', 'b', 'c'];

    fn ask(ways: &[AttemptTarget<char>]) -> Step<char> {
        Step::Ask(ways.to_vec())
    }

    /// Returns the next step of a member that is not drawn to ask directly.
    fn next(attempts: &mut Attempts<char>, why: AttemptFailure<char>) -> Step<char> {
        attempts.unanswered(why, KNOWN, |below| below - 1)
    }

    #[test]
    fn relays_are_tried_first_then_leader_then_all_others() {
        let mut attempts = Attempts::by([ONE, TWO]);
        assert_eq!(attempts.begin(KNOWN), ask(&[AttemptTarget::Relay(ONE)]));
        assert_eq!(next(&mut attempts, AttemptFailure::Failed(None)), ask(&[AttemptTarget::Relay(TWO)]));
        assert_eq!(next(&mut attempts, AttemptFailure::Failed(None)), ask(&[AttemptTarget::Coordinator('a')]));
        let others = ask(&[AttemptTarget::Coordinator('b'), AttemptTarget::Coordinator('c')]);
        assert_eq!(next(&mut attempts, AttemptFailure::Failed(None)), others);
        assert_eq!(next(&mut attempts, AttemptFailure::Failed(Some('d'))), Step::Wait, "the other one may lead");
        assert_eq!(next(&mut attempts, AttemptFailure::Failed(None)), Step::Failed);
    }

    #[test]
    fn hinted_leader_is_asked_even_if_unknown() {
        let first = |hint| {
            let mut attempts = Attempts::by([]);
            assert_eq!(attempts.begin(KNOWN), ask(&[AttemptTarget::Coordinator('a')]));
            next(&mut attempts, AttemptFailure::Failed(hint))
        };
        assert_eq!(first(Some('c')), ask(&[AttemptTarget::Coordinator('c'), AttemptTarget::Coordinator('b')]));
        assert_eq!(
            first(Some('d')),
            ask(&[AttemptTarget::Coordinator('d'), AttemptTarget::Coordinator('b'), AttemptTarget::Coordinator('c')])
        );
        assert_eq!(
            first(Some('a')),
            ask(&[AttemptTarget::Coordinator('b'), AttemptTarget::Coordinator('c')]),
            "it was asked"
        );
    }

    #[test]
    fn single_or_missing_coordinator_fails_without_waiting() {
        let mut attempts: Attempts<char> = Attempts::by([]);
        assert_eq!(attempts.begin(&[]), Step::Failed);
        assert_eq!(attempts.begin(&['a']), ask(&[AttemptTarget::Coordinator('a')]));
        assert_eq!(attempts.given_up(&['a'], |_| 0), Step::Failed);
    }

    #[test]
    fn parallel_attempts_time_out_together() {
        let mut attempts = Attempts::by([]);
        attempts.begin(KNOWN);
        assert_eq!(
            attempts.given_up(KNOWN, |_| 0),
            ask(&[AttemptTarget::Coordinator('b'), AttemptTarget::Coordinator('c')])
        );
        assert_eq!(attempts.given_up(KNOWN, |_| 0), Step::Failed);
    }

    #[test]
    fn second_relay_is_asked_when_first_has_no_coordinator() {
        let mut attempts = Attempts::by([ONE, TWO]);
        attempts.begin(KNOWN);
        assert_eq!(next(&mut attempts, AttemptFailure::NoCoordinator), ask(&[AttemptTarget::Relay(TWO)]));
        assert_eq!(next(&mut attempts, AttemptFailure::Failed(None)), Step::Kept, "the first one keeps it");
    }

    fn few_members_without_relay_ask_coordinators_directly(mutant: Option<Mutant>) -> bool {
        let drawn = |drawn: u32| {
            let mut attempts = Attempts::by([ONE]).broken_by(DisabledRule::by(mutant));
            attempts.begin(KNOWN);
            attempts.unanswered(AttemptFailure::NoCoordinator, KNOWN, |below| drawn % below)
        };
        let asks =
            (0..ASKS_FOR_ITSELF).filter(|number| drawn(*number) == ask(&[AttemptTarget::Coordinator('a')])).count();
        let kept = (0..ASKS_FOR_ITSELF).filter(|number| drawn(*number) == Step::Kept).count();
        (asks, kept) == (1, 31)
    }

    archon_types::shown_by! {
        AllAskThemselves => few_members_without_relay_ask_coordinators_directly,
    }
}
