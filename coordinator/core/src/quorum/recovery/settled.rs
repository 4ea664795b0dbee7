//! Selection of a partition's replicas that count after a recovery, among the reported ones.
//!
//! Everything acknowledged is in every replica that counted then, and so in the one with the log that ends last:
//! replicas are compared by the epoch and the position of their last entry, as votes are (Ongaro 2014, §3.6.1). All
//! replicas that end there hold the same log.

use crate::state::recovery::FrozenReplica;
use archon_types::{Epoch, NodeId, PlacementId};

/// Replicas from which a partition continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// The replicas that count, each with its node: their logs end at the same entry.
    pub(crate) counts: Vec<(PlacementId, NodeId)>,
    /// The other replicas.
    pub(crate) lags: Vec<PlacementId>,
    /// Another replica knows a later leadership, of which this log holds no entry: reads answered in it may be undone,
    /// but no writes.
    pub(crate) contested: bool,
}

/// Selects the replicas that count among the reported ones; `None` if there is none. `leader` led in that epoch, as far
/// as is known.
pub(crate) fn choose(
    leader: Option<(Epoch, PlacementId)>,
    told: &[(PlacementId, NodeId, FrozenReplica)],
) -> Option<Choice> {
    let promised = told.iter().map(|(_, _, standing)| standing.promised).max()?;
    // The leader of the highest known epoch holds everything acknowledged before that epoch.
    let led = |(placement, _, standing): &&(PlacementId, NodeId, FrozenReplica)| {
        leader == Some((promised, *placement)) && standing.promised == promised
    };
    let leader = told.iter().find(led);
    // The leader wrote all entries of that epoch, on any replica: if its log ends before one of them, it lost the end.
    let own = told.iter().map(|(_, _, standing)| standing.last).filter(|last| last.epoch == promised).max();
    let last = leader.map(|(_, _, standing)| standing.last.max(own.unwrap_or(standing.last)));
    let last = last.or_else(|| told.iter().map(|(_, _, standing)| standing.last).max())?;
    let ends = |(_, _, standing): &&(PlacementId, NodeId, FrozenReplica)| standing.last == last;
    let lags = told.iter().filter(|copy| !ends(copy)).map(|(placement, _, _)| *placement).collect();
    let counts = told.iter().filter(ends).map(|(placement, node, _)| (*placement, *node)).collect();
    let contested = !told.iter().filter(ends).any(|(_, _, standing)| standing.promised == promised);
    Some(Choice { counts, lags, contested })
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{PartitionId, Position, Seq, TableId};

    fn told(copies: &[(u64, u64, (u64, u64))]) -> Vec<(PlacementId, NodeId, FrozenReplica)> {
        let standing = |(id, promised, (epoch, seq)): &(u64, u64, (u64, u64))| {
            let last = Position::new(Epoch::new(*epoch), Seq::new(*seq));
            let partition = PartitionId::new(TableId::new(1), 0);
            (
                PlacementId::new(*id),
                NodeId::new(*id),
                FrozenReplica { partition, promised: Epoch::new(*promised), last },
            )
        };
        copies.iter().map(standing).collect()
    }

    fn led_by(leader: u64, epoch: u64) -> Option<(Epoch, PlacementId)> {
        Some((Epoch::new(epoch), PlacementId::new(leader)))
    }

    fn counts(leader: Option<(Epoch, PlacementId)>, copies: &[(u64, u64, (u64, u64))]) -> (Vec<u64>, bool) {
        let choice = choose(leader, &told(copies)).unwrap();
        (choice.counts.iter().map(|(placement, _)| placement.get()).collect(), choice.contested)
    }

    #[test]
    fn replicas_with_the_last_log_end_count() {
        let leader = led_by(1, 2);
        assert_eq!(counts(leader, &[(1, 3, (2, 9)), (2, 3, (3, 7)), (3, 3, (3, 7))]), (vec![2, 3], false));
        assert_eq!(choose(leader, &[]), None);
    }

    #[test]
    fn former_leaders_tail_does_not_count() {
        let leader = led_by(2, 3);
        // Replica 1 led before and holds an unacknowledged entry; replica 2 leads now and has written nothing.
        assert_eq!(counts(leader, &[(1, 2, (2, 9)), (2, 3, (2, 8))]), (vec![2], false));
    }

    #[test]
    fn leaders_log_is_not_chosen_if_it_lost_its_end() {
        let leader = led_by(1, 7);
        // The leader was restored to an image that was made in this incarnation.
        assert_eq!(counts(leader, &[(1, 7, (7, 10)), (2, 7, (7, 20)), (3, 7, (7, 15))]), (vec![2], false));
        assert_eq!(counts(leader, &[(1, 7, (6, 30)), (2, 7, (7, 20)), (3, 6, (6, 40))]), (vec![2], false));
        // A longer tail of an older epoch was never acknowledged.
        assert_eq!(counts(leader, &[(1, 7, (6, 30)), (2, 6, (6, 40))]), (vec![1], false));
    }

    #[test]
    fn later_leadership_without_an_entry_is_contested() {
        let leader = led_by(1, 2);
        assert_eq!(counts(leader, &[(1, 2, (2, 9)), (2, 3, (2, 8))]), (vec![1], true));
    }
}
