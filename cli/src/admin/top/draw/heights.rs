//! How many lines each part of the picture gets.

/// What there is to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wants {
    /// Reasons why something waits.
    pub(super) reasons: usize,
    /// Nodes.
    pub(super) nodes: usize,
    /// Moves that run.
    pub(super) moves: usize,
    /// Events.
    pub(super) events: usize,
}

/// Lines of each part; together no more than there are. Where there are too few, what comes later in urgency gets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heights {
    /// How the cluster is.
    pub(super) header: u16,
    /// What it does.
    pub(super) throughput: u16,
    /// Its nodes, under a line of headings.
    pub(super) nodes: u16,
    /// Its moves, under a line.
    pub(super) moves: u16,
    /// What happened, under a line.
    pub(super) events: u16,
}

/// Lines of the header without reasons.
pub(super) const HEADER: u16 = 4;
/// Terminals below this height get the short form of everything.
const TALL: u16 = 32;

impl Heights {
    /// The heights on a terminal of `height` lines.
    pub(super) fn new(height: u16, wants: Wants) -> Self {
        let tall = height >= TALL;
        let mut left = height;
        let mut give = |wanted: u16| {
            let given = wanted.min(left);
            left -= given;
            given
        };
        let under_a_line = |rows: usize| lines(rows).saturating_add(1);
        let (nodes, moves, events) =
            (under_a_line(wants.nodes.max(1)), under_a_line(wants.moves), under_a_line(wants.events));
        // First what each needs to be of any use, in order of urgency …
        let header = give(HEADER.saturating_add(lines(wants.reasons).min(if tall { 8 } else { 2 })));
        let mut heights = Self {
            header,
            nodes: give(nodes.min(5)),
            moves: give(moves.min(4)),
            throughput: give(if tall { 5 } else { 2 }),
            events: give(events.min(4)),
        };
        // … then the rest to those who have more to show.
        heights.nodes += give(nodes - heights.nodes);
        heights.moves += give(moves - heights.moves);
        heights.events += give(events - heights.events);
        heights
    }
}

fn lines(rows: usize) -> u16 {
    // A terminal is never higher, and one more may be added.
    u16::try_from(rows).unwrap_or(u16::MAX).min(u16::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(heights: Heights) -> u32 {
        let Heights { header, throughput, nodes, moves, events } = heights;
        [header, throughput, nodes, moves, events].into_iter().map(u32::from).sum()
    }

    #[test]
    fn of_many_nodes_as_many_as_possible_are_seen_and_of_few_the_rest_is_for_events() {
        let many = Wants { reasons: 0, nodes: 1_000, moves: 0, events: 60 };
        assert_eq!(Heights::new(24, many), Heights { header: 4, throughput: 2, nodes: 13, moves: 1, events: 4 });
        let few = Heights::new(60, Wants { nodes: 3, ..many });
        assert_eq!(few, Heights { header: 4, throughput: 5, nodes: 4, moves: 1, events: 46 });
    }

    #[test]
    fn when_everything_happens_at_once_every_part_is_there_on_24_lines() {
        let heights = Heights::new(24, Wants { reasons: 40, nodes: 1_000, moves: 500, events: 60 });
        assert_eq!(heights, Heights { header: 6, throughput: 2, nodes: 8, moves: 4, events: 4 });
    }

    proptest! {
        #[test]
        fn no_more_is_given_than_there_is(
            height: u16,
            reasons in 0..100_000_usize,
            nodes in 0..100_000_usize,
            moves in 0..100_000_usize,
            events in 0..100_000_usize,
        ) {
            let wants = Wants { reasons, nodes, moves, events };
            prop_assert!(sum(Heights::new(height, wants)) <= u32::from(height));
        }
    }
}
