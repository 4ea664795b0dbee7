//! By which relays a member's heartbeats travel, and when it turns to the coordinators itself (PROTOCOL rule 67).

use crate::mutant::{Broken, Mutant};
use archon_types::{Millis, NodeId};

/// How long the answer of a relay is waited for, in milliseconds: it says within 50 ms that no coordinator answers it.
pub const RELAY_ANSWER_MS: u64 = 80;
/// How long a node waits for the answer of a coordinator, in milliseconds.
pub const COORDINATOR_ANSWER_MS: u64 = 150;
/// Rounds for which a member that a coordinator answered, and no relay, goes straight to the coordinators.
const DIRECT_ROUNDS: u32 = 10;
/// How long before a relay's batch leaves a member's heartbeat sets out, in milliseconds.
const AHEAD_MS: u64 = 10;

/// What a member remembers of the ways that its heartbeats took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ways {
    /// The relay that answered last.
    preferred: Option<NodeId>,
    /// How many more rounds go straight to the coordinators.
    direct: u32,
    /// Whether there was a relay to be tried in the present round.
    tried: bool,
    broken: Broken,
}

impl Ways {
    /// With a rule taken away.
    #[must_use]
    pub const fn broken_by(mut self, broken: Broken) -> Self {
        self.broken = broken;
        self
    }

    /// The relays to be tried in this round, one after the other and before the coordinators, of those that are the member's.
    pub fn order(&mut self, relays: &[NodeId]) -> Vec<NodeId> {
        let mut order = if self.direct > 0 { Vec::new() } else { relays.to_vec() };
        self.tried = !order.is_empty();
        // The one that answered stays first.
        order.sort_by_key(|relay| Some(*relay) != self.preferred);
        order
    }

    /// Who answered this round: a relay, or a coordinator itself.
    pub fn answered_by(&mut self, relay: Option<NodeId>) {
        match relay {
            Some(_) => *self = Self { preferred: relay, direct: 0, ..*self },
            None if self.tried => self.direct = DIRECT_ROUNDS,
            None if self.broken.breaks(Mutant::DirectForEver) => {} // rule 67
            // There was none to be tried, as in the first round of a life, which does not know yet how many there are.
            None => self.direct = self.direct.saturating_sub(1),
        }
    }
}

/// When the next heartbeat leaves, if the last one left at `sent` and a relay, whose batches leave every `relay_every_ms`, said at `now` that
/// the next one leaves in `departure_ms`: shortly before one leaves, about a heartbeat interval after the last one and no later than a
/// quarter of the relay's interval beyond that.
pub fn next_by_relay(sent: Millis, now: Millis, departure_ms: u64, heartbeat_ms: u64, relay_every_ms: u64) -> Millis {
    let every = relay_every_ms.max(1);
    let departure = now.plus(departure_ms.min(every));
    let latest = sent.plus(heartbeat_ms).plus(every / 4);
    let first = Millis::new(departure.get().saturating_sub(AHEAD_MS));
    let fitting = first.plus(latest.since(first) / every * every);
    // Whoever beats more often than its relay does not fall in with it: what comes between leaves as well.
    fitting.min(latest).max(sent.plus(heartbeat_ms / 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: NodeId = NodeId::new(1);
    const TWO: NodeId = NodeId::new(2);

    #[test]
    fn the_relay_that_answered_stays_first_and_whoever_had_to_go_straight_does_so_for_a_while() {
        let mut ways = Ways::default();
        assert_eq!(ways.order(&[ONE, TWO]), [ONE, TWO]);
        ways.answered_by(Some(TWO));
        assert_eq!(ways.order(&[ONE, TWO]), [TWO, ONE]);
        assert_eq!(ways.order(&[ONE]), [ONE], "it relays no more");
        ways.answered_by(None);
        for _ in 0..DIRECT_ROUNDS {
            assert_eq!(ways.order(&[ONE, TWO]), []);
            ways.answered_by(None);
        }
        assert_eq!(ways.order(&[ONE, TWO]), [TWO, ONE], "and then tries them again");
    }

    #[test]
    fn a_life_that_knew_of_no_relay_yet_went_straight_for_ten_more_rounds() {
        let mut ways = Ways::default();
        assert_eq!(ways.order(&[]), []);
        ways.answered_by(None);
        assert_eq!(ways.order(&[ONE, TWO]), [ONE, TWO]);
    }

    fn whoever_went_straight_tries_its_relays_again(mutant: Option<Mutant>) -> bool {
        let mut ways = Ways::default().broken_by(Broken::by(mutant));
        let mut round = |straight: bool| {
            let tried = !ways.order(&[ONE, TWO]).is_empty();
            ways.answered_by((!straight).then_some(ONE));
            tried
        };
        round(true) && (0..DIRECT_ROUNDS).all(|_| !round(true)) && round(false)
    }

    archon_types::shown_by! {
        DirectForEver => whoever_went_straight_tries_its_relays_again,
    }

    proptest! {
        #[test]
        fn a_member_falls_in_with_its_relay_and_beats_about_as_often_as_ever(
            phase in 0_u64..200, sent in 0_u64..1_000, delay in 0_u64..40,
        ) {
            let mut sent = Millis::new(10_000 + sent);
            for round in 0..4 {
                let now = sent.plus(delay);
                let departure_ms = 200 - (now.get() + phase) % 200;
                let next = next_by_relay(sent, now, departure_ms, 200, 200);
                let interval = next.since(sent);
                prop_assert!((50..=250).contains(&interval), "{interval}");
                prop_assert_eq!((next.get() + AHEAD_MS + phase) % 200, 0);
                prop_assert!(round == 0 || interval == 200, "it stays in step: {}", interval);
                sent = next;
            }
        }

        #[test]
        fn a_participant_that_beats_more_rarely_than_its_relay_falls_in_with_it_too(
            phase in 0_u64..200, sent in 0_u64..1_000, delay in 0_u64..40, heartbeat in 200_u64..5_000,
        ) {
            let (sent, now) = (Millis::new(10_000 + sent), Millis::new(10_000 + sent + delay));
            let departure_ms = 200 - (now.get() + phase) % 200;
            let next = next_by_relay(sent, now, departure_ms, heartbeat, 200);
            prop_assert_eq!((next.get() + AHEAD_MS + phase) % 200, 0);
            prop_assert!((heartbeat - 150..=heartbeat + 50).contains(&next.since(sent)), "{}", next.since(sent));
        }

        #[test]
        fn a_participant_that_beats_more_often_than_its_relay_neither_waits_for_it_nor_hurries(
            sent in 0_u64..1_000, delay in 0_u64..40, departure_ms in 0_u64..300, heartbeat in 20_u64..200,
        ) {
            let (sent, now) = (Millis::new(10_000 + sent), Millis::new(10_000 + sent + delay));
            let interval = next_by_relay(sent, now, departure_ms, heartbeat, 200).since(sent);
            prop_assert!((heartbeat / 4..=heartbeat + 50).contains(&interval), "{}", interval);
        }
    }
}
