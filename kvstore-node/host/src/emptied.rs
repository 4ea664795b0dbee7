//! Whether the coordinators were told that a copy has thrown its data away: nobody may take it for what it was when it
//! counted (PROTOCOL rule 19).

use crate::copy_view::CopyView;
use crate::mutant::{Broken, Mutant};
use archon_replica::Position;
use archon_types::{Incarnation, Partition, Seq, Version};

/// When that was last said of one copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Emptied {
    reported: Option<Reported>,
    /// It was emptied, or a copy began to be pulled, and none has come to its end since.
    is_part: bool,
    broken: Broken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reported {
    /// The registration of the node in which it was.
    incarnation: Incarnation,
    /// The row's version that it was said under; `None` if it need not be said again, however the row changes.
    version: Option<Version>,
}

impl Emptied {
    /// Nothing was said yet.
    pub fn new(broken: Broken) -> Self {
        Self { broken, ..Self::default() }
    }

    /// The state of a copy that was made in this registration: what never held anything was not emptied.
    pub const fn never_held(self, incarnation: Incarnation) -> Self {
        Self { reported: Some(Reported { incarnation, version: None }), ..self }
    }

    /// Its log begins anew after `base`. Returns whether it is emptied by that, perhaps once more: it may have counted in
    /// between.
    pub fn begins_after(&mut self, base: Position) -> bool {
        self.is_part = base == Position::ZERO;
        if self.is_part {
            self.reported = None;
        }
        self.is_part
    }

    /// Pages of a copy come from here on; its end is a log that begins after it.
    pub const fn is_pulled(&mut self) {
        self.is_part = true;
    }

    /// Whether it is to be said in this registration, under this version of the row. It is said once per registration of the
    /// node, for what was not heard in one is forgotten with it; and again when the row has changed, for the coordinator believes
    /// nothing that was said before the copy ceased to count.
    pub fn is_due(&self, incarnation: Incarnation, version: Version) -> bool {
        let reported = self.reported.filter(|reported| reported.incarnation == incarnation);
        let due = reported.is_none_or(|reported| reported.version.is_some_and(|before| before < version));
        due && !self.broken.breaks(Mutant::EmptiedUnreported)
    }

    /// Whether `row` has a copy lead that holds a part of its partition at most (PROTOCOL rule 27): it was emptied, or what it
    /// pulls first has not come to its end, or its log has not come to `engine_position`, where the rows that it pulled had
    /// come. `has_rows`: whether the engine holds anything of it; asked only where that decides.
    ///
    /// # Errors
    /// That of `has_rows`.
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
            // Rows without a log were pulled. Where there are none either, nothing was ever written to the partition.
            Seq::ZERO => Ok(self.is_part || has_rows()?),
            last => Ok(last < engine_position),
        }
    }

    /// Takes in that it was said.
    pub const fn said(&mut self, incarnation: Incarnation, version: Version) {
        self.reported = Some(Reported { incarnation, version: Some(version) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_replica::{Identity, Limits, Recovered, Replica, Run};
    use archon_types::{
        Epoch, NodeId, PartitionId, PartitionStatus, Placement, PlacementId, ReplicaState, Seq, TableId,
    };

    #[test]
    fn an_emptied_copy_is_told_of_once_per_registration_and_again_when_the_row_has_changed() {
        let (first, next) = (Incarnation::new(1), Incarnation::new(2));
        let (one, two) = (Version::new(1), Version::new(2));
        let mut emptied = Emptied::default();
        assert!(emptied.is_due(first, one));
        emptied.said(first, one);
        assert!(!emptied.is_due(first, one));
        assert!(emptied.is_due(first, two) && emptied.is_due(next, one));
        assert!(emptied.begins_after(Position::ZERO));
        assert!(emptied.is_due(first, one));
        emptied.said(first, one);
        assert!(!emptied.begins_after(Position::new(Epoch::new(1), Seq::new(5))), "a copy has filled it");
        assert!(!emptied.is_due(first, one));
    }

    fn a_copy_that_was_emptied_is_told_of(mutant: Option<Mutant>) -> bool {
        Emptied::new(Broken::by(mutant)).is_due(Incarnation::new(1), Version::new(1))
    }

    /// Whether a copy whose log ends at `last` is refused the leadership that its row gives it. The engine holds rows of it, of
    /// positions up to there as far as it says, or none.
    fn is_refused(emptied: &Emptied, last: u64, engine_position: Option<u64>) -> bool {
        let (partition, placement) = (PartitionId::new(TableId::new(1), 0), PlacementId::new(1));
        let (node, incarnation) = (NodeId::new(1), Incarnation::new(1));
        let identity = Identity { partition, placement, node, incarnation };
        let run = Run { epoch: Epoch::new(1), first: Seq::new(1) };
        let runs = if last > 0 { vec![run] } else { Vec::new() };
        let recovered =
            Recovered { epoch: Epoch::new(1), runs, last: Seq::new(last), commit: Seq::ZERO, base: Position::ZERO };
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
    fn a_copy_that_was_emptied_while_an_operator_named_it_does_not_lead() {
        let mut emptied = Emptied::default();
        assert!(!is_refused(&emptied, 0, None), "nothing was ever written");
        assert!(is_refused(&emptied, 0, Some(0)), "pages of a copy that did not come to its end in an earlier life");
        assert!(!is_refused(&emptied, 7, Some(7)), "whole");
        emptied.is_pulled();
        assert!(is_refused(&emptied, 0, None));
        emptied.begins_after(Position::new(Epoch::new(1), Seq::new(5)));
        assert!(!is_refused(&emptied, 0, None));
        emptied.begins_after(Position::ZERO);
        assert!(is_refused(&emptied, 0, None));
    }

    /// Its pages held rows that were written while it was pulled, and of others what was there before.
    #[test]
    fn a_copy_whose_log_had_not_come_to_where_its_pages_had_led_with_rows_of_no_position() {
        let emptied = Emptied::default();
        assert!(is_refused(&emptied, 7, Some(9)));
        assert!(!is_refused(&emptied, 9, Some(9)) && !is_refused(&emptied, 9, Some(7)));
    }

    fn a_part_does_not_lead(mutant: Option<Mutant>) -> bool {
        is_refused(&Emptied::new(Broken::by(mutant)), 0, Some(0))
    }

    archon_types::shown_by! {
        PartLeads => a_part_does_not_lead,
        EmptiedUnreported => a_copy_that_was_emptied_is_told_of,
    }

    #[test]
    fn a_copy_that_never_held_anything_was_not_emptied_in_that_registration() {
        let emptied = Emptied::default().never_held(Incarnation::new(1));
        assert!(!emptied.is_due(Incarnation::new(1), Version::new(9)));
        assert!(emptied.is_due(Incarnation::new(2), Version::new(9)));
    }
}
