//! Heights of the parts of the screen.

/// Number of rows of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RowCounts {
    /// Reasons of waits.
    pub(super) reasons: usize,
    /// Nodes.
    pub(super) nodes: usize,
    /// Running moves.
    pub(super) moves: usize,
    /// Events.
    pub(super) events: usize,
}

/// Lines of each part; together at most the height of the terminal. If there are too few, the less urgent parts get
/// none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heights {
    /// State of the cluster.
    pub(super) header: u16,
    /// Its throughput.
    pub(super) throughput: u16,
    /// Its nodes, below a line of headings.
    pub(super) nodes: u16,
    /// Its moves, below a line.
    pub(super) moves: u16,
    /// Its events, below a line.
    pub(super) events: u16,
}

/// Lines of the header without reasons.
pub(super) const HEADER: u16 = 4;
/// Terminals below this height get the short form of everything.
const TALL: u16 = 32;

impl Heights {
    /// Returns the heights on a terminal of `height` lines.
    pub(super) fn new(height: u16, wants: RowCounts) -> Self {
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
        // First the minimum of each part, in order of urgency …
        let header = give(HEADER.saturating_add(lines(wants.reasons).min(if tall { 8 } else { 2 })));
        let mut heights = Self {
            header,
            nodes: give(nodes.min(5)),
            moves: give(moves.min(4)),
            throughput: give(if tall { 5 } else { 2 }),
            events: give(events.min(4)),
        };
        // … then the rest to parts with more rows.
        heights.nodes += give(nodes - heights.nodes);
        heights.moves += give(moves - heights.moves);
        heights.events += give(events - heights.events);
        heights
    }
}

fn lines(rows: usize) -> u16 {
    // No terminal is higher, and one more may be added.
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
    fn nodes_get_space_before_events() {
        let many = RowCounts { reasons: 0, nodes: 1_000, moves: 0, events: 60 };
        assert_eq!(Heights::new(24, many), Heights { header: 4, throughput: 2, nodes: 13, moves: 1, events: 4 });
        let few = Heights::new(60, RowCounts { nodes: 3, ..many });
        assert_eq!(few, Heights { header: 4, throughput: 5, nodes: 4, moves: 1, events: 46 });
    }

    #[test]
    fn every_part_fits_on_24_lines() {
        let heights = Heights::new(24, RowCounts { reasons: 40, nodes: 1_000, moves: 500, events: 60 });
        assert_eq!(heights, Heights { header: 6, throughput: 2, nodes: 8, moves: 4, events: 4 });
    }

    proptest! {
        #[test]
        fn heights_never_exceed_the_terminal(
            height: u16,
            reasons in 0..100_000_usize,
            nodes in 0..100_000_usize,
            moves in 0..100_000_usize,
            events in 0..100_000_usize,
        ) {
            let wants = RowCounts { reasons, nodes, moves, events };
            prop_assert!(sum(Heights::new(height, wants)) <= u32::from(height));
        }
    }
}
