//! Facts on their way to the coordinator: bounded, the newest per fact, kept until they are answered for good.

use archon_types::{Epoch, ErrorKind, Fact, PartitionId, PlacementId, Report};
use std::collections::BTreeMap;

/// Most reports that wait. Replicas repeat what matters, so what does not fit is not lost for good.
const WAITING_MAX: usize = 65_536;

/// Which fact about which placement: a newer report of the same replaces an older one. Of releases each epoch's counts.
type Key = (PlacementId, u8, Epoch);

/// The reports of one life of a member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reports {
    waiting: BTreeMap<Key, Report>,
}

impl Reports {
    /// Takes in a report. Returns whether there was room for it.
    pub fn put(&mut self, report: Report) -> bool {
        let key = key(&report);
        let room = self.waiting.len() < WAITING_MAX || self.waiting.contains_key(&key);
        if room {
            self.waiting.insert(key, report);
        }
        room
    }

    /// Up to `count` reports to be sent; they stay until they are answered.
    pub fn peek(&self, count: usize) -> Vec<Report> {
        self.waiting.values().take(count).cloned().collect()
    }

    /// A report was answered: taken, or refused with an error of this kind. Returns whether it is done with; otherwise it is to be
    /// sent again. It is forgotten then, unless a newer one has taken its place meanwhile.
    pub fn answered(&mut self, report: &Report, refused: Option<ErrorKind>) -> bool {
        if refused.is_some_and(|kind| asks_again(&report.fact, kind)) {
            return false;
        }
        let key = key(report);
        if self.waiting.get(&key) == Some(report) {
            self.waiting.remove(&key);
        }
        true
    }

    /// Whether something about this partition waits.
    pub(crate) fn is_about(&self, partition: PartitionId) -> bool {
        self.waiting.values().any(|report| report.partition == partition)
    }

    /// Forgets what was to be told of this copy in this epoch.
    pub(crate) fn forget(&mut self, placement: PlacementId, epoch: Epoch) {
        self.waiting.retain(|_, report| (report.placement, report.epoch) != (placement, epoch));
    }

    /// Forgets everything: the life whose facts they were is over.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Whether a report so answered is to be sent again. A report of an epoch that is over never comes true again, although
/// an *operation* so answered may succeed elsewhere: kept, it would block a stopping node until its time-out.
/// `StaleVersion` says that the row changed while the report was on its way into the log; but for requests, which name the
/// version they are about, that takes nothing away from what is reported, and the replica would repeat it much later. `Refused`
/// says of a release that whoever was to lead next has gone meanwhile: another one is named the next time. Whether a partition is to
/// be split or merged is looked at anew in any case.
fn asks_again(fact: &Fact, kind: ErrorKind) -> bool {
    match kind {
        _ if matches!(fact, Fact::Outgrown { .. } | Fact::Undersized(_)) => false,
        ErrorKind::StaleEpoch => false,
        ErrorKind::StaleVersion => !matches!(fact, Fact::CaughtUp { .. } | Fact::Silent { .. }),
        ErrorKind::Refused => matches!(fact, Fact::Released | Fact::Declined),
        kind => kind.is_retryable(),
    }
}

fn key(report: &Report) -> Key {
    let fact = match report.fact {
        Fact::Online => 0,
        Fact::CaughtUp { .. } => 1,
        Fact::Silent { .. } => 2,
        Fact::Released => 3,
        Fact::Unloaded => 4,
        Fact::Damaged { .. } => 5,
        Fact::LostData { .. } => 6,
        Fact::Emptied => 7,
        Fact::Overtaken { .. } => 8,
        Fact::Declined => 9,
        Fact::Formed { .. } => 10,
        Fact::Mirroring { .. } => 11,
        Fact::Outgrown { .. } => 14,
        Fact::Absorbed { .. } => 12,
        Fact::Unabsorbable { .. } => 13,
        Fact::Undersized(_) => 15,
        Fact::Inspected { .. } => 16,
    };
    let epoch = if matches!(report.fact, Fact::Released | Fact::Declined) { report.epoch } else { Epoch::ZERO };
    (report.placement, fact, epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Outgrown, TableId, Version};

    fn report(placement: u64, version: u64) -> Report {
        Report {
            partition: PartitionId::new(TableId::new(1), 0),
            placement: PlacementId::new(placement),
            epoch: Epoch::new(1),
            version: Version::new(version),
            fact: Fact::Online,
        }
    }

    #[test]
    fn the_newest_report_of_a_fact_is_kept_and_a_late_answer_does_not_remove_it() {
        let mut reports = Reports::default();
        assert!(reports.put(report(1, 1)));
        let taken = reports.peek(10);
        assert!(reports.put(report(1, 2)));
        assert!(reports.put(report(2, 1)));
        assert!(reports.answered(&taken[0], None));
        assert_eq!(reports.peek(10), [report(1, 2), report(2, 1)]);
        assert!(reports.answered(&report(1, 2), None));
        assert!(reports.answered(&report(2, 1), None));
        assert!(reports.is_empty());
    }

    #[test]
    fn releases_of_two_epochs_are_both_told() {
        let mut reports = Reports::default();
        let released = |epoch| Report { epoch: Epoch::new(epoch), fact: Fact::Released, ..report(1, 1) };
        assert!(reports.put(released(3)) && reports.put(released(5)));
        assert_eq!(reports.peek(10).len(), 2);
    }

    /// It would stay in the queue, and what is told of a partition that is above a limit is of use for a moment only.
    #[test]
    fn a_split_that_is_not_wanted_now_is_not_asked_for_again() {
        let mut reports = Reports::default();
        let outgrown = Report { fact: Fact::Outgrown { at: "m".into(), by: Outgrown::Bytes(9) }, ..report(1, 5) };
        for kind in [ErrorKind::StaleVersion, ErrorKind::Refused, ErrorKind::Unavailable] {
            reports.put(outgrown.clone());
            assert!(reports.answered(&outgrown, Some(kind)), "{kind:?}");
            assert!(reports.is_empty());
        }
    }

    /// Nobody owned the partition until the life of its former owner ended.
    #[test]
    fn a_release_was_forgotten_when_the_next_owner_had_just_failed() {
        let mut reports = Reports::default();
        for fact in [Fact::Released, Fact::Declined] {
            let released = Report { fact, ..report(1, 5) };
            reports.put(released.clone());
            assert!(!reports.answered(&released, Some(ErrorKind::Refused)));
            assert!(reports.answered(&released, None));
        }
        reports.put(report(1, 5));
        assert!(reports.answered(&report(1, 5), Some(ErrorKind::Refused)), "of another fact it is the answer");
        assert!(reports.is_empty());
    }

    #[test]
    fn a_report_of_an_epoch_that_is_over_is_not_sent_for_ever() {
        assert!(!asks_again(&Fact::Released, ErrorKind::StaleEpoch));
        assert!(!asks_again(&Fact::Released, ErrorKind::NotFound));
        assert!(asks_again(&Fact::Released, ErrorKind::NoQuorum));
    }

    #[test]
    fn a_release_that_another_change_of_the_row_overtook_is_sent_again() {
        let mut reports = Reports::default();
        let released = Report { fact: Fact::Released, ..report(1, 1) };
        assert!(reports.put(released.clone()));
        assert!(!reports.answered(&released, Some(ErrorKind::StaleVersion)));
        assert_eq!(reports.peek(10), [released]);
        assert!(asks_again(&Fact::Online, ErrorKind::StaleVersion));
        assert!(!asks_again(&Fact::Silent { followers: Vec::new() }, ErrorKind::StaleVersion), "it is answered");
    }
}
