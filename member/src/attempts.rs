//! The attempts of one heartbeat: by relays, one after the other; then the coordinator that probably leads; then all others at once
//! (PROTOCOL rules 67 and 68). Who is asked next follows from what came of those before: sending, waiting and giving up are the
//! shell's.

use crate::mutant::{Broken, Mutant};
use archon_types::NodeId;
use std::collections::VecDeque;

/// Of those whom a relay told that no coordinator answers it, and whom no other relay helps, one in so many asks for itself (rule 68).
const ASKS_FOR_ITSELF: u32 = 32;

/// Whom a heartbeat is sent to. `C` is how the shell names a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way<C> {
    /// A relay.
    Relay(NodeId),
    /// A coordinator.
    Coordinator(C),
}

/// Why an attempt granted nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unanswered<C> {
    /// A relay has no coordinator that answers it. It keeps the heartbeat for whoever leads next.
    NoCoordinator,
    /// Nothing came in time, or a refusal; perhaps with word of who leads.
    Failed(Option<C>),
}

/// What a member does next about a heartbeat that is not answered yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<C> {
    /// One leaves for each of these, all at once, each with a number of its own. At least one.
    Ask(Vec<Way<C>>),
    /// Others that were asked at the same time may still answer.
    Wait,
    /// Nobody is asked any more. A relay keeps the heartbeat for whoever leads next.
    Kept,
    /// Nobody is asked any more: none of all that there are granted anything.
    Failed,
}

/// The attempts of one heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempts<C> {
    /// Relays that were not asked yet.
    relays: VecDeque<NodeId>,
    asked: Asked<C>,
    /// A relay said that no coordinator answers it.
    none_answers: bool,
    broken: Broken,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Asked<C> {
    /// Nobody, or relays.
    Relays,
    /// The coordinator that probably leads.
    Leader(C),
    /// All others, of whom so many may still answer.
    Others(usize),
}

impl<C: Clone + PartialEq> Attempts<C> {
    /// Nobody is asked yet. The relays are in the order that [`Ways`](crate::Ways) gave.
    pub fn by(relays: impl IntoIterator<Item = NodeId>) -> Self {
        let relays = relays.into_iter().collect();
        Self { relays, asked: Asked::Relays, none_answers: false, broken: Broken::default() }
    }

    /// With a rule taken away.
    #[must_use]
    pub const fn broken_by(mut self, broken: Broken) -> Self {
        self.broken = broken;
        self
    }

    /// Whom the heartbeat goes to first. `coordinators`: all that are known now, the one that probably leads first.
    pub fn begin(&mut self, coordinators: impl FnOnce() -> Vec<C>) -> Step<C> {
        match self.relays.pop_front() {
            Some(relay) => Step::Ask(vec![Way::Relay(relay)]),
            None => self.ask_leader(coordinators()),
        }
    }

    /// One of those that were asked last granted nothing. `draw` gives a number below the one it is given, each as likely as another.
    pub fn unanswered(
        &mut self,
        why: Unanswered<C>,
        coordinators: impl FnOnce() -> Vec<C>,
        draw: impl FnOnce(u32) -> u32,
    ) -> Step<C> {
        match &mut self.asked {
            Asked::Relays => {
                // It may be the relay that is cut off: the next one is asked all the same.
                self.none_answers |= why == Unanswered::NoCoordinator;
                if let Some(relay) = self.relays.pop_front() {
                    return Step::Ask(vec![Way::Relay(relay)]);
                }
                let asks = || draw(ASKS_FOR_ITSELF) == 0 || self.broken.breaks(Mutant::AllAskThemselves); // rule 68
                if self.none_answers && !asks() { Step::Kept } else { self.ask_leader(coordinators()) }
            }
            Asked::Leader(first) => {
                let hint = if let Unanswered::Failed(hint) = why { hint } else { None };
                let mut others: Vec<C> = Vec::new();
                for other in hint.into_iter().chain(coordinators()) {
                    if other != *first && !others.contains(&other) {
                        others.push(other);
                    }
                }
                self.asked = Asked::Others(others.len());
                if others.is_empty() {
                    Step::Failed
                } else {
                    Step::Ask(others.into_iter().map(Way::Coordinator).collect())
                }
            }
            Asked::Others(left) => {
                *left = left.saturating_sub(1);
                if *left == 0 { Step::Failed } else { Step::Wait }
            }
        }
    }

    /// Whoever was asked last is not waited for any more.
    pub fn given_up(&mut self, coordinators: impl FnOnce() -> Vec<C>, draw: impl FnOnce(u32) -> u32) -> Step<C> {
        if let Asked::Others(_) = self.asked {
            self.asked = Asked::Others(0);
        }
        self.unanswered(Unanswered::Failed(None), coordinators, draw)
    }

