//! Choice of relays for a member's heartbeats, and fallback to the coordinators (PROTOCOL rule 67).

use crate::mutant::{DisabledRule, Mutant};
use archon_types::{Millis, NodeId};

/// Time-out for a relay's answer, in milliseconds: a relay reports within 50 ms that no coordinator answers.
pub(crate) const RELAY_ANSWER_MS: u64 = 80;
/// Rounds for which a member goes directly to the coordinators after no relay answered but a coordinator did.
const DIRECT_ROUNDS: u32 = 10;
/// Time in milliseconds by which a member's heartbeat precedes the relay's batch.
const AHEAD_MS: u64 = 10;

/// A member's experience with relays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RelayPreference {
    /// The relay that answered last.
    preferred: Option<NodeId>,
    /// Number of further rounds that go directly to the coordinators.
    direct: u32,
    /// Set if the current round tries relays.
    tried: bool,
    broken: DisabledRule,
}

impl RelayPreference {
    /// Disables a rule.
    #[must_use]
    pub(crate) const fn broken_by(mut self, broken: DisabledRule) -> Self {
        self.broken = broken;
        self
    }

    /// Returns the member's relays to try in this round before the coordinators, in order.
    pub(crate) fn order(&mut self, relays: &[NodeId]) -> Vec<NodeId> {
        let mut order = if self.direct > 0 { Vec::new() } else { relays.to_vec() };
        self.tried = !order.is_empty();
        // The last one that answered stays first.
        order.sort_by_key(|relay| Some(*relay) != self.preferred);
        order
    }

    /// Records the answering relay of this round; `None` for a coordinator.
    pub(crate) fn answered_by(&mut self, relay: Option<NodeId>) {
        match relay {
            Some(_) => *self = Self { preferred: relay, direct: 0, ..*self },
            None if self.tried => self.direct = DIRECT_ROUNDS,
            None if self.broken.breaks(Mutant::DirectForEver) => {} // rule 67
            // No relay was tried, as in the first round of an incarnation, before the relays are known.
            None => self.direct = self.direct.saturating_sub(1),
        }
    }
}

/// Returns the time of the next heartbeat, if the last one was sent at `sent` and a relay, with a batch every
/// `relay_every_ms`, reported at `now` that the next batch leaves in `departure_ms`: shortly before a batch, about a
/// heartbeat interval after the last heartbeat, and at most a quarter of the relay's interval later.
pub(crate) fn next_by_relay(
    sent: Millis,
    now: Millis,
    departure_ms: u64,
    heartbeat_ms: u64,
    relay_every_ms: u64,
) -> Millis {
    let every = relay_every_ms.max(1);
    let departure = now.plus(departure_ms.min(every));
    let latest = sent.plus(heartbeat_ms).plus(every / 4);
    let first = Millis::new(departure.get().saturating_sub(AHEAD_MS));
    let fitting = first.plus(latest.since(first) / every * every);
    // A member with a shorter interval than its relay is not aligned: heartbeats in between are sent as well.
    fitting.min(latest).max(sent.plus(heartbeat_ms / 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: NodeId = NodeId::new(1);
    const TWO: NodeId = NodeId::new(2);

    #[test]
    fn answering_relay_is_preferred_and_fallback_lasts_ten_rounds() {
        let mut ways = RelayPreference::default();
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
    fn first_round_without_relays_causes_no_fallback() {
        let mut ways = RelayPreference::default();
        assert_eq!(ways.order(&[]), []);
        ways.answered_by(None);
        assert_eq!(ways.order(&[ONE, TWO]), [ONE, TWO]);
    }

    fn relays_are_tried_again_after_direct_rounds(mutant: Option<Mutant>) -> bool {
        let mut ways = RelayPreference::default().broken_by(DisabledRule::by(mutant));
        let mut round = |straight: bool| {
            let tried = !ways.order(&[ONE, TWO]).is_empty();
            ways.answered_by((!straight).then_some(ONE));
            tried
        };
        round(true) && (0..DIRECT_ROUNDS).all(|_| !round(true)) && round(false)
    }

    archon_types::shown_by! {
        DirectForEver => relays_are_tried_again_after_direct_rounds,
    }

    proptest! {
        #[test]
        fn heartbeats_align_with_relay_and_keep_their_rate(
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
        fn slower_heartbeats_align_with_relay(
            phase in 0_u64..200, sent in 0_u64..1_000, delay in 0_u64..40, heartbeat in 200_u64..5_000,
        ) {
            let (sent, now) = (Millis::new(10_000 + sent), Millis::new(10_000 + sent + delay));
            let departure_ms = 200 - (now.get() + phase) % 200;
            let next = next_by_relay(sent, now, departure_ms, heartbeat, 200);
            prop_assert_eq!((next.get() + AHEAD_MS + phase) % 200, 0);
            prop_assert!((heartbeat - 150..=heartbeat + 50).contains(&next.since(sent)), "{}", next.since(sent));
        }

        #[test]
        fn faster_heartbeats_keep_their_interval(
            sent in 0_u64..1_000, delay in 0_u64..40, departure_ms in 0_u64..300, heartbeat in 20_u64..200,
        ) {
            let (sent, now) = (Millis::new(10_000 + sent), Millis::new(10_000 + sent + delay));
            let interval = next_by_relay(sent, now, departure_ms, heartbeat, 200).since(sent);
            prop_assert!((heartbeat / 4..=heartbeat + 50).contains(&interval), "{}", interval);
        }
    }
}
