//! Report of a reset copy to the coordinators, so that it no longer counts as in sync (PROTOCOL rule 19).

use crate::copies::copy_view::CopyView;
use crate::mutant::{DisabledRule, Mutant};
use archon_replica::Position;
use archon_types::{Incarnation, Partition, Seq, Version};

/// Report state of one copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResetReport {
    reported: Option<LastReport>,
    /// Partial: it was reset, or a pull began, and no pull has completed since.
    is_part: bool,
    broken: DisabledRule,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LastReport {
    /// Registration of the node in which it was reported.
    incarnation: Incarnation,
    /// Row version of the report; `None` if no further report is needed, however the row changes.
    version: Option<Version>,
}

impl ResetReport {
    /// Starts without a report.
    pub fn new(broken: DisabledRule) -> Self {
        Self { broken, ..Self::default() }
    }

    /// Returns the state of a copy created in this registration: an empty new copy was not reset.
    pub const fn never_held(self, incarnation: Incarnation) -> Self {
        Self { reported: Some(LastReport { incarnation, version: None }), ..self }
    }

    /// Records that its log restarts after `base`. Returns whether that resets the copy, possibly again: it may have
    /// been in sync in between.
    pub fn begins_after(&mut self, base: Position) -> bool {
        self.is_part = base == Position::ZERO;
        if self.is_part {
            self.reported = None;
        }
        self.is_part
    }

    /// Records that a pull has begun; it ends with a log that starts after the copy.
    pub const fn is_pulled(&mut self) {
        self.is_part = true;
    }

    /// Returns whether a report is due in this registration under this row version. One report per registration, as the
    /// coordinator drops what it did not receive in an earlier one; and another when the row has changed, as it ignores
    /// reports made before the copy left the in-sync set.
    pub fn is_due(&self, incarnation: Incarnation, version: Version) -> bool {
        let reported = self.reported.filter(|reported| reported.incarnation == incarnation);
        let due = reported.is_none_or(|reported| reported.version.is_some_and(|before| before < version));
        due && !self.broken.breaks(Mutant::EmptiedUnreported)
    }

    /// Returns whether `row` makes leader a copy that may be partial (PROTOCOL rule 27): it was reset, its first pull
    /// has not completed, or its log has not reached `engine_position`, the end of the rows it pulled. `has_rows`
    /// returns whether the engine holds any of its rows; called only where that decides.
    ///
    /// # Errors
    /// The error of `has_rows`.
    pub fn leads_a_part<E>(
        &self,
        copy: CopyView<'_>,
        row: &Partition,
        engine_position: Seq,
        has_rows: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        if !copy.would_take_up(row) || self.broken.breaks(Mutant::PartLeads) {
            return Ok(false);
        }
        match copy.replica.last().seq {
            // Rows without a log were pulled. Without rows, nothing was ever written to the partition.
            Seq::ZERO => Ok(self.is_part || has_rows()?),
            last => Ok(last < engine_position),
        }
    }

    /// Records a report.
    pub const fn said(&mut self, incarnation: Incarnation, version: Version) {
        self.reported = Some(LastReport { incarnation, version: Some(version) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_replica::{Identity, Limits, RecoveredState, Replica, Run};
    use archon_types::{
        Epoch, NodeId, PartitionId, PartitionStatus, Placement, PlacementId, ReplicaState, Seq, TableId,
    };

    #[test]
    fn reset_copy_is_reported_per_registration_and_row_change() {
        let (first, next) = (Incarnation::new(1), Incarnation::new(2));
        let (one, two) = (Version::new(1), Version::new(2));
        let mut emptied = ResetReport::default();
        assert!(emptied.is_due(first, one));
        emptied.said(first, one);
        assert!(!emptied.is_due(first, one));
        assert!(emptied.is_due(first, two) && emptied.is_due(next, one));
        assert!(emptied.begins_after(Position::ZERO));
        assert!(emptied.is_due(first, one));
        emptied.said(first, one);
        assert!(!emptied.begins_after(Position::new(Epoch::new(1), Seq::new(5))), "a replica has filled it");
        assert!(!emptied.is_due(first, one));
    }

    fn reset_copy_is_reported(mutant: Option<Mutant>) -> bool {
        ResetReport::new(DisabledRule::by(mutant)).is_due(Incarnation::new(1), Version::new(1))
    }

    /// Returns whether a copy whose log ends at `last` is refused the leadership that its row gives it. The engine
    /// holds rows up to `engine_position`, or none.
    fn is_refused(emptied: &ResetReport, last: u64, engine_position: Option<u64>) -> bool {
        let (partition, placement) = (PartitionId::new(TableId::new(1), 0), PlacementId::new(1));
        let (node, incarnation) = (NodeId::new(1), Incarnation::new(1));
        let identity = Identity { partition, placement, node, incarnation };
        let run = Run { epoch: Epoch::new(1), first: Seq::new(1) };
        let runs = if last > 0 { vec![run] } else { Vec::new() };
        let recovered = RecoveredState {
            epoch: Epoch::new(1),
            runs,
            last: Seq::new(last),
            commit: Seq::ZERO,
            base: Position::ZERO,
        };
        let replica = Replica::new(identity, recovered, Limits::default()).unwrap();
        let row = Partition {
            id: partition,
            epoch: Epoch::new(2),
            version: Version::new(2),
            leader: Some(placement),
            placements: vec![Placement { id: placement, node, state: ReplicaState::Live }],
            status: PartitionStatus::Online,
            min_in_sync: 1,
            range: archon_types::KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        };
        let copy = CopyView { placement, replica: &replica, set_aside: false };
        let position = Seq::new(engine_position.unwrap_or_default());
        emptied.leads_a_part(copy, &row, position, || Ok::<_, ()>(engine_position.is_some())).unwrap()
    }

    #[test]
    fn partial_copy_is_refused_leadership() {
        let mut emptied = ResetReport::default();
        assert!(!is_refused(&emptied, 0, None), "nothing was ever written");
        assert!(is_refused(&emptied, 0, Some(0)), "pages of a replica that did not come to its end in an earlier life");
        assert!(!is_refused(&emptied, 7, Some(7)), "whole");
        emptied.is_pulled();
        assert!(is_refused(&emptied, 0, None));
        emptied.begins_after(Position::new(Epoch::new(1), Seq::new(5)));
        assert!(!is_refused(&emptied, 0, None));
        emptied.begins_after(Position::ZERO);
        assert!(is_refused(&emptied, 0, None));
    }

    /// Pages hold some rows written during the pull, and others from before.
    #[test]
    fn copy_behind_its_pages_is_refused_leadership() {
        let emptied = ResetReport::default();
        assert!(is_refused(&emptied, 7, Some(9)));
        assert!(!is_refused(&emptied, 9, Some(9)) && !is_refused(&emptied, 9, Some(7)));
    }

    fn rows_without_log_are_refused_leadership(mutant: Option<Mutant>) -> bool {
        is_refused(&ResetReport::new(DisabledRule::by(mutant)), 0, Some(0))
    }

    archon_types::shown_by! {
        PartLeads => rows_without_log_are_refused_leadership,
        EmptiedUnreported => reset_copy_is_reported,
    }

    #[test]
    fn new_copy_is_not_reported_as_reset() {
        let emptied = ResetReport::default().never_held(Incarnation::new(1));
        assert!(!emptied.is_due(Incarnation::new(1), Version::new(9)));
        assert!(emptied.is_due(Incarnation::new(2), Version::new(9)));
    }
}