    fn ask_leader(&mut self, coordinators: Vec<C>) -> Step<C> {
        let Some(first) = coordinators.into_iter().next() else { return Step::Failed };
        self.asked = Asked::Leader(first.clone());
        Step::Ask(vec![Way::Coordinator(first)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NodeId = NodeId::new(1);
    const TWO: NodeId = NodeId::new(2);

    /// The coordinators that a member knows.
    fn known() -> Vec<char> {
        vec!['a', 'b', 'c']
    }

    fn ask(ways: &[Way<char>]) -> Step<char> {
        Step::Ask(ways.to_vec())
    }

    /// Of those that are told that no coordinator answers, none is drawn.
    fn next(attempts: &mut Attempts<char>, why: Unanswered<char>) -> Step<char> {
        attempts.unanswered(why, known, |below| below - 1)
    }

    #[test]
    fn relays_are_asked_one_after_the_other_then_the_leader_then_all_others() {
        let mut attempts = Attempts::by([ONE, TWO]);
        assert_eq!(attempts.begin(known), ask(&[Way::Relay(ONE)]));
        assert_eq!(next(&mut attempts, Unanswered::Failed(None)), ask(&[Way::Relay(TWO)]));
        assert_eq!(next(&mut attempts, Unanswered::Failed(None)), ask(&[Way::Coordinator('a')]));
        let others = ask(&[Way::Coordinator('b'), Way::Coordinator('c')]);
        assert_eq!(next(&mut attempts, Unanswered::Failed(None)), others);
        assert_eq!(next(&mut attempts, Unanswered::Failed(Some('d'))), Step::Wait, "the other one may lead");
        assert_eq!(next(&mut attempts, Unanswered::Failed(None)), Step::Failed);
    }

    #[test]
    fn whom_the_first_coordinator_names_is_asked_with_the_others_even_if_it_was_not_known() {
        let first = |hint| {
            let mut attempts = Attempts::by([]);
            assert_eq!(attempts.begin(known), ask(&[Way::Coordinator('a')]));
            next(&mut attempts, Unanswered::Failed(hint))
        };
        assert_eq!(first(Some('c')), ask(&[Way::Coordinator('c'), Way::Coordinator('b')]));
        assert_eq!(first(Some('d')), ask(&[Way::Coordinator('d'), Way::Coordinator('b'), Way::Coordinator('c')]));
        assert_eq!(first(Some('a')), ask(&[Way::Coordinator('b'), Way::Coordinator('c')]), "it was asked");
    }

    #[test]
    fn a_member_that_knows_one_coordinator_or_none_does_not_wait_for_others() {
        let mut attempts: Attempts<char> = Attempts::by([]);
        assert_eq!(attempts.begin(Vec::new), Step::Failed);
        assert_eq!(attempts.begin(|| vec!['a']), ask(&[Way::Coordinator('a')]));
        assert_eq!(attempts.given_up(|| vec!['a'], |_| 0), Step::Failed);
    }

    #[test]
    fn all_that_were_asked_at_once_are_given_up_at_once() {
        let mut attempts = Attempts::by([]);
        attempts.begin(known);
        assert_eq!(attempts.given_up(known, |_| 0), ask(&[Way::Coordinator('b'), Way::Coordinator('c')]));
        assert_eq!(attempts.given_up(known, |_| 0), Step::Failed);
    }

    #[test]
    fn a_relay_that_is_cut_off_kept_its_members_from_their_other_relay() {
        let mut attempts = Attempts::by([ONE, TWO]);
        attempts.begin(known);
        assert_eq!(next(&mut attempts, Unanswered::NoCoordinator), ask(&[Way::Relay(TWO)]));
        assert_eq!(next(&mut attempts, Unanswered::Failed(None)), Step::Kept, "the first one keeps it");
    }

    fn few_of_those_whom_no_relay_helps_ask_for_themselves(mutant: Option<Mutant>) -> bool {
        let drawn = |drawn: u32| {
            let mut attempts = Attempts::by([ONE]).broken_by(Broken::by(mutant));
            attempts.begin(known);
            attempts.unanswered(Unanswered::NoCoordinator, known, |below| drawn % below)
        };
        let asks = (0..ASKS_FOR_ITSELF).filter(|number| drawn(*number) == ask(&[Way::Coordinator('a')])).count();
        let kept = (0..ASKS_FOR_ITSELF).filter(|number| drawn(*number) == Step::Kept).count();
        (asks, kept) == (1, 31)
    }

    archon_types::shown_by! {
        AllAskThemselves => few_of_those_whom_no_relay_helps_ask_for_themselves,
    }
}
